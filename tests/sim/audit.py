"""What no client can see, after a run: the agents agree, the batches tile, the table is the topic.

Of the compacted topic batches are missing by right: its newest records are compared with what was
acknowledged, and its table, which compaction must not overtake, has every record that ever was.
"""

from __future__ import annotations

import asyncio
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow.parquet as pq

from agent.app import App
from coordination.state.tables import topic_id_of
from coordination.state.types import Partition, Table
from iceberg import head, manifests
from iceberg.warehouse import Warehouse
from objectstore.batch import Record, peek, records, split
from objectstore.merged import MergedRanges
from objectstore.reader import ChunkReader
from objectstore.store import ObjectStore, StoreError
from objectstore.transactions import Transactions
from tests.checker.findings import Finding
from tests.sim import columns, newest
from tests.sim.clerk import ASIDE
from tests.sim.columns import Truth
from tests.sim.damage import HURT
from tests.sim.keepers import KEPT, SHORT_LIVED, Kept, Ledger
from tests.sim.mortal import MORTAL
from tests.sim.node import AgentNode
from tests.torture.inside import _partition as tiles
from tests.torture.inside import whole

_NOTHING = object()
_COMPARED = ["kafka.partition", "kafka.offset", "value.__raw__"]
"""Columns of a table."""
TABLE_S_MAX = 60.0
READS_MAX = 20  # of one partition, when what is read was just replaced
CACHE_BYTES = 1 << 22


async def audit(
    agents: Sequence[AgentNode],
    objects: ObjectStore,
    ledger: Ledger,
    truths: Sequence[Truth],
    was_start: int,
) -> list[Finding]:
    """Everything below. `was_start`: where the log of `mortal.py` began before its records came back."""
    findings = await agree(agents)
    app = agents[0].app
    assert app is not None, "healed before it is audited"
    state = app.replica.state
    reader, ranges = ChunkReader(objects, CACHE_BYTES), MergedRanges(objects)
    for partition in [each for each in state.partitions if each is not None]:
        if partition.topic.name not in (KEPT, HURT):
            findings += [_own(each) for each in await tiles(partition, ranges, reader)]
    if not findings:  # what cannot be read cannot be compared with its table
        for topic in [each for each in state.topics if each != HURT]:  # which has none
            known = _Topic(topic, agents[0], Readers(ranges, reader))
            try:
                findings += await _table(known, objects, ledger, truths, was_start)
            except StoreError as error:  # what it is compared with is gone
                findings.append(Finding("unseen", topic, f"its records cannot be read: {error!r}", ()))
            if not findings and known.tables:  # its newest rows are those of that table
                findings += await newest.judged(app, topic, objects)
    await ranges.close()
    await reader.close()
    return findings


def _own(found: object) -> Finding:
    return Finding(found.anomaly, found.place, found.detail, ())  # type: ignore[attr-defined]  # a torture Finding


async def agree(agents: Sequence[AgentNode]) -> list[Finding]:
    """All agents come to one revision, with one hash."""
    states = [agent.app.replica.state for agent in agents if agent.app is not None]
    await asyncio.sleep(2)
    revision = min(state.revision for state in states)
    hashes = [state.hash_at(revision) for state in states]
    if len({each for each in hashes if each is not None}) > 1:
        return [Finding("state-differs", "", f"at revision {revision}: {hashes}", ())]
    return []


Place = tuple[int, int]
"""Partition and offset."""


@dataclass(frozen=True, slots=True)
class Readers:
    """What finds records and reads them."""

    ranges: MergedRanges
    chunks: ChunkReader

    async def all(self, partition: Partition) -> list[Record]:
        """Every committed record from the log start on."""
        for _ in range(READS_MAX):
            try:
                return await self._all(partition)
            except StoreError:  # merged, compacted or expired meanwhile
                await asyncio.sleep(0.2)
        return await self._all(partition)

    async def _all(self, partition: Partition) -> list[Record]:
        start = partition.log_start
        refs = await whole(self.ranges, partition)
        known = Transactions(partition.aborted(start, partition.high_watermark))
        found: list[Record] = []
        for ref in refs:
            found += [each for each in committed(await self.chunks.read(ref), known) if each.offset >= start]
        return found


def committed(data: memoryview, known: Transactions) -> Iterator[Record]:
    """Records of the batches that are neither markers nor of aborted transactions."""
    for position, size in split(data):
        header = peek(data, position)
        if not header.control and not known.aborted(header):
            yield from records(bytes(data[position : position + size]))


@dataclass(frozen=True, slots=True)
class _Topic:
    """A topic as one agent knows it."""

    name: str
    agent: AgentNode
    readers: Readers

    @property
    def app(self) -> App:
        """The agent's."""
        app = self.agent.app
        assert app is not None, "healed before it is audited"
        return app

    @property
    def partitions(self) -> Sequence[Partition]:
        """In order."""
        return self.app.replica.state.topics[self.name].partitions

    @property
    def tables(self) -> list[Table]:
        """The topic's table, when there is one: of this topic, not of one that had its name before."""
        state = self.app.replica.state
        topic_id = state.topics[self.name].topic_id
        return [table for table in state.tables.values() if topic_id_of(state, table) == topic_id]

    def complete(self) -> bool:
        """Whether the table has everything, as far as its ledger says."""
        ends = [partition.high_watermark for partition in self.partitions]
        known = [list(table.next_offsets) for table in self.tables]
        # A table learns of a new partition with its first record.
        return not any(ends) or [each + [0] * (len(ends) - len(each)) for each in known] == [ends]

    async def records(self) -> dict[Place, Record]:
        """What can be read."""
        return {
            (partition.index, each.offset): each
            for partition in self.partitions
            for each in await self.readers.all(partition)
        }


async def _table(
    topic: _Topic, objects: ObjectStore, ledger: Ledger, truths: Sequence[Truth], was_start: int
) -> list[Finding]:
    """Table rows = records, each once; rows of records that are gone by right may be there, and those of
    records that went before the table had them, and came back, are not.
    """
    try:
        async with asyncio.timeout(TABLE_S_MAX):
            while not topic.complete():  # noqa: ASYNC110 - polls a table
                await asyncio.sleep(0.2)
    except TimeoutError:
        known = [table.next_offsets for table in topic.tables]
        return [Finding("stuck", topic.name, f"the table's ledger stays at {known}", ())]
    if not any(partition.high_watermark for partition in topic.partitions):
        return []
    try:
        at, files = await _files(topic, objects)
    except StoreError as error:
        return [Finding("table-differs", topic.name, f"the table cannot be read: {error}", ())]
    rows, findings = _rows(topic.name, files)
    for truth in truths:
        if topic.name == truth.topic:
            findings += columns.judged(at.metadata, files, truth)
    left = (
        await topic.records()
    )  # after the rows: what goes meanwhile may be a row, never the other way round
    due = {place: each.value for place, each in left.items()}
    if topic.name == KEPT:
        findings += ledger.judge_at_rest([_kept(*each) for each in left.items()])
        due |= {(each.partition, each.offset): each.encoded for each in ledger.acknowledged}
    starts = [partition.log_start for partition in topic.partitions]
    for place in sorted(due.keys() | rows.keys()):
        if due.get(place, _NOTHING) == rows.get(place, _NOTHING):
            continue
        trimmed = topic.name in (SHORT_LIVED, MORTAL) or topic.name.startswith(ASIDE)
        expired = trimmed and place[1] < starts[place[0]]
        if place not in due and (expired or topic.name == KEPT):
            continue
        if place not in rows and topic.name == MORTAL and place[1] < was_start:
            continue
        detail = f"{place}: {rows.get(place)!r}, topic {due.get(place)!r}"
        findings.append(Finding("table-differs", topic.name, detail, ()))
    return findings


async def _files(topic: _Topic, objects: ObjectStore) -> tuple[head.Head, list[pq.ParquetFile]]:
    """The table's head, and all files of its rows."""
    warehouse = Warehouse.of(topic.app.config.store.url, topic.app.config.warehouse)
    at = await head.load(objects, warehouse, topic.tables[0].metadata_location)
    return at, [
        pq.ParquetFile(io.BytesIO(await objects.get(warehouse.key(file))))
        for manifest in at.manifests
        for file in manifests.data_files(manifest, await objects.get(warehouse.key(manifest.manifest_path)))
    ]


def _rows(name: str, files: Sequence[pq.ParquetFile]) -> tuple[Mapping[Place, bytes | None], list[Finding]]:
    """The table's values, and what is there twice."""
    found: dict[Place, bytes | None] = {}
    findings = []
    for data in files:
        for row in data.read(columns=_COMPARED, use_threads=False).to_pylist():
            place = (row["kafka"]["partition"], row["kafka"]["offset"])
            if place in found:
                findings.append(Finding("table-doubled", name, str(place), ()))
            found[place] = None if row["value"] is None else row["value"]["__raw__"]
    return found, findings


def _kept(place: Place, record: Record) -> Kept:
    value = None if record.value is None else record.value.decode()
    return Kept(place[0], (record.key or b"").decode(), value, record.offset)
