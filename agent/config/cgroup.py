"""How much memory and how many cores this process may use, by its control group (Linux, v1 and v2).

A group's limit counts for all below it: the least one on the way to the root is what holds. In a container
the group's own path may lie outside of what is mounted; the files at the mount's root are its own then.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from pathlib import Path, PurePosixPath

ROOT = Path("/")
V1_NONE_MIN = 1 << 60  # v1 says "no limit" with the largest multiple of a page below 2⁶³
FILES = {"": "memory.max", "memory": "memory.limit_in_bytes"}  # by controller; v2 names none
QUOTAS = {"": ("cpu.max",), "cpu": ("cpu.cfs_quota_us", "cpu.cfs_period_us")}  # time of processors, by period


def memory_bytes(root: Path = ROOT) -> int | None:
    """The limit, bytes; None where there is none, or no control group. `root`: where /proc and /sys are."""
    found = (_limit(folder / FILES[controller]) for controller, folder in _folders(root, FILES))
    return min((limit for limit in found if limit is not None), default=None)


def cores(root: Path = ROOT) -> int:
    """Whole cores that this process may use: those it may run on, or fewer by a quota; 1 at least."""
    shares = [float(len(os.sched_getaffinity(0)))]
    for controller, folder in _folders(root, QUOTAS):
        texts = [text for name in QUOTAS[controller] for text in _text(folder / name).split()]
        if len(texts) == 2 and all(text.isdecimal() and int(text) for text in texts):
            shares.append(int(texts[0]) / int(texts[1]))
    return max(1, int(min(shares)))


def _folders(root: Path, controllers: Collection[str]) -> Iterator[tuple[str, Path]]:
    """Of the group and those above it, for each of these controllers that has any."""
    try:
        lines = (root / "proc/self/cgroup").read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return
    for line in lines:
        if line.count(":") < 2:
            continue
        _, names, path = line.split(":", 2)
        for controller in set(controllers) & set(names.split(",")):
            for folder in _up(root / "sys/fs/cgroup" / controller, path):
                yield controller, folder


def _up(mount: Path, path: str) -> Iterator[Path]:
    """The folders from the group's own to the mount's root."""
    own = PurePosixPath(path.lstrip("/"))
    if ".." not in own.parts:
        yield from (mount / each for each in (own, *own.parents))


def _limit(file: Path) -> int | None:
    text = _text(file)
    return int(text) if text.isdecimal() and int(text) < V1_NONE_MIN else None


def _text(file: Path) -> str:
    """Empty where there is none."""
    try:
        return file.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""
