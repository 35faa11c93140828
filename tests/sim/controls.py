"""Negative controls: each breaks one rule of docs/architecture.md, in test builds only, and must be caught.

A checker that was never seen to fail proves nothing. `python -m tests.sim --controls` prints the table.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from agent.background import collection
from agent.background.rewriting.compaction import choice
from agent.background.rewriting.compaction import partition as compaction
from agent.kafka.produce.buffer import Outcome, commit_command
from agent.kafka.produce.driver import ProduceDriver
from coordination import memory_server, snapshot_keeper
from coordination.chain import KeyState
from coordination.kafka_codes import Code
from coordination.log import LogEntry
from coordination.state import (
    cluster,
    fence,
    pending_offsets,
)
from coordination.state.data import FEATURE_LEVEL_MAX
from coordination.state.slices import SliceIndex
from coordination.state.state import HANDLERS, State
from coordination.state.types import Partition
from iceberg import ledger
from iceberg.committer import Committer
from objectstore import collect
from objectstore.collect import Standing, Verdict
from objectstore.collect_merged import MergedCollector
from objectstore.offset_map import OffsetMap
from tests.sim.control_of_clocks import (
    agents_are_ahead,
    agents_clocks_for_files,
    clock_of_one_agent,
    clocks_jump_by_turns,
    one_agent_whose_clock_jumps,
    the_last_word_counts_whenever_it_was,
    the_only_agent_is_right,
)
from tests.sim.control_of_logs import follows_any_log, no_room_is_believed, too_late_again_and_again
from tests.sim.control_of_positions import (
    commits_overtake,
    late_positions_are_taken,
    pending_counts_as_stable,
    positions_come_late,
    positions_without_barrier,
)
from tests.sim.loop import NODE
from tests.sim.patching import patched
from tests.sim.plan import Plan

ACK_BEFORE_PUT_S = 0.5
SMALL_FETCH = 300


@dataclass(frozen=True, slots=True)
class Control:
    """One switch. `anomalies`: any of these names it."""

    name: str
    rule: str
    anomalies: frozenset[str]
    broken: Callable[[], Any]
    """A context manager inside which the rule is broken."""
    reached: Callable[[Plan], bool] = lambda plan: True
    """Whether the plan can come to it at all: seeds that cannot count, and are not run."""
    told: Callable[[Plan], Plan] = lambda plan: plan
    """The seed's plan with a story that chance does not tell."""


def _ack_before_append() -> Any:
    def advance(self: Any) -> None:
        while self._flushes and (self._flushes[0].stored or self._flushes[0].failure is not None):
            if self._flushes[0].failure is not None:
                self._give_up_all(self._flushes[0].failure)
                return
            flush = self._flushes.popleft()
            following: dict[int, int] = {}
            for pending in flush.pending:
                offered = pending.offered
                partition = self._replica.state.partitions[offered.handle]
                base = following.get(offered.handle, partition.high_watermark)
                following[offered.handle] = base + offered.header.last_offset_delta + 1
                self._resolve(pending, Outcome(Code.NONE, base))
            command = commit_command(flush)
            future = self._replica.submit([command], incarnation=flush.chunk.incarnation)
            future.add_done_callback(lambda done: (done.cancelled() or done.exception(), self._completed(0)))

    return patched((ProduceDriver, "_advance", advance))


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

    return patched((ProduceDriver, "_put", put))


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

    return patched((memory_server.MemoryServer, "append", append), (State, "dispatch", dispatch))


def _offset_zero_on_error() -> Any:
    def give_up(self: Any, pendings: Any, error: BaseException) -> None:
        del error
        for pending in pendings:
            self._resolve(pending, Outcome(Code.NONE, 0))

    return patched((ProduceDriver, "_give_up", give_up))


def _skip_on_size_limit() -> Any:
    real = SliceIndex.plan

    def plan(self: Any, offset: int, max_bytes: int) -> Any:
        found = real(self, offset, max_bytes)
        while found and found[0].length > max_bytes:
            found = real(self, found[0].end_offset, max_bytes)
        return found

    return patched((SliceIndex, "plan", plan))


def _commit_without_number_check() -> Any:
    return patched((fence, "refusal", lambda transaction, source, at: None))


def _last_stable_too_high() -> Any:
    return patched((Partition, "last_stable", property(lambda self: self.high_watermark)))


def _trims_through(bound: Callable[[Any], int]) -> Sequence[tuple[Any, str, Any]]:
    """Both whoever proposes to trim and apply, which decides, go so far."""
    return ((cluster, "trim_bound", bound), (snapshot_keeper, "trim_bound", bound))


def _second_newest_snapshot(state: Any) -> int:
    """Without waiting for agents: an entry whose author does not know of it would never be trimmed."""
    return int(state.snapshots[-2].revision) if len(state.snapshots) > 1 else 0


def _retry_looks_for_the_entry() -> Any:
    real = memory_server.MemoryServer.append

    def append(self: Any, incarnation: int, sequence: int, payload: bytes, expected: int) -> Any:
        key = self._state.keys.get(incarnation)
        if key is None or key.revision == expected:
            return real(self, incarnation, sequence, payload, expected)
        if any((each.incarnation, each.sequence) == (incarnation, sequence) for each in self._state.entries):
            return KeyState(key.owner, key.sequence, key.revision)
        return real(self, incarnation, sequence, payload, key.revision)

    return patched((memory_server.MemoryServer, "append", append), *_trims_through(_second_newest_snapshot))


def _abort_keeps_positions() -> Any:
    real = pending_offsets.settle

    def settle(state: Any, group: str, name: str, commit: bool) -> None:
        del commit
        real(state, group, name, True)

    return patched((pending_offsets, "settle", settle))


def _trimmed_too_early() -> Any:
    return patched(*_trims_through(lambda state: state.revision))


def _collected_too_early() -> Any:
    real = collect.judge

    def judge(meta: Any, view: Any, now_ms: int, grace_ms: int) -> Any:
        verdict = real(meta, view, now_ms, grace_ms)
        return Verdict.UNCOMMITTED if verdict is Verdict.UNCOMMITTED_LATELY else verdict

    return patched(
        (collect, "judge", judge),
        (collection.StateView, "standing", lambda self, incarnation: Standing.FENCED),
    )


class _Impatient(MergedCollector):
    """What no state names counts as left behind, though its author may be about to name it."""

    def __init__(self, store: Any, ranges: Any, view: Any, *rest: Any) -> None:
        view.standing = lambda incarnation: Standing.FENCED
        super().__init__(store, ranges, view, *rest)

    def _by_author(self, incarnation: int, meta: Any) -> Verdict:
        del incarnation, meta
        return Verdict.UNCOMMITTED


def _unnamed_merged_collected_early() -> Any:
    return patched((collection, "MergedCollector", _Impatient))


def _committer_without_ledger() -> Any:
    """A committer goes on from what it remembers of its own commits, whatever the table's ledger says."""
    known, commit = ledger.next_offsets, Committer._commit
    memory: dict[tuple[str, bytes], Sequence[int]] = {}

    def next_offsets(metadata: Any, topic_id: bytes) -> Sequence[int]:
        return memory.get((NODE.get(), topic_id)) or known(metadata, topic_id)

    async def remembered(self: Any, work: Any, incarnation: int) -> Any:
        done = await commit(self, work, incarnation)
        memory[NODE.get(), work.topic_id] = work.after
        return done

    return patched((ledger, "next_offsets", next_offsets), (Committer, "_commit", remembered))


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

    return patched((choice, "limit_of", limit_of), (compaction, "limit_of", limit_of))


def _compaction_drops_the_newest() -> Any:
    def find(self: Any) -> Callable[[bytes, int], int]:
        return lambda key, default: self._newest.get(key, default) + (key == b"k1")

    return patched((OffsetMap, "find", property(find)))


def _no_generation_check() -> Any:
    """Who was a member once may commit positions in transactions, whatever the group has become since."""
    return patched((pending_offsets, "_member_refusal", lambda group, message: None))


def _with(*faults: str) -> Callable[[Plan], bool]:
    """Plans with one of these faults."""
    return lambda plan: any(kind in faults for _, _, kind, _ in plan.faults)


def _members_stand_still(plan: Plan) -> Plan:
    """Members stand still in their work for longer than their session, and nothing else goes wrong."""
    return replace(plan, faults=((2.0, 7.5, "pause-member", (0,)), (11.0, 7.5, "pause-member", (0,))))


def _has(**wanted: Any) -> Callable[[Plan], bool]:
    """Plans whose fields are so."""
    return lambda plan: all(getattr(plan, name) == value for name, value in wanted.items())


def _shared(plan: Plan) -> bool:
    return (
        plan.members > 1
        and plan.member_kind == "v2"
        and _with("hold-requests", "pause", "crash-client")(plan)
    )


COPIED_WRONGLY = frozenset({"copied-twice", "copy-lost", "copy-without-position"})
LOST = frozenset({"lost-write", "unseen", "unreadable-chunk", "stuck"})
READ_EARLY = frozenset({"aborted-read", "precommitted-read", "torn-transaction"})
CONTROLS: tuple[Control, ...] = (
    Control(
        "commit-overtakes",
        "a commit that was held back never overwrites a newer one",
        frozenset({"position-back"}),
        lambda: patched(*commits_overtake()),
        _has(solo=True),
    ),
    Control(
        "ack-before-append",
        "1: an ack means durable and ordered",
        LOST | {"inconsistent-offset"},
        _ack_before_append,
    ),
    Control("ack-before-put", "1: an ack means durable and ordered", LOST, _ack_before_put, _with("kill")),
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
        lambda plan: plan.fetch_bytes == SMALL_FETCH and plan.writers > 0,
    ),
    Control(
        "commit-without-number-check",
        "8: the end of another transaction is refused",
        READ_EARLY,
        _commit_without_number_check,
        _with("late-ends"),
    ),
    Control(
        "last-stable-too-high",
        "8: nobody reads what has not ended",
        READ_EARLY | {"G1c-wr"},
        _last_stable_too_high,
    ),
    Control(
        "abort-keeps-positions",
        "8: positions share the transaction's outcome",
        frozenset({"copy-lost"}),
        _abort_keeps_positions,
        lambda plan: bool(plan.relay),
    ),
    Control(
        "no-generation-check",
        "8: positions are their generation's",
        COPIED_WRONGLY,
        _no_generation_check,
        _shared,
        _members_stand_still,
    ),
    Control(
        "pending-counts-as-stable",
        "8: a new member waits for positions under way",
        COPIED_WRONGLY,
        lambda: patched(*pending_counts_as_stable()),
        _with("pause-member-before-end"),
    ),
    Control(
        "follows-any-log",
        "11: a log that was restored is known by its entries",
        frozenset({"restored-unnoticed", "restored-wrong", "state-differs"}),
        lambda: patched(*follows_any_log()),
        told=lambda plan: replace(plan, restored=True),
    ),
    Control(
        "retry-looks-for-the-entry",
        "3: the key says whether an append landed",
        frozenset({"stuck", "duplicate"}),
        _retry_looks_for_the_entry,
        lambda plan: plan.snapshot_entries < 10 and _with("lose-answers", "deafen-log")(plan),
    ),
    Control(
        "no-room-is-believed",
        "3: the key says whether an append landed",
        frozenset({"log-lost"}),
        lambda: patched(*no_room_is_believed()),
        told=too_late_again_and_again,
    ),
    Control(
        "late-positions-are-taken",
        "8: positions of an earlier transaction are not of this one",
        frozenset({"position-foreign", "position-back"}),
        lambda: patched(*late_positions_are_taken()),
        lambda plan: "v1" in (*plan.transactors, plan.relay),
        positions_come_late,
    ),
    Control(
        "positions-without-barrier",
        "5: reads that promise freshness use a read barrier",
        frozenset({"stale-position"}),
        lambda: patched(*positions_without_barrier()),
        lambda plan: "v2" in (*plan.transactors, plan.relay) and plan.log_s[1] > 0,
    ),
    Control("trimmed-too-early", "6, 9: the log is trimmed behind snapshots", LOST, _trimmed_too_early),
    Control("collected-too-early", "9: nothing goes that may be referenced", LOST, _collected_too_early),
    Control(
        "unnamed-merged-object-collected-early",
        "9: nothing goes that may be referenced",
        LOST,
        _unnamed_merged_collected_early,
        lambda plan: plan.store_s[1] > 0,
    ),
    Control(
        "committer-without-ledger",
        "a table commits its rows with the ledger that says so",
        frozenset({"table-doubled", "table-differs"}),
        _committer_without_ledger,
    ),
    Control(
        "compaction-overtakes-tables",
        "the table of a compacted topic is its history",
        frozenset({"table-differs"}),
        _compaction_overtakes_tables,
        _has(keepers=True),
    ),
    Control(
        "compaction-drops-newest",
        "the newest of each key stays",
        frozenset({"compaction-lost"}),
        _compaction_drops_the_newest,
        _has(keepers=True),
    ),
    Control(
        "clock-of-one-agent-deletes",
        "15: time that deletes is agreed on",
        frozenset({"too-early"}),
        lambda: patched(*clock_of_one_agent()),
        _with("clock-jumps"),
    ),
    Control(
        "only-agent-is-right",
        "15: an agent that is alone is doubted",
        frozenset({"too-early"}),
        lambda: patched(*the_only_agent_is_right()),
        _has(level=FEATURE_LEVEL_MAX),
        told=one_agent_whose_clock_jumps,
    ),
    Control(
        "last-word-counts",
        "15: two that are wrong by turns are no witnesses for each other",
        frozenset({"too-early", "lost-write", "table-differs"}),
        lambda: patched(*the_last_word_counts_whenever_it_was()),
        _has(level=FEATURE_LEVEL_MAX),
        told=clocks_jump_by_turns,
    ),
    Control(
        "agents-clocks-for-files",
        "15: what the store stamps is compared with what the store stamps",
        frozenset({"table-differs", "stuck"}),
        lambda: patched(*agents_clocks_for_files()),
        told=agents_are_ahead,
    ),
    Control(
        "apply-depends-on-the-agent",
        "apply is pure",
        frozenset({"state-differs", "inconsistent-offset", "tiling"}),
        _apply_depends_on_the_agent,
    ),
)
