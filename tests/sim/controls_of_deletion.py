"""Rules of deleted topics and records broken: what they hold goes once, when its time is over."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from agent.background.expiry import records, topics
from coordination.replica import clock_watch
from coordination.state import deleted, held, leaving
from coordination.state.data import StateData
from coordination.state.levels import LEAVING, RECORDS_GRACE, SOFT_DELETE
from coordination.state.types import At, Partition, Topic
from objectstore.naming import ChunkId
from objectstore.removal import Removal
from tests.sim.controls import LOST, Control
from tests.sim.patching import patched
from tests.sim.plan import Plan


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


def _records_collected() -> tuple[tuple[Any, str, Any], ...]:
    """The chunks of records that can come back are collected."""
    real = held.move

    def move(state: StateData, partition: Partition, offset: int, at: At) -> None:
        real(state, partition, offset, at)
        rows = partition.slices.oldest(len(partition.slices), 1 << 62)
        gone = {each.chunk for each in rows if each.end_offset <= offset and isinstance(each.chunk, ChunkId)}
        state.chunks.garbage.update((each, at.now_ms) for each in gone)

    return ((held, "move", move),)


def _records_purged_early() -> tuple[tuple[Any, str, Any], ...]:
    """A clock that is an hour ahead lets go of records whose time is not over."""
    real = clock_watch.deletion_ms
    return (
        (held, "too_soon", lambda state, judged_ms: None),
        (records, "deletion_ms", lambda state, now_ms: real(state, now_ms) + 3_600_000),
    )


HOLDS = tuple((at, 1.0, "hold-object", (0,)) for at in (2.0, 3.0, 4.0))


def _with_holds(plan: Plan) -> Plan:
    return replace(plan, faults=tuple(sorted((*plan.faults, *HOLDS))))


def _kept_keep_others() -> tuple[tuple[Any, str, Any], ...]:
    """A page of objects of which the store keeps one is given up as a whole, and begun anew each time."""

    async def together(self: Removal, keys: Sequence[str], failure: Any) -> set[str]:
        await self._remove(keys)
        return set(keys)

    return ((Removal, "_together", together),)


DELETION = (
    Control(
        "kept-objects-keep-others",
        "16: one sick object stops no healthy one",
        frozenset({"garbage-stays"}),
        lambda: patched(*_kept_keep_others()),
        told=_with_holds,
    ),
    Control(
        "held-records-collected",
        "9: nothing goes that may be referenced",
        LOST | {"mortal"},
        lambda: patched(*_records_collected()),
        lambda plan: plan.mortal and plan.level >= RECORDS_GRACE,
    ),
    Control(
        "held-records-purged-early",
        "15: time that deletes is agreed on",
        frozenset({"too-early"}),
        lambda: patched(*_records_purged_early()),
        lambda plan: plan.mortal and plan.level >= RECORDS_GRACE,
    ),
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
