"""What `floe.produce.check` costs: an agent's CPU per record byte with each of its values, side by side."""

from __future__ import annotations

import asyncio
import itertools
import random
import statistics
from collections.abc import Iterable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from agent.kafka.produce.admission import FULL, HEADERS, UNCOMPRESSED
from agent.net.wire.generated import create_topics as ct
from deploy.services.floe import FloeAgent
from objectstore.batch import NewRecord, build
from objectstore.compression import Compression
from tests.bench.bench_produce import CONNECTIONS, PARTITIONS, WINDOW, embedded
from tests.bench.figure import ROUNDS, Figure
from tests.bench.load import CREATE_VERSION, NOW, Wire, cpu_seconds, produce_all, produce_frame

REQUESTS = 150  # per connection
BATCH_BYTES = 16_000  # of records, about Java's default batch.size
SIZES = (100, 1_000)  # bytes of a record
_topics = itertools.count(1)


def batch(size: int, codec: Compression) -> bytes:
    """A batch of records of such a size, of text that compresses to about a half."""
    rng = random.Random(size)
    values = (bytes(rng.choices(b"0123456789abcdef", k=size)) for _ in range(BATCH_BYTES // size))
    return build([NewRecord(NOW, None, value) for value in values], compression=codec)


async def load(bootstrap: str, check: str, sent: bytes) -> None:
    """One run on a fresh topic."""
    topic = f"check-{next(_topics)}"
    wire = await Wire.open(bootstrap)
    wanted = ct.CreatableTopic(name=topic, num_partitions=PARTITIONS, replication_factor=-1)
    wanted.configs = [ct.CreatableTopicConfig("floe.produce.check", check)]
    request = ct.CreateTopicsRequest(topics=[wanted], timeout_ms=10_000)
    answer = await wire.call("CreateTopics", request, CREATE_VERSION)
    assert answer.topics[0].error_code == 0, answer
    await wire.close()
    frame = produce_frame(topic, sent, range(PARTITIONS))
    await asyncio.gather(*[produce_all(bootstrap, frame, REQUESTS, WINDOW) for _ in range(CONNECTIONS)])


def figures() -> Iterable[Figure]:
    """CPU with a look at the records, over CPU without; the rounds take turns."""
    with TemporaryDirectory() as folder, FloeAgent("bench", embedded(folder), Path(folder)) as agent:
        asyncio.run(load(agent.bootstrap, HEADERS, batch(1_000, Compression.NONE)))
        for size in SIZES:
            yield from _compared(agent, size, Compression.NONE, UNCOMPRESSED)
            for codec in (Compression.LZ4, Compression.ZSTD):
                yield from _compared(agent, size, codec, FULL)


def _compared(agent: FloeAgent, size: int, codec: Compression, check: str) -> Iterator[Figure]:
    sent = batch(size, codec)
    spent: dict[str, list[float]] = {HEADERS: [], check: []}
    for _ in range(ROUNDS):
        for each, seconds in spent.items():
            before = cpu_seconds(agent.pid)
            asyncio.run(load(agent.bootstrap, each, sent))
            seconds.append(cpu_seconds(agent.pid) - before)
    name = f"agent CPU of produce, {size} B records, {codec.name.lower()}, check={check}"
    batches = CONNECTIONS * REQUESTS * PARTITIONS
    cost, base = (statistics.median(spent[each]) / batches * 1e6 for each in (check, HEADERS))
    yield Figure(name, cost, "µs/batch", "check=headers", base, better="less")
