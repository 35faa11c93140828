"""Transactions end to end: one at a time against the floor, fifty producers against Kafka, committed reads.

Every producer is the tests' own v2 client (tests/equipment/transactional_client.py) with one record of 1 kB
in each transaction; the same client goes to Floe and to Apache Kafka, in turns. The floor of a transaction is
what it rests on: one PUT, the append that commits the record, the append that ends it.
"""

from __future__ import annotations

import asyncio
import itertools
import statistics
import time
from collections.abc import Iterable
from contextlib import AsyncExitStack, ExitStack

import uvloop

from agent.net.wire.generated import find_coordinator as fc
from coordination.kafka_codes import Code
from deploy.services import Etcd, Minio
from deploy.services.floe import FloeAgent
from deploy.services.kafka import Kafka
from tests.bench.agents import on_services
from tests.bench.bench_quiet import floor_ms
from tests.bench.figure import Figure, interleaved
from tests.bench.load import NOW, create_topic, fetch_all
from tests.equipment.transactional_client import TransactionalClient

VALUE = bytes(1000)
ALONE = 200  # transactions of the one producer
PRODUCERS, SECONDS = 50, 5.0
BACKOFF_S = 0.02  # before a request that met the transaction's own end under way, as Java's client waits
AGAIN = (
    Code.CONCURRENT_TRANSACTIONS,
    Code.COORDINATOR_LOAD_IN_PROGRESS,
    Code.COORDINATOR_NOT_AVAILABLE,
    Code.NOT_COORDINATOR,
    Code.NOT_LEADER_OR_FOLLOWER,  # of a topic that was only just made
    Code.UNKNOWN_TOPIC_OR_PARTITION,
)
AGAIN_MAX = 500
TRANSACTION, FIND_VERSION = 1, 4  # FindCoordinator's key type
READ_PARTITIONS, READ_TRANSACTIONS, READ_RECORDS = 8, 300, 16  # of each partition, of each of these
PARTITION_BYTES_MAX, BYTES_MAX = 1 << 20, 50 << 20  # the Java consumer's defaults
_numbers = itertools.count(1)


async def patiently(request: object) -> int:
    """The code of a call that is made again while the broker asks for it."""
    for _ in range(AGAIN_MAX):
        code = await request()  # type: ignore[operator]  # a call without arguments
        if code not in AGAIN:
            return int(code)
        await asyncio.sleep(BACKOFF_S)
    raise TimeoutError(f"the broker said {AGAIN_MAX} times: again")


async def begun(bootstrap: str) -> TransactionalClient:
    """A producer with its pair."""
    made = TransactionalClient(bootstrap, f"t-{next(_numbers)}", stamp_ms=NOW)

    async def find() -> int:
        asked = fc.FindCoordinatorRequest(key_type=TRANSACTION, coordinator_keys=[made.name])
        return int((await made.call("FindCoordinator", asked, FIND_VERSION)).coordinators[0].error_code)

    codes = await patiently(find), await patiently(made.init)
    assert codes == (0, 0), codes
    return made


async def transaction(
    producer: TransactionalClient, topic: str, index: int, *values: bytes, commit: bool = True
) -> None:
    """One batch, then the end."""

    async def send() -> int:
        return (await producer.send(topic, *values, index=index))[0]

    codes = await patiently(send), await patiently(lambda: producer.end(commit=commit))
    assert codes == (0, 0), codes


async def alone_ms(bootstrap: str) -> float:
    """The median of one transaction after the other."""
    topic = f"alone-{next(_numbers)}"
    await create_topic(bootstrap, topic, 1)
    async with await begun(bootstrap) as producer:
        taken = []
        for _ in range(ALONE):
            started = time.perf_counter()
            await transaction(producer, topic, 0, VALUE)
            taken.append((time.perf_counter() - started) * 1000)
    return statistics.median(taken)


async def together_per_s(bootstrap: str) -> float:
    """Transactions per second of all producers, each with a partition of its own."""
    topic = f"together-{next(_numbers)}"
    await create_topic(bootstrap, topic, PRODUCERS)
    async with AsyncExitStack() as stack:
        producers = [await stack.enter_async_context(await begun(bootstrap)) for _ in range(PRODUCERS)]
        until = time.perf_counter() + SECONDS

        async def run(index: int, producer: TransactionalClient) -> int:
            count = 0
            while time.perf_counter() < until:
                await transaction(producer, topic, index, VALUE)
                count += 1
            return count

        started = time.perf_counter()
        done = sum(await asyncio.gather(*(run(*each) for each in enumerate(producers))))
        return done / (time.perf_counter() - started)


async def fill(bootstrap: str) -> str:
    """A topic of transactions, every tenth of them aborted; its name."""
    topic = f"read-{next(_numbers)}"
    await create_topic(bootstrap, topic, READ_PARTITIONS)

    async def write(index: int) -> None:
        async with await begun(bootstrap) as producer:
            for number in range(READ_TRANSACTIONS):
                values = [VALUE] * READ_RECORDS
                await transaction(producer, topic, index, *values, commit=number % 10 > 0)

    await asyncio.gather(*(write(index) for index in range(READ_PARTITIONS)))
    return topic


def read(bootstrap: str, topic: str, *, committed: bool) -> float:
    """MB/s (10^6 bytes) of one consumer reading everything."""
    ends = [READ_TRANSACTIONS * (READ_RECORDS + 1)] * READ_PARTITIONS
    started = time.perf_counter()
    size = fetch_all(bootstrap, topic, ends, PARTITION_BYTES_MAX, BYTES_MAX, committed=committed)
    return size / (time.perf_counter() - started) / 1e6


def figures() -> Iterable[Figure]:
    """The three, in this order."""
    with ExitStack() as stack:
        etcd, minio = stack.enter_context(Etcd()), stack.enter_context(Minio())
        bucket = minio.make_bucket("exactly-once-bench")
        at = stack.enter_context(FloeAgent("agent", on_services(etcd, minio, bucket))).bootstrap
        ours, floor = interleaved(
            [lambda: uvloop.run(alone_ms(at)), lambda: uvloop.run(floor_ms(etcd, minio, bucket, appends=2))]
        )
        name = "transaction of one 1 kB record, p50"
        yield Figure(name, ours, "ms", "PUT + two appends", floor, 2.5, "less")
        topic = asyncio.run(fill(at))
        committed, uncommitted = interleaved(
            [lambda: read(at, topic, committed=True), lambda: read(at, topic, committed=False)]
        )
        name = "read_committed fetch, every tenth transaction aborted"
        yield Figure(name, committed, "MB/s", "read_uncommitted", uncommitted, 0.9)
        kafka = stack.enter_context(Kafka()).bootstrap
        ours, theirs = interleaved(
            [lambda: uvloop.run(together_per_s(at)), lambda: uvloop.run(together_per_s(kafka))]
        )
        name = f"{PRODUCERS} transactional producers"
        yield Figure(name, ours, "transactions/s", "Apache Kafka 4.3.1", theirs, 0.5)
