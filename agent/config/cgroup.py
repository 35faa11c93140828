"""How much memory this process may use, by its control group (Linux, v1 and v2).

A group's limit counts for all below it: the least one on the way to the root is what holds. In a container
the group's own path may lie outside of what is mounted; the files at the mount's root are its own then.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path, PurePosixPath

ROOT = Path("/")
V1_NONE_MIN = 1 << 60  # v1 says "no limit" with the largest multiple of a page below 2⁶³
FILES = {"": "memory.max", "memory": "memory.limit_in_bytes"}  # by controller; v2 names none


def memory_bytes(root: Path = ROOT) -> int | None:
    """The limit, bytes; None where there is none, or no control group. `root`: where /proc and /sys are."""
    return min(_limits(root), default=None)


def _limits(root: Path) -> Iterator[int]:
    try:
        lines = (root / "proc/self/cgroup").read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return
    for line in lines:
        if line.count(":") < 2:
            continue
        _, controllers, path = line.split(":", 2)
        for controller in FILES.keys() & set(controllers.split(",")):
            mount = root / "sys/fs/cgroup" / controller
            for folder in _up(mount, path):
                yield from _limit(folder / FILES[controller])


def _up(mount: Path, path: str) -> Iterator[Path]:
    """The folders from the group's own to the mount's root."""
    own = PurePosixPath(path.lstrip("/"))
    if ".." not in own.parts:
        yield from (mount / each for each in (own, *own.parents))


def _limit(file: Path) -> Iterator[int]:
    try:
        text = file.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return
    if text.isdecimal() and int(text) < V1_NONE_MIN:
        yield int(text)
