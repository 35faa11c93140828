"""A cluster in one process for table tests: a memory log, a folder store, a real replica and reader."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from coordination.clock import SystemClock
from coordination.commands import (
    BindSchema,
    CommitChunk,
    CreateTopic,
    DeleteTopic,
    RegisterAgent,
    command,
)
from coordination.memory_log import MemoryLog
from coordination.memory_server import MemoryServer
from coordination.replica import Replica
from coordination.replica.options import ReplicaOptions
from coordination.state.data import FEATURE_LEVEL_MAX
from coordination.state.types import ChunkCommitted, Done, Topic
from iceberg import head as heads
from iceberg import ledger, manifests
from iceberg.committer import Committer, CommitterOptions, Parts
from iceberg.steps import Steps
from iceberg.warehouse import Warehouse
from objectstore import batch
from objectstore.chunk import HEADER_SIZE, ChunkWriter
from objectstore.merged import MergedRanges
from objectstore.naming import ChunkId, chunk_key
from objectstore.open import open_store
from objectstore.reader import ChunkReader
from objectstore.store import ObjectStore
from tests.unit.schema import samples


async def until(condition: Callable[[], bool]) -> None:
    """Wait for another task to make the condition true; the test's own timeout bounds it."""
    while not condition():  # noqa: ASYNC110  # nothing tells of this condition
        await asyncio.sleep(0.01)


class Killed(BaseException):
    """The process died here."""


class KillAt(Steps):
    """Ends the committer before its n-th step (from 0), or before the step of that name; else never."""

    def __init__(self, kill_before: int = 1 << 30, name: str = "") -> None:
        self.kill_before = kill_before
        self.name = name
        self.seen: list[str] = []

    async def before(self, step: str) -> None:
        await super().before(step)
        if len(self.seen) == self.kill_before or step == self.name:
            raise Killed(step)
        self.seen.append(step)


@dataclass
class Rig:
    """One agent's parts and short ways to use them."""

    replica: Replica
    store: ObjectStore
    reader: ChunkReader
    warehouse: Warehouse
    server: MemoryServer
    options: CommitterOptions = field(default_factory=CommitterOptions)
    _chunks: int = 0
    _storing: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def parts(self) -> Parts:
        """What committers share."""
        return Parts(
            self.replica,
            self.reader,
            MergedRanges(self.store),
            self.store,
            self.warehouse,
            SystemClock(),
            self.options,
        )

    def committer(self, topic: str = "t", steps: Steps | None = None) -> Committer:
        """A committer as after a start of the process: it remembers nothing."""
        return Committer(self.parts, topic, steps)

    async def create_topic(self, name: str = "t", partitions: int = 2, **configs: str) -> Topic:
        """Create a topic."""
        message = CreateTopic(name=name, topic_id=SystemClock().random_bytes(16), partitions=partitions)
        for key, value in configs.items():
            message.configs.add(name=key.replace("__", "."), value=value)
        result = await self.replica.propose(message)
        assert isinstance(result, Done), result
        return self.replica.state.topics[name]

    async def delete_topic(self, name: str = "t") -> None:
        """Delete a topic."""
        assert isinstance(await self.replica.propose(DeleteTopic(name=name)), Done)

    async def bind(self, source: bytes, message: str, topic: str = "t", role: int = 0, **fields: Any) -> int:
        """Bind a topic's values (or keys) to a message; returns the schema id."""
        result = await self.replica.propose(
            BindSchema(
                topic=topic,
                role=role,  # type: ignore[arg-type]  # the stub wants the enum's own type
                descriptor_set=samples.descriptor_set(source),
                message=message,
                **fields,
            )
        )
        assert isinstance(result, Done), result
        assert isinstance(result.value, int)
        return result.value

    async def produce(
        self, values: Iterable[bytes | None], partition: int = 0, topic: str = "t", keys: Sequence[bytes] = ()
    ) -> int:
        """Store one batch as a chunk of its own and commit it; returns its base offset."""
        records = [
            batch.NewRecord(
                1_700_000_000_000 + at, keys[at] if keys else b"k%d" % at, value, [("h", b"%d" % at)]
            )
            for at, value in enumerate(values)
        ]
        return await self.store_batch(batch.build(records), partition, topic)

    async def store_batch(self, content: bytes, partition: int = 0, topic: str = "t") -> int:
        """Store batches, sound or not, as a chunk of their own and commit it; returns their base offset."""
        async with self._storing:  # an agent's chunks are committed in the order of their numbers
            return await self._store_batch(content, partition, topic)

    async def _store_batch(self, content: bytes, partition: int, topic: str) -> int:
        header = batch.peek(content)
        headers = [batch.peek(content, position) for position, _ in batch.split(content)]
        handle = self.replica.state.topics[topic].partitions[partition].handle
        self._chunks += 1
        chunk = ChunkId(self.replica.incarnation, self._chunks)
        writer = ChunkWriter()
        writer.add(handle, content)
        encoded = writer.finish(bytes(16), chunk)
        await self.store.put(chunk_key(chunk), encoded.parts)
        message = CommitChunk(
            number=chunk.number,
            size=sum(len(part) for part in encoded.parts),
            first_position=HEADER_SIZE,
            partition=[handle],
            length=[len(content)],
            offsets=[sum(each.last_offset_delta + 1 for each in headers)],
            max_timestamp_ms=[header.max_timestamp],
            judged_revision=self.replica.state.revision,
        )
        if header.producer_id >= 0:
            message.producer_id.append(header.producer_id)
            message.producer_epoch.append(header.producer_epoch)
            message.base_sequence.append(header.base_sequence)
            message.transaction.append(2 * header.transactional)
        (result,) = await self.replica.submit([command(message)])
        assert isinstance(result, ChunkCommitted), result
        assert result.errors == [0]
        return result.base_offsets[0]

    async def drain(self, committer: Committer) -> int:
        """Commit until nothing is left; returns the rows committed."""
        rows = 0
        while (done := await committer.run_once()) is not None:
            rows += done.rows
        return rows

    async def head(self, topic: str = "t") -> heads.Head:
        """The table's head as any other agent would load it."""
        key = heads.place(self.replica.state, self.replica.state.topics[topic])
        location = heads.pointer(self.replica.state, key)
        return await heads.load(self.store, self.warehouse, location)

    async def rows(self, topic: str = "t") -> list[dict[str, Any]]:
        """All rows of the table, straight from its files."""
        head = await self.head(topic)
        found: list[dict[str, Any]] = []
        for manifest in head.manifests:
            content = await self.store.get(self.warehouse.key(manifest.manifest_path))
            for location in manifests.data_files(manifest, content):
                data = await self.store.get(self.warehouse.key(location))
                table: pa.Table = pq.read_table(io.BytesIO(data))
                found += table.to_pylist()
        return found

    async def assert_table_is_topic(self, expected: dict[int, list[bytes | None]], topic: str = "t") -> None:
        """Every record exactly once, at its offset; the ledger says the same and its ranges tile."""
        rows = await self.rows(topic)
        found = sorted((row["kafka"]["partition"], row["kafka"]["offset"], value_of(row)) for row in rows)
        wanted = sorted(
            (partition, offset, value)
            for partition, values in expected.items()
            for offset, value in enumerate(values)
        )
        assert found == wanted
        head = await self.head(topic)
        known = ledger.next_offsets(head.metadata, self.replica.state.topics[topic].topic_id)
        assert {number: end for number, end in enumerate(known) if end} == {
            partition: len(values) for partition, values in expected.items() if values
        }
        position: dict[int, int] = {}
        for snapshot in head.metadata["snapshots"]:
            for each in ledger.ranges(snapshot["summary"]):
                assert position.setdefault(each.partition, each.start) == each.start
                position[each.partition] = each.end

    async def assert_table_is_topic_rows(self, count: int, topic: str = "t") -> None:
        """Partition 0 has exactly the offsets 0 … count-1."""
        rows = await self.rows(topic)
        assert sorted(row["kafka"]["offset"] for row in rows) == list(range(count))


def value_of(row: dict[str, Any]) -> bytes | None:
    """The raw value of a table's row."""
    return None if row["value"] is None else row["value"]["__raw__"]


@asynccontextmanager
async def running(
    folder: Path,
    options: CommitterOptions | None = None,
    *,
    server: MemoryServer | None = None,
    name: str = "rig",
    store: ObjectStore | None = None,
) -> AsyncIterator[Rig]:
    """A rig over `folder`; with the same `server` and folder, another agent of the same cluster.

    `store`: in place of that in the folder.
    """
    root = f"file://{folder}/store"
    await asyncio.to_thread((folder / "store").mkdir, parents=True, exist_ok=True)
    store = store or open_store(root)
    clock = SystemClock()
    server = server or MemoryServer()
    replica = Replica(MemoryLog(server, clock), store, clock, ReplicaOptions(members_s=0.1, retry_s=0.05))
    await replica.start(RegisterAgent(name=name, node_id=-1, feature_min=1, feature_max=FEATURE_LEVEL_MAX))
    reader = ChunkReader(store, 1 << 20)
    rig = Rig(replica, store, reader, Warehouse.of(root, f"{root}/tables"), server)
    rig.options = options or CommitterOptions()
    try:
        yield rig
    finally:
        await reader.close()
        await replica.stop()
        await store.close()
