"""Transactions through real bytes: merged, compacted, deleted below and taken into a table, in any order.

The model is a list per partition of what was written and by which transaction. A reader of committed data,
who leaves out what is aborted as Kafka's Java client does, gets every committed record below the last stable
offset but what compaction may take, and gets to that offset; the table shows each transaction whole or not
at all, and in the end every committed record once.
"""

from __future__ import annotations

import asyncio
import io
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow.parquet as pq
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from agent.background.rewriting.compaction.choice import Rules
from agent.background.rewriting.compaction.partition import PartitionCompaction
from agent.net.wire.generated import fetch as f
from agent.net.wire.generated import produce as p
from coordination.clock import SystemClock
from coordination.commands import MoveLogStart
from coordination.memory_server import MemoryServer
from coordination.state.types import Done, Partition
from iceberg import head, manifests
from iceberg.committer import Committer, CommitterOptions
from iceberg.committer import Parts as TableParts
from iceberg.warehouse import Warehouse
from objectstore.adapters.memory import MemoryStore
from objectstore.batch import NewRecord, Record, build, peek, records, split
from tests.unit.agent.background.compaction_rig import NOW, At, compaction
from tests.unit.agent.background.merging_rig import merge_rows
from tests.unit.agent.kafka.admin_calls import create, topic
from tests.unit.agent.kafka.transactions_rig import Txn
from tests.unit.agent.rig import Agent, start_agent

NAMES, PARTITIONS = ("x", "y"), 2
SEGMENT_BYTES = 700
ABORT = b"\0\0\0\0"  # key of a marker: version 0, type 0
RULES = Rules(0, 1, 0, 1 << 60, 1000)
WAREHOUSE = Warehouse.of("memory://store", "memory://store/tables")
SMALL = CommitterOptions(rows_per_commit_max=6, rows_per_file_max=3, bytes_per_commit_max=500)

PLACE = st.integers(0, PARTITIONS - 1)
KEYS = st.lists(st.sampled_from((b"a", b"b", b"c")), min_size=1, max_size=3).map(tuple)
STEP = st.one_of(
    st.tuples(st.just("send"), st.sampled_from(NAMES), PLACE, KEYS),
    st.tuples(st.just("send"), st.sampled_from(NAMES), PLACE, KEYS),
    st.tuples(st.just("plain"), PLACE, KEYS),
    st.tuples(st.just("end"), st.sampled_from(NAMES), st.booleans()),
    st.tuples(st.just("end"), st.sampled_from(NAMES), st.booleans()),
    st.tuples(st.just("merge"), PLACE, st.integers(1, 6)),
    st.tuples(st.just("compact"), PLACE),
    st.tuples(st.just("compact"), PLACE),
    st.tuples(st.just("table"), st.integers(1, 4)),
    st.tuples(st.just("delete"), PLACE, st.floats(0, 1)),
)


@dataclass(eq=False)
class Written:
    """One transaction. `outcome`: None while it is open."""

    outcome: bool | None = None


@dataclass
class Row:
    """A record as it was written; `by` is None outside of transactions."""

    key: bytes
    value: bytes
    by: Written | None

    @property
    def committed(self) -> bool:
        """Whether readers may see it."""
        return self.by is None or self.by.outcome is True


@dataclass
class Log:
    """One partition: element n is what is at offset n, None for a marker."""

    rows: list[Row | None] = field(default_factory=list)
    start: int = 0
    compacted_to: int = 0

    @property
    def stable(self) -> int:
        """The first offset of an open transaction, or the end."""
        for offset, row in enumerate(self.rows):
            if row is not None and row.by is not None and row.by.outcome is None:
                return max(offset, self.start)
        return len(self.rows)

    def committed(self, end: int) -> dict[int, Row]:
        """What was committed below `end`, by offset."""
        return {at: row for at, row in enumerate(self.rows[:end]) if row is not None and row.committed}

    def judge(self, found: Iterable[Record]) -> None:
        """Compare what a reader got from the log start on."""
        wanted = {at: row for at, row in self.committed(self.stable).items() if at >= self.start}
        got = {each.offset: (each.key, each.value) for each in found}
        assert got.keys() <= wanted.keys(), "an aborted, deleted or open record was read"
        assert all(got[at] == (wanted[at].key, wanted[at].value) for at in got)
        for at in wanted.keys() - got.keys():
            later = range(at + 1, self.compacted_to)
            assert any(n in wanted and wanted[n].key == wanted[at].key for n in later), f"{at} is lost"


class Play:
    """One agent, one topic, two producers, one committer of the table."""

    def __init__(self, agent: Agent, store: MemoryStore) -> None:
        self.agent, self.store = agent, store
        self.logs = [Log() for _ in range(PARTITIONS)]
        self.producers = {name: Txn(agent, name) for name in NAMES}
        self.open: dict[str, Written] = {}
        services = agent.services
        self.committer = Committer(
            TableParts(
                services.replica,
                services.reader,
                services.merged,
                store,
                WAREHOUSE,
                SystemClock(),
                SMALL,
            ),
            "t",
        )

    def partition(self, index: int) -> Partition:
        """As the agent has it."""
        return self.agent.services.replica.state.topics["t"].partitions[index]

    async def send(self, name: str, index: int, keys: tuple[bytes, ...]) -> None:
        """One batch of a transaction."""
        producer, by = self.producers[name], self.open.setdefault(name, Written())
        sequence = producer.sequences.get(index, 0)
        producer.sequences[index] = sequence + len(keys)
        pair = {"producer_id": producer.pair[0], "producer_epoch": producer.pair[1]}
        await self._write(index, keys, by, name, **pair, base_sequence=sequence, transactional=True)

    async def plain(self, index: int, keys: tuple[bytes, ...]) -> None:
        """One batch outside of transactions."""
        await self._write(index, keys, None, None)

    async def _write(
        self, index: int, keys: tuple[bytes, ...], by: Written | None, name: str | None, **pair: Any
    ) -> None:
        log = self.logs[index]
        rows = [Row(key, b"%d" % (len(log.rows) + n), by) for n, key in enumerate(keys)]
        raw = build([NewRecord(NOW, row.key, row.value) for row in rows], **pair)
        data = p.TopicProduceData("t", partition_data=[p.PartitionProduceData(index, memoryview(raw))])
        answer = await self.agent.call("Produce", p.ProduceRequest(name, -1, 5_000, [data]), 12)
        row = answer.responses[0].partition_responses[0]
        assert (row.error_code, row.base_offset) == (0, len(log.rows))
        log.rows += rows

    async def end(self, name: str, commit: bool) -> None:
        """EndTxn."""
        ended = self.open.pop(name, None)
        if ended is None:
            return
        assert await self.producers[name].end(commit=commit) == 0
        ended.outcome = commit
        for log in self.logs:
            if any(row is not None and row.by is ended for row in log.rows):
                log.rows.append(None)

    async def merge(self, index: int, rows: int) -> None:
        """Some of the oldest rows of the tail."""
        await merge_rows(self.agent, self.store, rows, index=index)

    async def compact(self, index: int) -> None:
        """Whatever the table has."""
        parts = replace(
            compaction(self.agent, self.store, At(NOW), segment_bytes=SEGMENT_BYTES)._parts, tables=True
        )
        incarnation = self.agent.services.replica.incarnation
        done = await PartitionCompaction(parts, self.partition(index), RULES, incarnation, 1000).run()
        if done is not None:
            assert done.swapped
            self.logs[index].compacted_to = done.cleaned_to

    async def delete(self, index: int, part: float) -> None:
        """DeleteRecords."""
        log = self.logs[index]
        log.start = max(log.start, int(part * len(log.rows)))
        move = MoveLogStart(partition=[self.partition(index).handle], offset=[log.start])
        assert isinstance(await self.agent.services.replica.propose(move), Done)

    async def table(self, commits: int) -> None:
        """At most so many commits of the table."""
        for _ in range(commits):
            if await self.committer.run_once() is None:
                break
            await self.judge_table()

    async def judge_table(self, whole: bool = False) -> None:
        """Each committed transaction is there whole or not at all; with `whole` all of them are."""
        shown = await self.shown()
        assert len(shown) == len(dict.fromkeys(shown)), "a row is there twice"
        for index, offset, value in shown:
            row = self.logs[index].rows[offset]
            assert row is not None
            assert (row.committed, row.value) == (True, value)
        there = {(index, offset) for index, offset, _ in shown}
        begun = {row.by for i, log in enumerate(self.logs) for at, row in log.committed(1 << 30).items()
                 if (i, at) in there}  # fmt: skip
        for index, log in enumerate(self.logs):
            for at, row in log.committed(1 << 30).items():
                if at < log.start or (index, at) in there:
                    continue
                assert not whole, f"{at} of {index} is not in the table"
                assert row.by is None or row.by not in begun, "a transaction is there in part"

    async def shown(self) -> list[tuple[int, int, bytes]]:
        """(partition, offset, value) of every row of the table."""
        location = head.pointer(self.agent.services.replica.state, ("floe", "t"))
        at = await head.load(self.store, WAREHOUSE, location)
        found = []
        for manifest in at.manifests:
            content = await self.store.get(WAREHOUSE.key(manifest.manifest_path))
            for file in manifests.data_files(manifest, content):
                rows = pq.read_table(io.BytesIO(await self.store.get(WAREHOUSE.key(file)))).to_pylist()
                found += [
                    (r["kafka"]["partition"], r["kafka"]["offset"], r["value"]["__raw__"]) for r in rows
                ]
        return found

    async def judge_readers(self, bytes_max: int) -> None:
        """Every partition, from its log start."""
        for index, log in enumerate(self.logs):
            log.judge(await self.read(index, log.start, log.stable, bytes_max))

    async def read(self, index: int, offset: int, stable: int, bytes_max: int) -> list[Record]:
        """What a consumer of committed data gets from an offset on, until the last stable offset."""
        found: list[Record] = []
        while offset < stable:
            part = f.FetchPartition(index, fetch_offset=offset, partition_max_bytes=bytes_max)
            request = f.FetchRequest(
                max_wait_ms=0,
                max_bytes=bytes_max,
                isolation_level=1,
                topics=[f.FetchTopic("t", partitions=[part])],
            )
            answer = (await self.agent.call("Fetch", request, 12)).responses[0].partitions[0]
            assert (answer.error_code, answer.last_stable_offset) == (0, stable)
            got, following = committed(answer, offset)
            assert following > offset, f"stuck at {offset} below {stable}"
            found, offset = found + got, following
        assert offset == stable
        return found


def committed(answer: f.PartitionData, offset: int) -> tuple[list[Record], int]:
    """The records that Kafka's Java client hands out, and where it fetches next (CompletedFetch)."""
    content: Any = answer.records or b""
    raw = memoryview(bytes(content))
    coming = sorted((each.first_offset, each.producer_id) for each in answer.aborted_transactions or ())
    out: set[int] = set()
    found: list[Record] = []
    for position, size in split(raw) if raw else ():
        header, content = peek(raw, position), raw[position : position + size]
        while coming and coming[0][0] <= header.last_offset:
            out.add(coming.pop(0)[1])
        if header.control:
            (marker,) = records(content)
            if marker.key == ABORT:
                out.discard(header.producer_id)
        elif not (header.transactional and header.producer_id in out):
            found += [each for each in records(content) if each.offset >= offset]
        offset = max(offset, header.last_offset + 1)
    return found, offset


async def story(steps: list[tuple[Any, ...]], policy: str, bytes_max: int) -> None:
    """Play the steps, and look at everything after each that rewrites something."""
    store = MemoryStore()
    agent = await start_agent(MemoryServer(), store)
    try:
        await create(agent, topic("t", PARTITIONS, cleanup_policy=policy))
        play = Play(agent, store)
        for producer in play.producers.values():
            assert await producer.init() == 0
        for name, *given_ in steps:
            if name != "compact" or policy == "compact":
                await getattr(play, name)(*given_)
            if name not in ("send", "plain", "table"):
                await play.judge_readers(bytes_max)
        for name in NAMES:
            await play.end(name, commit=True)
        await play.table(len(steps) * 9)
        await play.judge_table(whole=True)
        await play.judge_readers(bytes_max)
    finally:
        await agent.stop()


BEHIND_AN_OPEN_ONE = [  # all of the merged range was aborted, and what stands behind it is open
    ("send", "x", 0, (b"a",)),
    ("send", "y", 0, (b"a",)),
    ("end", "x", False),
    ("merge", 0, 1),
]


MERGED_IN_FRONT_OF_AN_ABORTED_ONE = [
    ("plain", 0, (b"a",)),
    ("send", "x", 0, (b"a",)),
    ("end", "x", False),
    ("merge", 0, 1),
]
LARGER_THAN_A_COMMIT = [
    ("send", "x", 0, (b"a", b"b", b"c")),
    ("send", "x", 0, (b"a", b"b", b"c")),
    ("send", "x", 1, (b"a",)),
    ("end", "x", True),
    ("table", 1),
]
SUPERSEDED_BEFORE_THE_TABLE_HAD_IT = [
    ("plain", 0, (b"a",)),
    ("table", 1),
    ("plain", 0, (b"b", b"b", b"b")),
    ("compact", 0),
]


AN_ABORTED_RECORD_SUPERSEDES_NOTHING = [
    ("plain", 0, (b"a",)),
    ("send", "x", 0, (b"a",)),
    ("end", "x", False),
    ("plain", 0, (b"b",)),
    ("table", 3),
    ("compact", 0),
]


@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.lists(STEP, min_size=8, max_size=30),
    st.sampled_from(("delete", "compact")),
    st.sampled_from((100, 1 << 20)),
)
@example(BEHIND_AN_OPEN_ONE, "delete", 1 << 20)
@example(MERGED_IN_FRONT_OF_AN_ABORTED_ONE, "delete", 1 << 20)
@example(LARGER_THAN_A_COMMIT, "delete", 1 << 20)
@example(SUPERSEDED_BEFORE_THE_TABLE_HAD_IT, "compact", 1 << 20)
@example(AN_ABORTED_RECORD_SUPERSEDES_NOTHING, "compact", 1 << 20)
def test_committed_records_and_nothing_else(
    steps: list[tuple[Any, ...]], policy: str, bytes_max: int
) -> None:
    asyncio.run(story(steps, policy, bytes_max))
