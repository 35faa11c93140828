"""A part of one processor for a process and its children, by cgroups of the machine's root."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOTS = (Path("/sys/fs/cgroup/cpu"), Path("/sys/fs/cgroup"))
"""Of version 1, where the controller has a tree of its own, and of version 2."""
PERIOD_US = 10_000
"""A tenth of the usual: who has used its share up waits milliseconds, not a twentieth of a second."""
_numbers = itertools.count(1)


@contextmanager
def shared(pid: int, share: float) -> Iterator[None]:
    """While it lasts, what `pid` and its children of now and later take together is at most `share` of a
    core. Raises OSError where cgroups cannot be made: without root, or without the controller.
    """
    group = _made(f"floe-share-{os.getpid()}-{next(_numbers)}")
    try:
        _limit(group, int(share * PERIOD_US))
        for member in family(pid):
            (group / "cgroup.procs").write_text(str(member))
        yield
    finally:
        for each in (group / "cgroup.procs").read_text().split():
            (group.parent / "cgroup.procs").write_text(each)
        group.rmdir()


def family(pid: int) -> list[int]:
    """The process and all below it."""
    below: list[int] = [pid]
    for each in below:
        for children in Path(f"/proc/{each}/task").glob("*/children"):
            below += map(int, children.read_text().split())
    return below


def _made(name: str) -> Path:
    for root in ROOTS:
        known = root / "cgroup.controllers"
        if (root / "cpu.shares").exists() or (known.exists() and "cpu" in known.read_text().split()):
            group = root / name
            group.mkdir()
            return group
    raise OSError(f"none of {', '.join(map(str, ROOTS))} has the controller `cpu` of cgroups")


def _limit(group: Path, quota_us: int) -> None:
    if (group / "cpu.max").exists():
        (group / "cpu.max").write_text(f"{quota_us} {PERIOD_US}")
        return
    (group / "cpu.cfs_period_us").write_text(str(PERIOD_US))
    (group / "cpu.cfs_quota_us").write_text(str(quota_us))
