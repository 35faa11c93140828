"""Rules of deleted topics broken: what they hold goes once, however many entries it takes."""

from __future__ import annotations

from typing import Any

from agent.background.expiry import topics
from coordination.replica import clock_watch
from coordination.state import deleted, leaving
from coordination.state.data import StateData
from coordination.state.levels import LEAVING, SOFT_DELETE
from coordination.state.types import Partition, Topic
from tests.sim.controls import LOST, Control, patched


def _lets_go_twice() -> tuple[tuple[Any, str, Any], ...]:
    """Chunks that other topics' records are in lose their references too."""
    real = leaving._let_go

    def let_go(state: StateData, partition: Partition, rows: int, now_ms: int) -> None:
        serials = list(partition.slices.serials())[:rows]
        real(state, partition, rows, now_ms)
        state.chunks.release([one for one in serials if one in state.chunks.by_serial], now_ms)

    return ((leaving, "_let_go", let_go),)


def _collected() -> tuple[tuple[Any, str, Any], ...]:
    """The chunks of a topic that can come back are collected."""
    real = deleted.keep

    def keep(state: StateData, topic: Topic, *others: Any) -> None:
        real(state, topic, *others)
        serials = [serial for partition in topic.partitions for serial in partition.slices.serials()]
        state.chunks.garbage.update((state.chunks.by_serial[each].id, state.clock_ms) for each in serials)

    return ((deleted, "keep", keep),)


def _purged_early() -> tuple[tuple[Any, str, Any], ...]:
    """A clock that is an hour ahead lets go of topics whose time is not over."""
    real = clock_watch.deletion_ms
    return (
        (deleted, "too_soon", lambda state, judged_ms: None),
        (topics, "deletion_ms", lambda state, now_ms: real(state, now_ms) + 3_600_000),
    )


DELETION = (
    Control(
        "deleted-topic-collected",
        "9: nothing goes that may be referenced",
        LOST | {"mortal"},
        lambda: patched(*_collected()),
        lambda plan: plan.mortal and plan.level >= SOFT_DELETE,
    ),
    Control(
        "deleted-topic-purged-early",
        "15: time that deletes is agreed on",
        frozenset({"too-early"}),
        lambda: patched(*_purged_early()),
        lambda plan: plan.mortal and plan.level >= SOFT_DELETE,
    ),
    Control(
        "leaving-lets-go-twice",
        "9: nothing goes that may be referenced",
        LOST,
        lambda: patched(*_lets_go_twice()),
        lambda plan: plan.mortal and plan.level >= LEAVING,
    ),
)
