"""`floe restore cluster` of a large bucket: seconds until it is served again, and where they go.

A bucket is made as a cluster would have left it (1,000 partitions, batches of 16 kB in chunks of 4 MB, a
snapshot, the log archived up to some seconds before the end), etcd is empty, and the command and an agent
run as an operator runs them. Served: a record is written and one of before is read.

    make bench ONLY=restore [GB=10] [PARTITIONS=1000] [BEHIND_MB=50] [BATCH=16]
    python -m tests.bench.bench_restore --gb 1 --behind-mb 1000     # nothing of it is archived

BUCKET=folder (`--bucket`): the bucket is kept there, and measured on links to it as often as one likes.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from crc32c import crc32c

from coordination.restore.found import FoundBatch
from coordination.restore.rebuild import commit_of
from deploy.services import Etcd
from deploy.services.floe import FloeAgent
from objectstore.adapters.folder import FolderStore
from objectstore.batch import NewRecord, build, peek
from objectstore.chunk import ChunkWriter
from objectstore.naming import ChunkId, chunk_key
from tests.bench.figure import Figure
from tests.unit.coordination.kit import A, B, Script
from tests.unit.coordination.lost import CLUSTER_ID, Lost

MB = 1_000_000
RECORD_BYTES = 1_000
CHUNK_BYTES = 4 * MB
PER_TOPIC = 100
PIECE_CHUNKS = 25
SETTLE_S = 20.0
"""As the command has it: agents of the lost log may live."""
Ends = dict[tuple[str, int], int]
"""Of each partition, by topic and number."""
_ids = struct.Struct(">qhi")  # of a batch's header: producer id, epoch, base sequence
_IDS_AT, _CRC_AT, _CRC_FROM = 43, 17, 21


@dataclass(frozen=True, slots=True)
class Size:
    """Of the bucket. `behind_bytes`: of chunks, the newest, that no archive knows. `records`: of a batch."""

    total_bytes: int
    partitions: int
    behind_bytes: int
    records: int = 16


@dataclass
class Bucket:
    """A cluster's bucket in a folder, made batch by batch."""

    folder: Path
    size: Size
    script: Script = field(default_factory=Script)
    turns: dict[int, int] = field(default_factory=dict)

    async def make(self) -> None:
        """All of it: chunks by two authors, a snapshot of the beginning, the archive."""
        script, store = self.script, FolderStore(self.folder)
        lost = Lost(store, script)
        await lost.bind()
        for author in (A, B):
            script.register(author)
        handles: list[int] = []
        for number in range(-(-self.size.partitions // PER_TOPIC)):
            handles += script.topic(A, f"t{number}", min(PER_TOPIC, self.size.partitions - len(handles)))
        await lost.snapshot()
        template = bytearray(_batch(self.size.records))
        written, waiting, places = 0, 0, _places(handles)
        while written < self.size.total_bytes:
            author = (A, B)[waiting % 2]
            written += await self._chunk(store, author, places, template)
            waiting += 1
            if not waiting % PIECE_CHUNKS and written <= self.size.total_bytes - self.size.behind_bytes:
                await lost.archive()
        await store.close()

    async def _chunk(self, store: FolderStore, author: int, places: Iterator[int], like: bytearray) -> int:
        number = self.turns.get(-author, 0)
        self.turns[-author] = number + 1
        writer, found = ChunkWriter(), list[FoundBatch]()
        while writer.bytes < CHUNK_BYTES:
            handle = next(places)
            batch = self._next(handle, like)
            writer.add(handle, batch)
            header = peek(batch)
            found.append(
                FoundBatch(
                    handle, 0, header.size, header.record_count, header.record_count, header.max_timestamp,
                    header.producer_id, header.producer_epoch, header.base_sequence, header.crc, False,
                )
            )  # fmt: skip
        encoded = writer.finish(CLUSTER_ID, ChunkId(author, number))
        await store.put(chunk_key(encoded.chunk), list(encoded.parts))
        in_order = [found[ticket] for ticket in writer.order()]
        self.script.one(author, commit_of(number, encoded.size, in_order, self.script.state.revision))
        return encoded.size

    def _next(self, handle: int, like: bytearray) -> bytes:
        """The next batch of the partition's one producer."""
        turn = self.turns.get(handle + 1, 0)
        self.turns[handle + 1] = turn + 1
        _ids.pack_into(like, _IDS_AT, handle, 0, turn * self.size.records)
        struct.pack_into(">I", like, _CRC_AT, crc32c(memoryview(like)[_CRC_FROM:]))
        return bytes(like)


def _batch(number: int) -> bytes:
    now_ms = int(time.time() * 1000)
    records = [NewRecord(now_ms, None, os.urandom(RECORD_BYTES)) for _ in range(number)]
    return build(records, producer_id=0, producer_epoch=0, base_sequence=0)


def _places(handles: list[int]) -> Iterator[int]:
    while True:
        yield from handles


def made(size: Size, folder: Path) -> Ends:
    """The bucket in `folder`, made there unless it is; where each partition ends."""
    note = folder / "ends.json"
    if not note.exists():
        (folder / "bucket").mkdir(parents=True, exist_ok=True)
        bucket = Bucket(folder / "bucket", size)
        asyncio.run(bucket.make())
        topics = bucket.script.state.topics.values()
        told = [(each.name, part.index, part.high_watermark) for each in topics for part in each.partitions]
        note.write_text(json.dumps({"size": repr(size), "ends": told}))
    kept = json.loads(note.read_text())
    assert kept["size"] == repr(size), f"{folder} has another bucket: {kept['size']}; name an empty folder"
    return {(name, index): end for name, index, end in kept["ends"]}


def measure(size: Size, kept: Path | None = None) -> dict[str, float]:
    """Seconds by stage, and all of them. Raises AssertionError where not every record is there.

    `kept`: a folder with such a bucket, which stays as it is, or where one is to be made and kept.
    """
    with tempfile.TemporaryDirectory(dir=kept and kept.parent) as folder, Etcd(fsync=False) as etcd:
        ends = made(size, kept or Path(folder))
        bucket = Path(folder, "restored")
        shutil.copytree((kept or Path(folder)) / "bucket", bucket, copy_function=os.link)
        begun = time.perf_counter()
        report = _command(bucket, etcd)
        command_s = time.perf_counter() - begun
        settings = {
            "cluster": {"name": "main"},
            "log": {"url": f"etcd://{etcd.endpoint}/main"},
            "store": {"url": f"file://{bucket}"},
            "tables": {"enabled": False},
        }
        with FloeAgent("agent-0", settings) as agent:
            ready_s = time.perf_counter() - begun - command_s
            asyncio.run(_served(agent.bootstrap, ends))
            all_s = time.perf_counter() - begun
        stages: dict[str, float] = dict(report["seconds"])
        told = sum(stages.values())
        return {
            **stages, "the command's own start": command_s - told, "an agent's start": ready_s,
            "first write and read": all_s - command_s - ready_s, "all": all_s,
        }  # fmt: skip


def _command(folder: Path, etcd: Etcd) -> dict[str, Any]:
    command = [
        sys.executable, "-m", "agent", "restore", "cluster", "--from", f"file://{folder}",
        "--to", f"etcd://{etcd.endpoint}/main", "--log-is-lost", "--settle", str(SETTLE_S),
        "--output", "json",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    return told


async def _served(bootstrap: str, ends: Ends) -> None:
    """A record is taken and one of before is read; every partition ends where it did."""
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap)
    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False)
    await producer.start()
    await consumer.start()
    try:
        told = await consumer.end_offsets([TopicPartition(*each) for each in ends])
        assert {(each.topic, each.partition): end for each, end in told.items()} == ends
        place = TopicPartition("t0", 0)
        consumer.assign([place])
        await consumer.seek_to_beginning()
        assert (await consumer.getone()).offset == 0
        sent = await producer.send_and_wait("t0", b"new", partition=0)
        assert sent.offset == ends["t0", 0]
    finally:
        await consumer.stop()
        await producer.stop()


def asked() -> Size:
    """A tenth of the goal's unless the environment says otherwise."""
    gb, partitions = float(os.environ.get("GB", "1")), int(os.environ.get("PARTITIONS", "1000"))
    behind = float(os.environ.get("BEHIND_MB", "50"))
    return Size(int(gb * 1000 * MB), partitions, int(behind * MB), int(os.environ.get("BATCH", "16")))


def figures() -> Iterable[Figure]:
    """One run: its seconds by stage, then all of them."""
    size = asked()
    behind = f"{size.behind_bytes // MB:,} MB of them not archived"
    what = f"restore: {size.total_bytes / 1000 / MB:g} GB in chunks, {behind}, {size.partitions:,} partitions"
    kept = os.environ.get("BUCKET", "")
    for stage, seconds in measure(size, Path(kept) if kept else None).items():
        if stage == "all":
            yield Figure(f"{what}, until served", seconds, "s", goal=60, better="less")
        else:
            yield Figure(f"{what}: {stage}", seconds, "s")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gb", type=float, default=1.0)
    parser.add_argument("--partitions", type=int, default=1000)
    parser.add_argument("--behind-mb", type=float, default=50)
    parser.add_argument("--batch", type=int, default=16, help="records of 1 kB in a batch")
    parser.add_argument("--bucket", type=Path, help="a folder that keeps the bucket for more runs")
    parser.add_argument("--make", action="store_true", help="only make that bucket")
    given = parser.parse_args()
    asked_for = Size(int(given.gb * 1000 * MB), given.partitions, int(given.behind_mb * MB), given.batch)
    if given.make:
        made(asked_for, given.bucket)
    else:
        for told_stage, told_seconds in measure(asked_for, given.bucket).items():
            print(f"{told_stage}: {told_seconds:.2f} s", flush=True)
