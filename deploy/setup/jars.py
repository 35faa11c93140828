"""Brings pinned sets of jars into build/jars/<set>/ without Maven, by the Ivy inside pyspark.

`python -m deploy.setup.jars iceberg kafka` brings sets; `--lock SET` resolves a set's roots anew and
rewrites its list, deploy/setup/jars-<set>.sha256: one line `<sha256>  <organisation>/<name>/<version>`
per jar, with `/<classifier>` where it has one. Only listed jars are fetched, each checked against its
hash; a set that is there costs nothing. $FLOE_MAVEN_MIRROR names another repository than Ivy's default,
Maven Central.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from xml.sax.saxutils import quoteattr

from deploy.setup.java import NoJava, java_home

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
JARS = ROOT / "build" / "jars"
FETCH_SECONDS_MAX = 900
# The wheel's Java brings its own list of authorities; a machine behind a proxy has added to the system's.
TRUST_STORES = (Path("/etc/ssl/certs/java/cacerts"), Path("/etc/pki/java/cacerts"))

ROOTS = {
    "iceberg": (
        "org.apache.iceberg/iceberg-spark-runtime-4.1_2.13/1.12.0",
        "org.apache.iceberg/iceberg-aws-bundle/1.12.0",
    ),
    "kafka": ("org.apache.kafka/kafka_2.13/4.3.1", "org.apache.kafka/kafka-tools/4.3.1"),
    "connect": (
        "org.apache.kafka/connect-runtime/4.3.1",
        "org.apache.kafka/connect-file/4.3.1",
        "org.slf4j/slf4j-simple/1.7.36",
    ),
    # MirrorMaker 2: Connect's worker with its connectors.
    "mirror": ("org.apache.kafka/connect-mirror/4.3.1", "org.slf4j/slf4j-simple/1.7.36"),
    # Iceberg's REST compatibility kit; the newest that there is (docs/engines.md).
    "kit": (
        "org.apache.iceberg/iceberg-open-api/1.11.0/tests",
        "org.apache.iceberg/iceberg-open-api/1.11.0/test-fixtures",
        "org.apache.iceberg/iceberg-core/1.11.0",
        "org.apache.iceberg/iceberg-core/1.11.0/tests",
        "org.apache.iceberg/iceberg-api/1.11.0",
        "org.apache.iceberg/iceberg-api/1.11.0/tests",
        "org.junit.platform/junit-platform-console-standalone/1.13.4",
        "org.assertj/assertj-core/3.27.6",
        "org.awaitility/awaitility/4.3.0",
    ),
    # Iceberg's own REST server over its JDBC catalog: the other catalog that tables are published to.
    "rest": (
        "org.apache.iceberg/iceberg-open-api/1.11.0/test-fixtures",
        "org.apache.iceberg/iceberg-core/1.11.0",
        "org.apache.iceberg/iceberg-core/1.11.0/tests",
        "org.eclipse.jetty.ee10/jetty-ee10-servlet/12.1.6",
        "org.eclipse.jetty.compression/jetty-compression-server/12.1.6",
        "org.eclipse.jetty.compression/jetty-compression-gzip/12.1.6",
        "org.xerial/sqlite-jdbc/3.51.1.0",
    ),
    # Spark reads topics themselves by it; the newest version of which Maven Central has all parts.
    "sparkkafka": ("org.apache.spark/spark-sql-kafka-0-10_2.13/4.1.1",),
    "streams": ("org.apache.kafka/kafka-streams-examples/4.3.1", "org.slf4j/slf4j-simple/1.7.36"),
}
BESIDE_SPARK = ("sparkkafka",)
"""Sets that go into a Spark session, so without what pyspark brings itself, in whatever version."""

_VERSION = "[revision](-[classifier]).[ext]"


class JarsFailed(Exception):
    """A set could not be brought; the message is one line and names the jar and the remedy."""


@dataclass(frozen=True, slots=True)
class Jar:
    """One pinned jar: Maven coordinates (`classifier`: which of a module) and its bytes' SHA-256 in hex."""

    organisation: str
    name: str
    version: str
    sha256: str = ""
    classifier: str = ""

    @property
    def file(self) -> str:
        """Its file name in a set's folder."""
        return f"{'-'.join(filter(None, (self.name, self.version, self.classifier)))}.jar"


def ensure(name: str) -> list[Path]:
    """The paths of set `name`'s jars, fetched when missing, in the list's order. Raises JarsFailed."""
    jars = pinned(name)
    folder = JARS / name
    with _locked(name):
        if not _complete(folder, jars):
            _fetch(name, jars)
    return [folder / jar.file for jar in jars]


def pinned(name: str) -> list[Jar]:
    """What deploy/setup/jars-<name>.sha256 lists. Raises JarsFailed for an unknown set."""
    if name not in ROOTS:
        raise JarsFailed(f"no set of jars is called {name!r}: there are {', '.join(sorted(ROOTS))}")
    return [_listed(line) for line in _list_file(name).read_text().splitlines()]


def _listed(line: str) -> Jar:
    sha256, coordinates = line.split()
    organisation, name, version, *classifier = coordinates.split("/")
    return Jar(organisation, name, version, sha256, "".join(classifier))


def check(folder: Path, jars: Sequence[Jar]) -> None:
    """Compare every jar in `folder` with its pinned hash. Raises JarsFailed naming the first that differs."""
    for jar in jars:
        path = folder / jar.file
        if not path.exists():
            raise JarsFailed(f"{jar.file} was not delivered: check the network, then run this again")
        found = _sha256(path)
        if found != jar.sha256:
            raise JarsFailed(
                f"{jar.file} has sha256 {found}, pinned is {jar.sha256}: it was changed or cut on its way; "
                f"run this again, and if it stays so do not use it"
            )


def lock(name: str) -> None:
    """Resolve the roots of set `name` with all they need and rewrite its list."""
    with tempfile.TemporaryDirectory(prefix="floe-jars-") as temporary:
        work = Path(temporary)
        roots = [_listed(f"- {root}") for root in ROOTS[name]]
        _ivy(work, roots, transitive=True, pattern=f"[organisation]/[artifact]/{_VERSION.replace('-', '/')}")
        brought = _in_spark() if name in BESIDE_SPARK else []
        found = [jar for jar in sorted((work / "out").rglob("*.jar")) if not _is_among(brought, jar)]
        lines = [f"{_sha256(jar)}  {jar.relative_to(work / 'out').with_suffix('')}" for jar in found]
    _list_file(name).write_text("\n".join(lines) + "\n")


def _in_spark() -> list[str]:
    """Names of pyspark's own jars."""
    spec = find_spec("pyspark")
    folders = (spec and spec.submodule_search_locations) or []
    return [each.name for folder in folders for each in (Path(folder) / "jars").glob("*.jar")]


def _is_among(names: Sequence[str], jar: Path) -> bool:
    """Whether one of the names is of the module of `jar`, whose path ends <name>/<version>.jar."""
    return any(re.match(rf"{re.escape(jar.parent.name)}-\d", each) for each in names)


def _list_file(name: str) -> Path:
    return HERE / f"jars-{name}.sha256"


def _complete(folder: Path, jars: Sequence[Jar]) -> bool:
    """Whether the folder was moved into place for exactly this list; hashes were checked before that."""
    stamp = folder / "stamp"
    return (
        stamp.exists()
        and stamp.read_text() == _stamp(jars)
        and all((folder / jar.file).exists() for jar in jars)
    )


def _stamp(jars: Sequence[Jar]) -> str:
    return "".join(f"{jar.sha256} {jar.file}\n" for jar in jars)


def _fetch(name: str, jars: Sequence[Jar]) -> None:
    work = Path(tempfile.mkdtemp(prefix=f".{name}-", dir=JARS))
    try:
        _ivy(work, jars, transitive=False, pattern=f"[artifact]-{_VERSION}")
        check(work / "out", jars)
        (work / "out" / "stamp").write_text(_stamp(jars))
        shutil.rmtree(JARS / name, ignore_errors=True)
        (work / "out").rename(JARS / name)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _ivy(work: Path, jars: Sequence[Jar], *, transitive: bool, pattern: str) -> None:
    (work / "settings.xml").write_text(_settings(work / "cache", use_poms=transitive))
    (work / "ivy.xml").write_text(_module(jars, transitive=transitive))
    trust = [f"-Djavax.net.ssl.trustStore={store}" for store in TRUST_STORES if store.is_file()][:1]
    command: list[str | Path] = [java_home() / "bin" / "java", *trust]
    command += ["-cp", _ivy_jar(), "org.apache.ivy.Main"]
    command += ["-settings", work / "settings.xml", "-ivy", work / "ivy.xml", "-warn"]
    command += ["-types", "jar", "bundle", "-confs", "default", "-retrieve", f"{work}/out/{pattern}"]
    try:
        ran = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=FETCH_SECONDS_MAX, cwd=work
        )
    except subprocess.TimeoutExpired:
        raise JarsFailed(f"fetching jars took over {FETCH_SECONDS_MAX} s: check the network") from None
    if ran.returncode != 0:
        complaints = [line.strip() for line in (ran.stdout + ran.stderr).splitlines() if "::" in line]
        missing = [line.strip(": ") for line in complaints if "#" in line]
        raise JarsFailed(
            f"could not fetch {', '.join(missing[:3]) or 'the jars'}: check the network, then run this again"
        )


def _ivy_jar() -> Path:
    import pyspark

    found = sorted((Path(pyspark.__file__).parent / "jars").glob("ivy-*.jar"))
    if not found:
        raise JarsFailed("pyspark's jars folder holds no ivy-*.jar: install the pinned pyspark again")
    return found[-1]


def _settings(cache: Path, *, use_poms: bool) -> str:
    mirror = os.environ.get("FLOE_MAVEN_MIRROR", "")
    root = f" root={quoteattr(mirror)}" if mirror else ""
    poms = str(use_poms).lower()
    return f"""<ivysettings>
  <settings defaultResolver="central"/>
  <caches defaultCacheDir={quoteattr(str(cache))} checkUpToDate="false"/>
  <resolvers>
    <ibiblio name="central" m2compatible="true" usepoms="{poms}" checkmodified="false"{root}/>
  </resolvers>
</ivysettings>
"""


def _module(jars: Sequence[Jar], *, transitive: bool) -> str:
    modules: dict[str, list[Jar]] = {}
    for jar in jars:
        modules.setdefault(f'org="{jar.organisation}" name="{jar.name}" rev="{jar.version}"', []).append(jar)
    wanted = "\n".join(
        f'    <dependency {module} transitive="{str(transitive).lower()}" conf="default->default">'
        f"{''.join(map(_artifact, each)) if any(jar.classifier for jar in each) else ''}</dependency>"
        for module, each in modules.items()
    )
    return f"""<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">
  <info organisation="floe" module="jars"/>
  <configurations><conf name="default"/></configurations>
  <dependencies>
{wanted}
  </dependencies>
</ivy-module>
"""


def _artifact(jar: Jar) -> str:
    """Names one jar of a module that has several."""
    classifier = f' m:classifier="{jar.classifier}"' if jar.classifier else ""
    return f'<artifact name="{jar.name}" type="jar" ext="jar"{classifier}/>'


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def _locked(name: str) -> Iterator[None]:
    """One process at a time brings a set; a second one waits and finds it there."""
    JARS.mkdir(parents=True, exist_ok=True)
    with (JARS / f".{name}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def main() -> int:
    """Bring the sets named on the command line."""
    parser = argparse.ArgumentParser(description="bring pinned sets of jars into build/jars")
    parser.add_argument("sets", nargs="+", choices=sorted(ROOTS))
    parser.add_argument("--lock", action="store_true", help="resolve anew and rewrite the lists")
    arguments = parser.parse_args()
    try:
        for name in arguments.sets:
            if arguments.lock:
                lock(name)
            ensure(name)
    except (JarsFailed, NoJava) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
