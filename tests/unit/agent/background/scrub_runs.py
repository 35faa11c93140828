"""Many damages of small buckets, each repeated by two numbers: the cluster's seed, and which damage of it.

A cluster lives in virtual time (tests/sim), with a clock, ids and dice of its seed, so that its bucket is the
same whenever that seed is run, but for the bytes by which pyiceberg marks blocks of Avro, and checksums of
files that lead there. Nothing is shared between two clusters.

    python -m tests.unit.agent.background.scrub_runs --damages 1000 [--seed 19] [--s3 40]
"""

from __future__ import annotations

import argparse
import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from random import Random
from typing import NamedTuple

import structlog

from coordination.clock import Clock, SystemClock
from coordination.memory_server import MemoryServer
from deploy.services import Minio
from objectstore.adapters.memory import MemoryStore
from objectstore.open import open_store
from objectstore.store import ObjectStore
from tests.contract.test_store import s3_options
from tests.sim.clock import START_MS, SimClock, virtual_time
from tests.sim.loop import VirtualLoop
from tests.unit.agent.background.scrub_rig import Cluster, cluster, trial
from tests.unit.agent.rig import start_agent

DAMAGES_OF_CLUSTER = 20
TEXT_MAX = 2000
ROWS = (4, 6, 10)
"""Of each partition, twice: how many batches it has."""


class Missed(NamedTuple):
    """A damage that did not end as it must. `number`: of the cluster's, from 0 on."""

    seed: int
    number: int
    problem: str


@asynccontextmanager
async def seeded(seed: int, store: ObjectStore, clock: Clock) -> AsyncIterator[Cluster]:
    """The cluster of a seed."""
    agent = await start_agent(MemoryServer("scrub"), store, clock=clock)
    try:
        yield await cluster(agent, store, Random(seed).choice(ROWS))
    finally:
        await agent.stop()


def damages(seed: int, count: int, digest: list[str] | None = None) -> tuple[Counter[str], list[Missed]]:
    """What came of so many damages of one cluster; it ends with the first that was missed.

    `digest` is given every key of the bucket as it was before the first.
    """
    loop = VirtualLoop(seed)
    clock, missed = SimClock(loop, seed), list[Missed]()

    async def run() -> Counter[str]:
        store = MemoryStore(lambda: START_MS + int(loop.time() * 1000))
        async with seeded(seed, store, clock) as made:
            if digest is not None:
                digest[:] = sorted(made.sound)
            return await _damaged(made, seed, count, missed)

    asyncio.set_event_loop(loop)
    try:
        with virtual_time(loop, seed):
            found = loop.run_until_complete(run())
            loop.put_away()
    finally:
        asyncio.set_event_loop(None)
    return found, missed


async def _damaged(made: Cluster, seed: int, count: int, missed: list[Missed]) -> Counter[str]:
    random, found = Random(seed), Counter[str]()
    for number in range(count):
        try:
            found[await trial(made, random)] += 1
        except AssertionError as error:
            missed.append(Missed(seed, number, str(error)[:TEXT_MAX]))
            break
    return found


async def damages_of(store: ObjectStore, seed: int, count: int) -> tuple[Counter[str], list[Missed]]:
    """The same in any store, in the time of the world: ids are not the seed's then."""
    missed = list[Missed]()
    async with seeded(seed, store, SystemClock()) as made:
        return await _damaged(made, seed, count, missed), missed


def many(seed: int, count: int) -> tuple[Counter[str], Sequence[Missed]]:
    """So many damages, of as many clusters as that takes, from this seed on. Goes on behind a miss."""
    found, missed = Counter[str](), list[Missed]()
    left = count
    while left > 0:
        some, problems = damages(seed, min(left, DAMAGES_OF_CLUSTER))
        found += some
        missed += problems
        left -= DAMAGES_OF_CLUSTER
        seed += 1
    return found, missed


def told(found: Counter[str]) -> str:
    """In short, for people."""
    ends = Counter(each.rsplit(" ", 1)[1] for each in found.elements())
    return f"{found.total()} damages, all found: {dict(ends)}; {dict(sorted(found.items()))}"


def main() -> None:
    """As many as are asked for, and some in a MinIO. Ends with status 1 where one was missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--damages", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=19, help="of the first cluster")
    parser.add_argument("--s3", type=int, default=40, help="damages of a bucket at a real S3 server besides")
    given = parser.parse_args()
    logging.disable(logging.CRITICAL)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    found, missed = many(given.seed, given.damages)
    print(told(found), flush=True)
    if given.s3:
        more, problems = asyncio.run(_at_s3(given.seed, given.s3))
        print(f"at a real S3 server: {told(more)}")
        missed = [*missed, *problems]
    for each in missed:
        print(f"MISSED: damage {each.number} of the cluster of seed {each.seed}: {each.problem}")
    raise SystemExit(bool(missed))


async def _at_s3(seed: int, count: int) -> tuple[Counter[str], list[Missed]]:
    with Minio() as server:
        store = open_store(f"s3://{server.make_bucket('damaged')}", **s3_options(server))
        try:
            return await damages_of(store, seed, count)
        finally:
            await store.close()


if __name__ == "__main__":
    main()
