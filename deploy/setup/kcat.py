"""Brings Debian's kcat into build/tools/kcat without root: `python -m deploy.setup.kcat` prints its command.

An installed kcat is used when there is one. Otherwise apt, with lists of its own under build/, fetches the
packages that deploy/setup/debian-kcat.sha256 pins from the sources this machine has, each is compared with
its hash and unpacked. Libraries of kcat's own that the machine lacks too (compression, SASL, TLS) come the
same way, vouched for by apt's signatures: Debian replaces those at every security update.
"""

from __future__ import annotations

import fcntl
import hashlib
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PINS = Path(__file__).resolve().with_name("debian-kcat.sha256")
OUTPUT = ROOT / "build" / "tools" / "kcat"
FETCH_SECONDS_MAX = 300
RETRIES = 5
# The packages that hold what librdkafka links with, by the start of the library's name (Debian 12).
LIBRARIES = {
    "liblz4": "liblz4-1",
    "libzstd": "libzstd1",
    "libsasl2": "libsasl2-2",
    "libssl": "libssl3",
    "libcrypto": "libssl3",
    "libz.": "zlib1g",
}


class NoKcat(Exception):
    """kcat is neither installed nor to be had; the message says what to do."""


def kcat_command() -> list[str]:
    """The command that runs kcat, brought first when it is missing. Raises NoKcat."""
    installed = shutil.which("kcat")
    if installed is not None:
        return [installed]
    wanted = PINS.read_text()
    OUTPUT.mkdir(parents=True, exist_ok=True)
    with (OUTPUT / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        stamp = OUTPUT / "stamp"
        if not (stamp.exists() and stamp.read_text() == wanted):
            _bring([tuple(line.split()) for line in wanted.splitlines()])
            stamp.write_text(wanted)
    return _command(OUTPUT / "root")


def _command(root: Path) -> list[str]:
    """kcat with the libraries unpacked beside it. Raises NoKcat when there is none."""
    libraries = sorted({str(path.parent) for path in root.glob("usr/lib/*/lib*.so*")})
    program = root / "usr" / "bin" / "kcat"
    if not program.exists():
        raise NoKcat(f"{program} is missing: remove {OUTPUT} and run this again")
    return ["env", f"LD_LIBRARY_PATH={':'.join(libraries)}", str(program)]


def _bring(pins: list[tuple[str, ...]]) -> None:
    for tool in ("apt-get", "dpkg-deb"):
        if shutil.which(tool) is None:
            raise NoKcat(
                f"kcat is not installed and there is no {tool} to bring it: install kcat 1.7 or newer"
            )
    work = OUTPUT / "work"
    shutil.rmtree(work, ignore_errors=True)
    for folder in ("lists/partial", "cache/archives/partial"):
        (work / folder).mkdir(parents=True)
    _apt(work, "update")
    for sha256, package in pins:
        _unpack(_download(work, package), sha256)
    missing = {
        package
        for name in _not_found(_command(work / "root"))
        for start, package in LIBRARIES.items()
        if name.startswith(start)
    }
    for package in sorted(missing):
        _unpack(_download(work, package), None)
    if lacking := _not_found(_command(work / "root")):
        raise NoKcat(
            f"kcat lacks {', '.join(lacking)} here: install kcat with the system's own package manager"
        )
    shutil.rmtree(OUTPUT / "root", ignore_errors=True)
    (work / "root").rename(OUTPUT / "root")
    shutil.rmtree(work)


def _download(work: Path, package: str) -> Path:
    """The .deb of `name` or `name=version`, alone in a folder of its own."""
    folder = work / re.sub(r"\W", "_", package)
    folder.mkdir()
    _apt(work, "download", package, folder=folder)
    found = list(folder.glob("*.deb"))
    if len(found) != 1:
        raise NoKcat(
            f"apt delivered {len(found)} files for {package}: check its sources, then run this again"
        )
    return found[0]


def _unpack(package: Path, sha256: str | None) -> None:
    """Into work/root, which is two folders above the package; after a look at its hash when one is pinned."""
    found = hashlib.sha256(package.read_bytes()).hexdigest()
    if sha256 is not None and found != sha256:
        raise NoKcat(
            f"{package.name} has sha256 {found}, pinned is {sha256}: it is another build; do not use it"
        )
    root = package.parents[1] / "root"
    subprocess.run(["dpkg-deb", "-x", str(package), str(root)], check=True, timeout=FETCH_SECONDS_MAX)


def _not_found(command: list[str]) -> list[str]:
    """The shared libraries that the loader misses."""
    ran = subprocess.run(
        [*command[:-1], "ldd", command[-1]],
        capture_output=True,
        text=True,
        check=False,
        timeout=FETCH_SECONDS_MAX,
    )
    return re.findall(r"^\s*(\S+) => not found", ran.stdout, re.MULTILINE)


def _apt(work: Path, *arguments: str, folder: Path | None = None) -> None:
    """apt-get with lists and cache of our own: needs no root and changes nothing of the machine's."""
    options = {
        "Dir::State::Lists": work / "lists",
        "Dir::Cache": work / "cache",
        "Acquire::Retries": RETRIES,
        "Acquire::Languages": "none",
        "APT::Sandbox::User": "",
        "Debug::NoLocking": 1,
    }
    command = ["apt-get", "-q"]
    for name, value in options.items():
        command += ["-o", f"{name}={value}"]
    try:
        ran = subprocess.run(
            [*command, *arguments],
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
            timeout=FETCH_SECONDS_MAX,
        )
    except subprocess.TimeoutExpired:
        raise NoKcat(f"apt-get {arguments[0]} took over {FETCH_SECONDS_MAX} s: check the network") from None
    if ran.returncode != 0:
        said = [line for line in ran.stderr.splitlines() if line.startswith("E:")]
        raise NoKcat(
            f"apt-get {' '.join(arguments)} failed ({said[-1] if said else ran.returncode}): install kcat, "
            "or give this machine Debian 12's package sources"
        )


def main() -> int:
    """Print the command, or one line that says what to do."""
    try:
        print(*kcat_command())
    except NoKcat as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
