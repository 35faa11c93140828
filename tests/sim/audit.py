"""What no client can see, after a run: the agents agree, the batches tile, the table is the topic."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator, Sequence

import pyarrow.parquet as pq

from coordination.state.types import Partition
from iceberg import head, manifests
from iceberg.warehouse import Warehouse
from objectstore.batch import records
from objectstore.reader import ChunkReader
from objectstore.store import ObjectStore
from tests.checker.findings import Finding
from tests.sim.node import AgentNode
from tests.torture.inside import _partition as tiles

AGREE_S_MAX = 30.0
TABLE_S_MAX = 60.0
PLAN_BYTES_MAX = 1 << 60
CACHE_BYTES = 1 << 22


async def audit(agents: Sequence[AgentNode], objects: ObjectStore) -> list[Finding]:
    """Everything below."""
    findings = await _agree(agents)
    app = agents[0].app
    assert app is not None, "healed before it is audited"
    state = app.replica.state
    reader = ChunkReader(objects, CACHE_BYTES)
    for partition in [each for each in state.partitions if each is not None]:
        findings += [_own(each) for each in await tiles(partition, reader)]
    if findings:  # what cannot be read cannot be compared with its table
        return findings
    for topic in list(state.topics.values()):
        findings += await _table(agents[0], objects, topic.name, reader)
    await reader.close()
    return findings


def _own(found: object) -> Finding:
    return Finding(found.anomaly, found.place, found.detail, ())  # type: ignore[attr-defined]  # a torture Finding


async def _agree(agents: Sequence[AgentNode]) -> list[Finding]:
    """All agents come to one revision, with one hash."""
    states = [agent.app.replica.state for agent in agents if agent.app is not None]
    await asyncio.sleep(2)
    revision = min(state.revision for state in states)
    hashes = [state.hash_at(revision) for state in states]
    if len({each for each in hashes if each is not None}) > 1:
        return [Finding("state-differs", "", f"at revision {revision}: {hashes}", ())]
    return []


async def _table(agent: AgentNode, objects: ObjectStore, topic: str, reader: ChunkReader) -> list[Finding]:
    """Table rows = committed records, each once."""
    app = agent.app
    assert app is not None, "healed before it is audited"
    partitions = app.replica.state.topics[topic].partitions
    due = {(p.index, r[0]): r[1] async for p, r in _records(partitions, reader)}
    try:
        async with asyncio.timeout(TABLE_S_MAX):
            while not _complete(app.replica.state.tables, topic, partitions):  # noqa: ASYNC110 - polls a table
                await asyncio.sleep(0.2)
    except TimeoutError:
        ledger = [t.next_offsets for t in app.replica.state.tables.values() if t.topic == topic]
        return [Finding("stuck", topic, f"the table's ledger stays at {ledger}", ())]
    found: dict[tuple[int, int], bytes] = {}
    warehouse = Warehouse.of(app.config.store.url, app.config.warehouse)
    pointer = next(t.metadata_location for t in app.replica.state.tables.values() if t.topic == topic)
    at = await head.load(objects, warehouse, pointer)
    findings = []
    for manifest in at.manifests:
        for file in manifests.data_files(manifest, await objects.get(warehouse.key(manifest.manifest_path))):
            rows = pq.read_table(io.BytesIO(await objects.get(warehouse.key(file)))).to_pylist()
            for row in rows:
                place = (row["kafka"]["partition"], row["kafka"]["offset"])
                if place in found:
                    findings.append(Finding("table-doubled", topic, str(place), ()))
                found[place] = row["value"]["__raw__"]
    for place in sorted(set(due) | set(found)):
        if due.get(place) != found.get(place):
            findings.append(
                Finding(
                    "table-differs", topic, f"{place}: {found.get(place)!r}, topic {due.get(place)!r}", ()
                )
            )
    return findings


def _complete(tables: object, topic: str, partitions: Sequence[Partition]) -> bool:
    ends = [p.high_watermark for p in partitions]
    if not any(ends):
        return True
    return any(table.topic == topic and list(table.next_offsets) == ends for table in tables.values())


async def _records(
    partitions: Sequence[Partition], reader: ChunkReader
) -> AsyncIterator[tuple[Partition, tuple[int, bytes | None]]]:
    for partition in partitions:
        for ref in partition.slices.plan(partition.log_start, PLAN_BYTES_MAX):
            for record in records(bytes(await reader.read(ref))):
                yield partition, (record.offset, record.value)
