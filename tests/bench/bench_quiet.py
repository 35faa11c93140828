"""One small record at a time over etcd and MinIO: against the floor, and while tables are written.

The floor is what every acknowledgement rests on: one PUT and one append, by the same libraries to the same
servers, in turns with the agent.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable, Iterable
from contextlib import ExitStack

import uvloop

from agent.net.wire.generated import create_topics as ct
from coordination.clock import SystemClock
from coordination.open import open_log
from deploy.services import Etcd, Minio
from deploy.services.floe import FloeAgent
from objectstore.naming import ChunkId, chunk_key
from objectstore.open import open_store
from objectstore.store import CREATE
from tests.bench.agents import on_services
from tests.bench.figure import Figure, interleaved
from tests.bench.load import CREATE_VERSION, Wire, batch_of, check, create_topic, produce_frame

RECORDS = 300
ENTRY_BYTES = 120  # an entry that commits one batch
LOAD_PERIOD_S, LOAD_RECORDS, LOAD_PARTITIONS = 0.1, 64, 8  # 5 MB/s
_numbers = iter(range(1, 1_000_000))


async def times_ms(step: Callable[[], Awaitable[object]], count: int = RECORDS) -> list[float]:
    """How long each of so many steps took."""
    taken = []
    for _ in range(count):
        begun = time.perf_counter()
        await step()
        taken.append((time.perf_counter() - begun) * 1000)
    return taken


async def probe(bootstrap: str, topic: str, count: int = RECORDS) -> list[float]:
    """Produce one record after the other on one connection, ms each."""
    wire, frame = await Wire.open(bootstrap), produce_frame(topic, batch_of(1), [0])

    async def step() -> None:
        await wire.send(frame)
        check(await wire.receive())

    await times_ms(step, 20)
    taken = await times_ms(step, count)
    await wire.close()
    return taken


async def floor_ms(etcd: Etcd, minio: Minio, bucket: str, *, appends: int = 1) -> float:
    """The median of a PUT of one batch, then an append, or so many."""
    clock, batch, payload = SystemClock(), batch_of(1), bytes(ENTRY_BYTES)
    store = open_store(
        f"s3://{bucket}/floor", endpoint=minio.endpoint, access_key=minio.access_key,
        secret_key=minio.secret_key, allow_http=True,
    )  # fmt: skip
    log = open_log(f"etcd://{etcd.endpoint}/floor", clock)
    incarnation = next(_numbers)
    chain = await log.register(incarnation, b"i" * 100, 30.0)
    numbers = iter(range(1, 1_000_000))

    async def step() -> None:
        await store.put(chunk_key(ChunkId(incarnation, next(numbers))), [batch], CREATE)
        for _ in range(appends):
            await chain.append(payload)

    await times_ms(step, 20)
    typical = statistics.median(await times_ms(step))
    await chain.close()
    await log.close()
    await store.close()
    return typical


async def load(bootstrap: str, topic: str) -> None:
    """A steady load on several partitions, for ever."""
    wire, frame = (
        await Wire.open(bootstrap),
        produce_frame(topic, batch_of(LOAD_RECORDS), range(LOAD_PARTITIONS)),
    )
    while True:
        await asyncio.sleep(LOAD_PERIOD_S)
        await wire.send(frame)
        check(await wire.receive())


async def create(bootstrap: str, topic: str, table: bool) -> None:
    """A topic that is, or is not, a table."""
    config = ct.CreatableTopicConfig(name="floe.table.enabled", value=str(table).lower())
    wanted = ct.CreatableTopic(
        name=topic, num_partitions=LOAD_PARTITIONS, replication_factor=-1, configs=[config]
    )
    wire = await Wire.open(bootstrap)
    answer = await wire.call(
        "CreateTopics", ct.CreateTopicsRequest(topics=[wanted], timeout_ms=10_000), CREATE_VERSION
    )
    assert answer.topics[0].error_code == 0, answer
    await wire.close()


async def loaded_p99(bootstrap: str, table: bool) -> float:
    """p99 of single records beside a load whose topic is, or is not, written to a table meanwhile."""
    topic = f"loaded-{next(_numbers)}"
    await create(bootstrap, topic, table)
    await create_topic(bootstrap, f"{topic}-probe", 1)
    background = asyncio.create_task(load(bootstrap, topic))
    await asyncio.sleep(1)
    taken = await probe(bootstrap, f"{topic}-probe", 2 * RECORDS)
    assert not background.done(), background
    background.cancel()
    return statistics.quantiles(taken, n=100)[98]


def figures() -> Iterable[Figure]:
    """Against the floor; then with tables on and off."""
    with ExitStack() as stack:
        etcd, minio = stack.enter_context(Etcd()), stack.enter_context(Minio())
        bucket = minio.make_bucket("quiet-bench")
        settings = on_services(etcd, minio, bucket, tables={"interval_ms": 1_000})
        agent = stack.enter_context(FloeAgent("agent", settings))
        asyncio.run(create(agent.bootstrap, "quiet", False))
        ours, floor = interleaved(
            [
                lambda: statistics.median(uvloop.run(probe(agent.bootstrap, "quiet"))),
                lambda: uvloop.run(floor_ms(etcd, minio, bucket)),
            ]
        )
        yield Figure("quiet produce, p50", ours, "ms", "PUT + append", floor, 1.2, "less")
        with_tables, without = interleaved(
            [
                lambda: uvloop.run(loaded_p99(agent.bootstrap, True)),
                lambda: uvloop.run(loaded_p99(agent.bootstrap, False)),
            ]
        )
        name = "single records beside 5 MB/s that go into a table, p99"
        yield Figure(name, with_tables, "ms", "no table", without, better="less")
