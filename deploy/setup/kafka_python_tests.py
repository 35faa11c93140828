"""Brings kafka-python's own tests into build/: its source distribution carries them.

`python -m deploy.setup.kafka_python_tests` prints the folder. The version and the hash are those of
requirements.lock. Our fixture (tests/compat/kafka_python_fixture.py) takes the place of theirs, which would
start brokers of its own: the integration tests then run against any broker, $KAFKA_URI.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from deploy.setup.archives import unpack

ROOT = Path(__file__).resolve().parents[2]
LOCK = ROOT / "requirements.lock"
FIXTURE = ROOT / "tests" / "compat" / "kafka_python_fixture.py"
FETCH_SECONDS_MAX = 300


class NotBrought(Exception):
    """The tests could not be had; the message says what to do."""


def ensure() -> Path:
    """The folder that holds `test/`, made when it is missing. Raises NotBrought."""
    requirement, version = pinned()
    folder = ROOT / "build" / f"kafka-python-{version}"
    if not folder.exists():
        with tempfile.TemporaryDirectory(prefix="floe-sdist-", dir=ROOT / "build") as temporary:
            unpacked = _unpacked(requirement, Path(temporary))
            # The package of the tests is cut down in the distribution: its own __init__ is left out.
            (unpacked / "test" / "__init__.py").touch()
            shutil.rmtree(unpacked / "kafka")  # the installed one is what is tested
            unpacked.rename(folder)
    place = folder / "test" / "integration" / "fixtures.py"
    if not place.exists() or place.read_bytes() != FIXTURE.read_bytes():
        # A new file in its place: the old one may be a hard link that another clone shares.
        with tempfile.NamedTemporaryFile(dir=place.parent, delete=False) as fresh:
            fresh.write(FIXTURE.read_bytes())
        Path(fresh.name).rename(place)
    return folder


def pinned() -> tuple[str, str]:
    """kafka-python's requirement with its hashes, as requirements.lock has it, and its version."""
    found = re.search(r"^kafka-python==(\S+) \\\n(?:    --hash=.*\n)+", LOCK.read_text(), re.MULTILINE)
    if found is None:
        raise NotBrought("requirements.lock does not pin kafka-python: run `make lock`")
    return found[0], found[1]


def _unpacked(requirement: str, work: Path) -> Path:
    (work / "requirement.txt").write_text(requirement)
    command = [sys.executable, "-m", "pip", "download", "-q", "--disable-pip-version-check", "--no-deps"]
    command += ["--no-binary", ":all:", "--no-build-isolation", "--require-hashes"]
    command += ["-r", "requirement.txt", "-d", "sdist"]
    done = subprocess.run(
        command, cwd=work, capture_output=True, text=True, check=False, timeout=FETCH_SECONDS_MAX
    )
    if done.returncode:
        raise NotBrought(f"kafka-python's source distribution did not come: {done.stderr.strip()[-500:]}")
    (archive,) = (work / "sdist").glob("*.tar.gz")
    unpack(archive, work / "out")
    (folder,) = (work / "out").iterdir()
    return folder


if __name__ == "__main__":
    print(ensure())
