"""Negative controls: each breaks one rule of docs/architecture.md, in test builds only, and must be caught.

A checker that was never seen to fail proves nothing. `python -m tests.sim --controls` prints the table.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from agent import collection
from agent.compaction import choice
from agent.compaction import partition as compaction
from agent.produce.buffer import Outcome
from agent.produce.driver import ProduceDriver, commit_command
from coordination import memory_server
from coordination.kafka_codes import Code
from coordination.log import LogEntry
from coordination.state import cluster, producers, tables
from coordination.state.slices import SliceIndex
from coordination.state.state import HANDLERS, State
from objectstore import collect
from objectstore.collect import Standing, Verdict
from objectstore.offset_map import OffsetMap

ACK_BEFORE_PUT_S = 0.5


@dataclass(frozen=True, slots=True)
class Control:
    """One switch. `anomalies`: any of these names it."""

    name: str
    rule: str
    anomalies: frozenset[str]
    broken: Callable[[], Any]
    """A context manager inside which the rule is broken."""


@contextmanager
def _patched(*changes: tuple[Any, str, Any]) -> Iterator[None]:
    saved = [(place, name, getattr(place, name)) for place, name, _ in changes]
    for place, name, value in changes:
        setattr(place, name, value)
    try:
        yield
    finally:
        for place, name, value in saved:
            setattr(place, name, value)


def _no_dedup() -> Any:
    real = producers.admit

    def admit(partition: Any, entry: Any, producer_id: int, epoch: int, sequence: int, count: int) -> Any:
        if entry is not None and epoch == entry.epoch:
            return entry, 0, partition.high_watermark
        return real(partition, entry, producer_id, epoch, sequence, count)

    return _patched((producers, "admit", admit))


def _ack_before_append() -> Any:
    def advance(self: Any) -> None:
        while self._line and (self._line[0].stored or self._line[0].failure is not None):
            if self._line[0].failure is not None:
                self._fail_line(self._line[0].failure)
                return
            flush = self._line.popleft()
            following: dict[int, int] = {}
            for pending in flush.pending:
                offered = pending.offered
                partition = self._replica.state.partitions[offered.handle]
                base = following.get(offered.handle, partition.high_watermark)
                following[offered.handle] = base + offered.header.last_offset_delta + 1
                self._resolve(pending, Outcome(Code.NONE, base))
            command = commit_command(flush)
            future = self._replica.submit([command], incarnation=flush.chunk.incarnation)
            future.add_done_callback(lambda done: (done.cancelled() or done.exception(), self._completed()))

    return _patched((ProduceDriver, "_advance", advance))


def _ack_before_put() -> Any:
    real = ProduceDriver._put

    async def put(self: Any, flush: Any) -> None:
        store = self._put_chunk

        async def later(chunk: Any, parts: Any) -> None:
            kept = [bytes(part) for part in parts]

            async def write() -> None:
                await asyncio.sleep(ACK_BEFORE_PUT_S)
                await store(chunk, kept)

            self._late = asyncio.get_running_loop().create_task(write())

        self._put_chunk = later
        try:
            await real(self, flush)
        finally:
            self._put_chunk = store

    return _patched((ProduceDriver, "_put", put))


def _no_fence() -> Any:
    def append(self: Any, incarnation: int, sequence: int, payload: bytes, expected: int) -> Any:
        del expected
        revision = self._bump()
        self._state.entries.append(LogEntry(revision, incarnation, sequence, payload))
        key = self._state.keys.get(incarnation)
        if key is not None:
            key.sequence, key.revision = sequence, revision
        return revision

    def dispatch(self: Any, commands: Any, kinds: Any, at: Any) -> Any:
        return [
            HANDLERS[kind](self, getattr(command, kind), at)
            for command, kind in zip(commands, kinds, strict=True)
        ]

    return _patched((memory_server.MemoryServer, "append", append), (State, "dispatch", dispatch))


def _offset_zero_on_error() -> Any:
    def give_up(self: Any, pendings: Any, error: BaseException) -> None:
        del error
        for pending in pendings:
            self._resolve(pending, Outcome(Code.NONE, 0))

    return _patched((ProduceDriver, "_give_up", give_up))


def _skip_on_size_limit() -> Any:
    real = SliceIndex.plan

    def plan(self: Any, offset: int, max_bytes: int) -> Any:
        return [ref for ref in real(self, offset, max_bytes) if ref.length <= max_bytes]

    return _patched((SliceIndex, "plan", plan))


def _trimmed_too_early() -> Any:
    return _patched((cluster, "trim_bound", lambda state: state.revision))


def _collected_too_early() -> Any:
    real = collect.judge

    def judge(meta: Any, view: Any, now_ms: int, grace_ms: int) -> Any:
        verdict = real(meta, view, now_ms, grace_ms)
        return Verdict.UNCOMMITTED if verdict is Verdict.UNCOMMITTED_LATELY else verdict

    return _patched(
        (collect, "judge", judge),
        (collection.StateView, "standing", lambda self, incarnation: Standing.FENCED),
    )


def _table_without_compare() -> Any:
    real = HANDLERS["commit_table"]

    def commit_table(state: Any, message: Any, at: Any) -> Any:
        known = state.tables.get((message.namespace, message.name))
        message.expected = known.metadata_location if known is not None else ""
        message.claim = ""
        return tables.commit_table(state, message, at)

    @contextmanager
    def broken() -> Iterator[None]:
        HANDLERS["commit_table"] = commit_table
        try:
            yield
        finally:
            HANDLERS["commit_table"] = real

    return broken()


def _apply_depends_on_the_agent() -> Any:
    real = HANDLERS["commit_chunk"]
    states: list[Any] = []

    def commit_chunk(state: Any, message: Any, at: Any) -> Any:
        if not any(each is state for each in states):
            states.append(state)
        if states[0] is not state and at.revision % 50 == 0 and message.partition:
            state.partitions[message.partition[0]].high_watermark += 1
        return real(state, message, at)

    @contextmanager
    def broken() -> Iterator[None]:
        HANDLERS["commit_chunk"] = commit_chunk
        try:
            yield
        finally:
            HANDLERS["commit_chunk"] = real

    return broken()


def _compaction_overtakes_tables() -> Any:
    def limit_of(state: Any, partition: Any, *, tables: bool) -> int:
        del state, tables
        return int(partition.last_stable)

    return _patched((choice, "limit_of", limit_of), (compaction, "limit_of", limit_of))


def _compaction_drops_the_newest() -> Any:
    def find(self: Any) -> Callable[[bytes, int], int]:
        return lambda key, default: self._newest.get(key, default) + (key == b"k1")

    return _patched((OffsetMap, "find", property(find)))


LOST = frozenset({"lost-write", "unseen", "unreadable-chunk", "stuck"})
CONTROLS: tuple[Control, ...] = (
    Control("no-dedup", "4: a retry is recognised wherever it lands", frozenset({"duplicate"}), _no_dedup),
    Control(
        "ack-before-append",
        "1: an ack means durable and ordered",
        LOST | {"inconsistent-offset"},
        _ack_before_append,
    ),
    Control("ack-before-put", "1: an ack means durable and ordered", LOST, _ack_before_put),
    Control("no-fence", "2: the commit itself fences", LOST | {"state-differs", "duplicate"}, _no_fence),
    Control(
        "offset-zero-on-error",
        "3: an error carries offset -1",
        LOST | {"inconsistent-offset", "nonmonotonic-send"},
        _offset_zero_on_error,
    ),
    Control(
        "skip-on-size-limit",
        "7: limits cut and never skip",
        LOST | {"poll-skip", "internal-poll-skip"},
        _skip_on_size_limit,
    ),
    Control("trimmed-too-early", "6, 9: the log is trimmed behind snapshots", LOST, _trimmed_too_early),
    Control("collected-too-early", "9: nothing goes that may be referenced", LOST, _collected_too_early),
    Control(
        "table-without-compare",
        "the table's pointer moves by compare-and-swap",
        frozenset({"table-doubled", "table-differs"}),
        _table_without_compare,
    ),
    Control(
        "compaction-overtakes-tables",
        "the table of a compacted topic is its history",
        frozenset({"table-differs"}),
        _compaction_overtakes_tables,
    ),
    Control(
        "compaction-drops-newest",
        "the newest of each key stays",
        frozenset({"compaction-lost"}),
        _compaction_drops_the_newest,
    ),
    Control(
        "apply-depends-on-the-agent",
        "apply is pure",
        frozenset({"state-differs", "inconsistent-offset", "tiling"}),
        _apply_depends_on_the_agent,
    ),
)
