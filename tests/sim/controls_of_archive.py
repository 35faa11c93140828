"""Log in the bucket with its rules broken: an entry is left out, a successor reads nothing; objects go."""

from __future__ import annotations

from typing import Any

from coordination.archive.backed import Backed
from coordination.archive.keeper import LogArchive
from coordination.archive.tail import Tail
from coordination.log import LogEntry
from tests.sim.controls import Control
from tests.sim.patching import patched


def _nobody_confirms() -> tuple[Any, str, Any]:
    async def confirm(self: Any, after: int, entries: list[LogEntry]) -> None:
        return None

    return LogArchive, "_confirm", confirm


def _leaves_one_out() -> tuple[tuple[Any, str, Any], ...]:
    """The first of what waits is not in the piece, and no other agent is asked: either rule alone holds."""
    usual = Tail.take

    def take(self: Any, above: int, bytes_max: int) -> list[LogEntry]:
        taken = usual(self, above, bytes_max)
        return taken[1:] if len(taken) > 1 else taken

    return ((Tail, "take", take), _nobody_confirms())


def _reads_nothing() -> tuple[tuple[Any, str, Any], ...]:
    """Whoever takes over goes on with what it applies from now on, and asks nobody about it."""

    async def read(self: Any, head: Any, through: int, piece_bytes: int) -> tuple[list[LogEntry], int]:
        return [], piece_bytes

    return ((LogArchive, "_read", read), _nobody_confirms())


def _collects_at_once() -> tuple[tuple[Any, str, Any], ...]:
    """Nothing is waited for before what the log let go of is deleted."""

    async def catches_up(self: Any) -> str:
        return ""

    return ((Backed, "catches_up", catches_up),)


WRONG = frozenset({"archive-differs"})
ARCHIVE = (
    Control(
        "archive-leaves-one-out",
        "archive: what the log has, in its order",
        WRONG,
        lambda: patched(*_leaves_one_out()),
        lambda plan: plan.archived,
    ),
    Control(
        "archive-successor-reads-nothing",
        "archive: a successor goes on behind what is there",
        WRONG,
        lambda: patched(*_reads_nothing()),
        lambda plan: plan.archived,
    ),
    Control(
        "collection-does-not-wait",
        "collection: what goes is named by no log that a restore would come to",
        frozenset({"deleted-too-early"}),
        lambda: patched(*_collects_at_once()),
        lambda plan: plan.archived,
    ),
)
