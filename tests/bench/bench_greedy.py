"""What ten modest producers have of a greedy one's quota: their p99 alone, beside it, and with a quota.

Each modest one produces a record of 1 kB twenty times a second, one after the other, and sends again what a
client of Kafka would; the time until it is acknowledged counts.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from contextlib import ExitStack

from deploy.services import Etcd, Minio
from deploy.services.floe import FloeAgent
from tests.bench.agents import on_services
from tests.bench.bench_quotas import PRODUCER, limit, running, script
from tests.bench.figure import Figure
from tests.bench.load import Wire, batch_of, codes_of, create_topic, produce_frame

MODEST, PER_S, MODEST_S = 10, 20, 20
GREEDY_QUOTA = 2_000_000  # bytes per second
RETRIABLE = (6, 7, 19)  # NOT_LEADER_OR_FOLLOWER, REQUEST_TIMED_OUT, NOT_ENOUGH_REPLICAS
RETRY_S = 0.1  # retry.backoff.ms of clients
AGAIN_MAX = 100


async def stored(wire: Wire, frame: bytes) -> bool | None:
    """Send a record: whether it was stored; None when the connection is gone."""
    try:
        await wire.send(frame)
        codes = set(codes_of(await wire.receive()))
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
    assert codes <= {0, *RETRIABLE}, codes
    return codes == {0}


async def one(bootstrap: str) -> tuple[list[float], int]:
    """How long a modest one's records took, ms, and how often one was sent again."""
    wire, frame = await Wire.open(bootstrap), produce_frame("modest", batch_of(1), [0])
    taken, again, end = list[float](), 0, time.monotonic() + MODEST_S
    while (begun := time.monotonic()) < end:
        while not (done := await stored(wire, frame)):
            again += 1
            assert again <= AGAIN_MAX, "again and again"
            await asyncio.sleep(RETRY_S)
            if done is None:
                wire = await Wire.open(bootstrap)
        taken.append((time.monotonic() - begun) * 1000)
        await asyncio.sleep(max(begun + 1 / PER_S - time.monotonic(), 0))
    await wire.close()
    return taken, again


async def modest(bootstrap: str) -> tuple[float, int]:
    """p99 of all of them, ms, and how many records were sent again."""
    found = await asyncio.gather(*(one(bootstrap) for _ in range(MODEST)))
    taken = sorted(each for many, _ in found for each in many)
    return taken[len(taken) * 99 // 100], sum(again for _, again in found)


def beside(agent: FloeAgent, settle_s: float) -> tuple[float, int]:
    """The same beside a greedy one."""
    with running(script(PRODUCER, agent, "greedy")):
        time.sleep(settle_s)
        return asyncio.run(modest(agent.bootstrap))


def figures() -> Iterable[Figure]:
    """One agent on etcd and MinIO."""
    with ExitStack() as stack:
        etcd, minio = stack.enter_context(Etcd()), stack.enter_context(Minio())
        agent = stack.enter_context(FloeAgent("agent", on_services(etcd, minio, minio.make_bucket("bench"))))
        for topic in ("greedy", "modest"):
            asyncio.run(create_topic(agent.bootstrap, topic, 1))
        alone, first = asyncio.run(modest(agent.bootstrap))
        without, second = beside(agent, 10)
        limit(agent, "producer_byte_rate", GREEDY_QUOTA)
        with_quota, third = beside(agent, 15)
    name = "p99 of ten modest producers beside a greedy one"
    yield Figure(f"{name}, no quota", without, "ms", "without it", alone, better="less")
    yield Figure(f"{name} with 2 MB/s", with_quota, "ms", "no quota", without, 0.5, better="less")
    yield Figure("records that the modest ones sent again", first + second + third, "records", better="less")
