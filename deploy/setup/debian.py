"""Brings programs of Debian 12 into build/tools/ without root; kcat.py, prometheus.py, chromium.py say which.

And whole sets of packages, unpacked into one folder (`unpacked`): a container runtime, an image's root.

An installed one is used when there is one. Otherwise apt, with lists of its own under build/, fetches the
packages that a file of pins names from the sources this machine has, each is compared with its hash and
unpacked. A version that Debian has replaced, as it does at every security update, is fetched as its
successor, and libraries that the machine lacks too come likewise: apt's signatures vouch for those.
"""

from __future__ import annotations

import fcntl
import hashlib
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FETCH_SECONDS_MAX = 300
RETRIES = 5
# The packages that hold what programs link with, by the start of the library's name (Debian 12).
LIBRARIES = {
    "liblz4": "liblz4-1",
    "libzstd": "libzstd1",
    "libsasl2": "libsasl2-2",
    "libssl": "libssl3",
    "libcrypto": "libssl3",
    "libz.": "zlib1g",
    # A browser's, and theirs.
    "libFLAC": "libflac12",
    "libX11": "libx11-6",
    "libXNVCtrl": "libxnvctrl0",
    "libXcomposite": "libxcomposite1",
    "libXdamage": "libxdamage1",
    "libXext": "libxext6",
    "libXfixes": "libxfixes3",
    "libXrandr": "libxrandr2",
    "libasound": "libasound2",
    "libasyncns": "libasyncns0",
    "libatk-1": "libatk1.0-0",
    "libatspi": "libatspi2.0-0",
    "libdav1d": "libdav1d6",
    "libdbus-1": "libdbus-1-3",
    "libdouble-conversion": "libdouble-conversion3",
    "libdrm": "libdrm2",
    "libexpat": "libexpat1",
    "libfontconfig": "libfontconfig1",
    "libfreetype": "libfreetype6",
    "libgbm": "libgbm1",
    "libglib-2": "libglib2.0-0",
    "libgio-2": "libglib2.0-0",
    "libgobject-2": "libglib2.0-0",
    "libharfbuzz-subset": "libharfbuzz-subset0",
    "libharfbuzz.": "libharfbuzz0b",
    "libjpeg": "libjpeg62-turbo",
    "liblcms2": "liblcms2-2",
    "libminizip": "libminizip1",
    "libmp3lame": "libmp3lame0",
    "libmpg123": "libmpg123-0",
    "libnspr4": "libnspr4",
    "libnss3": "libnss3",
    "libnssutil3": "libnss3",
    "libogg": "libogg0",
    "libopenh264": "libopenh264-7",
    "libopenjp2": "libopenjp2-7",
    "libopus": "libopus0",
    "libpulse": "libpulse0",
    "libsmime3": "libnss3",
    "libsndfile": "libsndfile1",
    "libudev": "libudev1",
    "libvorbis.": "libvorbis0a",
    "libvorbisenc": "libvorbisenc2",
    "libxcb.": "libxcb1",
    "libxkbcommon": "libxkbcommon0",
}
ROUNDS = 4
"""Libraries bring others of their own, so deep."""


class NotToBeHad(Exception):
    """A program is neither installed nor to be had; the message says what to do."""


class _ReplacedError(Exception):
    """Debian offers no package of that version any more."""


@dataclass(frozen=True, slots=True)
class Program:
    """A program of pinned packages."""

    name: str
    needed: str
    """The versions that will do, for messages."""
    folder: str = "usr/bin"
    """Where it is in its packages."""

    @property
    def _pins(self) -> Path:
        return Path(__file__).resolve().with_name(f"debian-{self.name}.sha256")

    @property
    def _output(self) -> Path:
        return ROOT / "build" / "tools" / self.name

    def command(self) -> list[str]:
        """The command that runs it, brought first when it is missing. Raises NotToBeHad."""
        installed = shutil.which(self.name)
        if installed is not None:
            return [installed]
        wanted = self._pins.read_text()
        self._output.mkdir(parents=True, exist_ok=True)
        with (self._output / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            stamp = self._output / "stamp"
            if not (stamp.exists() and stamp.read_text() == wanted):
                self._bring([tuple(line.split()) for line in wanted.splitlines()])
                stamp.write_text(wanted)
        return self._command(self._output / "root")

    def _command(self, root: Path) -> list[str]:
        """It, with the libraries unpacked beside it. Raises NotToBeHad when there is none."""
        libraries = sorted({str(path.parent) for path in root.glob("usr/lib/*/**/lib*.so*")})
        program = root / self.folder / self.name
        if not program.exists():
            raise NotToBeHad(f"{program} is missing: remove {self._output} and run this again")
        beside = ["env", f"LD_LIBRARY_PATH={':'.join(libraries)}"] if libraries else []
        return [*beside, str(program)]

    def _bring(self, pins: list[tuple[str, ...]]) -> None:
        work = _begin(self.name, self._output, f"install {self.needed}")
        for sha256, package in pins:
            _pinned(work, package, sha256)
        brought: set[str] = set()
        for _ in range(ROUNDS):
            missing = {
                package
                for name in _not_found(self._command(work / "root"))
                for start, package in LIBRARIES.items()
                if name.startswith(start)
            }
            for package in sorted(missing - brought):
                _unpack(_download(work, package), None)
            brought |= missing
        if lacking := _not_found(self._command(work / "root")):
            raise NotToBeHad(
                f"{self.name} lacks {', '.join(lacking)} here: install {self.needed} by the system's packages"
            )
        shutil.rmtree(self._output / "root", ignore_errors=True)
        (work / "root").rename(self._output / "root")
        shutil.rmtree(work)


def unpacked(name: str) -> Path:
    """The folder with all packages of debian-NAME.sha256, brought first when it is missing.

    Safe to call from several processes at once. Raises NotToBeHad.
    """
    pins = Path(__file__).resolve().with_name(f"debian-{name}.sha256").read_text()
    output = ROOT / "build" / "tools" / name
    output.mkdir(parents=True, exist_ok=True)
    with (output / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        stamp = output / "stamp"
        if not (stamp.exists() and stamp.read_text() == pins):
            work = _begin(name, output, "run this on Debian 12 or a kin of it")
            for sha256, package in (line.split() for line in pins.splitlines()):
                _pinned(work, package, sha256)
            shutil.rmtree(output / "root", ignore_errors=True)
            (work / "root").rename(output / "root")
            shutil.rmtree(work)
            stamp.write_text(pins)
    return output / "root"


def _begin(name: str, output: Path, otherwise: str) -> Path:
    """An empty folder to work in, with apt's lists in it."""
    for tool in ("apt-get", "dpkg-deb"):
        if shutil.which(tool) is None:
            raise NotToBeHad(f"{name} is not installed and there is no {tool} to bring it: {otherwise}")
    work = output / "work"
    shutil.rmtree(work, ignore_errors=True)
    for folder in ("lists/partial", "cache/archives/partial"):
        (work / folder).mkdir(parents=True)
    _apt(work, "update")
    return work


def _pinned(work: Path, package: str, sha256: str) -> None:
    """`name=version` as pinned, or what has replaced it."""
    try:
        _unpack(_download(work, package), sha256)
    except _ReplacedError:
        name, version = package.split("=")
        print(
            f"Debian has replaced {name} {version}: its successor comes, by apt's signature", file=sys.stderr
        )
        _unpack(_download(work, name), None)


def _download(work: Path, package: str) -> Path:
    """The .deb of `name` or `name=version`, alone in a folder of its own."""
    folder = work / re.sub(r"\W", "_", package)
    folder.mkdir(exist_ok=True)
    _apt(work, "download", package, folder=folder)
    found = list(folder.glob("*.deb"))
    if len(found) != 1:
        raise NotToBeHad(
            f"apt delivered {len(found)} files for {package}: check its sources, then run this again"
        )
    return found[0]


def _unpack(package: Path, sha256: str | None) -> None:
    """Into work/root, which is two folders above the package; after a look at its hash when one is pinned."""
    found = hashlib.sha256(package.read_bytes()).hexdigest()
    if sha256 is not None and found != sha256:
        raise NotToBeHad(
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
        raise NotToBeHad(
            f"apt-get {arguments[0]} took over {FETCH_SECONDS_MAX} s: check the network"
        ) from None
    if ran.returncode != 0:
        said = [line for line in ran.stderr.splitlines() if line.startswith("E:")]
        if any(re.search(r"Version '.*' for '.*' was not found", each) for each in said):
            raise _ReplacedError
        raise NotToBeHad(
            f"apt-get {' '.join(arguments)} failed ({said[-1] if said else ran.returncode}): install "
            f"{arguments[-1]} yourself, or give this machine Debian 12's package sources"
        )


def main_of(program: Program) -> int:
    """Print the command, or one line that says what to do."""
    try:
        print(*program.command())
    except NotToBeHad as error:
        print(error, file=sys.stderr)
        return 1
    return 0
