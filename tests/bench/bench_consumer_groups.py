"""Groups of KIP-848: a member that joins a large group, and what its new target costs.

The members are raw frames in this process (tests/equipment/consumer_members.py) which heartbeat as often as
their broker tells them: mostly that is what the time until all own their share is made of.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from tempfile import TemporaryDirectory

from agent.kafka.groups.consumer.assignors import Subscriber, range_assignor, uniform_assignor
from deploy.services import Etcd, Minio
from deploy.services.kafka import Kafka
from tests.bench.figure import Figure, interleaved, median
from tests.bench.load import create_topic
from tests.compat.cluster import Cluster
from tests.equipment.consumer_members import ConsumerCrowd

MEMBERS, PARTITIONS = 100, 1_000
SPREAD_S = 5.0  # over which the members come: their heartbeats stay spread like that
SETTLE_S_MAX = 180.0
_numbers = itertools.count(1)


async def seconds_to_share(bootstrap: str) -> float:
    """From the first request of one member more until all own their share."""
    number = next(_numbers)
    topic = f"shared-{number}"
    await create_topic(bootstrap.split(",")[0], topic, PARTITIONS)
    crowd = ConsumerCrowd(bootstrap, f"crowd-{number}", {topic: PARTITIONS})
    spread = random.Random(number)
    for _ in range(MEMBERS):
        crowd.add()
        await asyncio.sleep(spread.random() * 2 * SPREAD_S / MEMBERS)
    await crowd.settled(SETTLE_S_MAX)
    await asyncio.sleep(spread.random() * SPREAD_S)
    crowd.one_epoch = False
    began = time.perf_counter()
    crowd.add()
    await crowd.settled(SETTLE_S_MAX)
    seconds = time.perf_counter() - began
    await crowd.stop()
    return seconds


def target_ms() -> dict[str, float]:
    """One member more in 1,000 members and 10,000 partitions: ms of each kind of assignor."""
    sizes = {bytes([number]) * 16: 1_000 for number in range(10)}
    topics = tuple(sizes)
    names = [f"m{number:04}" for number in range(1_000)]
    before = uniform_assignor([Subscriber(name, None, topics) for name in names], sizes)
    alike = [Subscriber(name, None, topics, before.get(name, {})) for name in [*names, "new"]]
    mixed = [
        Subscriber(name, None, topics[: 5 + place % 5], before.get(name, {}))
        for place, name in enumerate([*names, "new"])
    ]
    wanted = {topic: size for topic, size in sizes.items() if topic in topics[:9]}
    return {
        "uniform, equal subscriptions": _ms(lambda: uniform_assignor(alike, sizes)),
        "uniform, different subscriptions": _ms(lambda: uniform_assignor(mixed, wanted)),
        "range": _ms(lambda: range_assignor(alike, sizes)),
    }


def _ms(call: Callable[[], object]) -> float:
    def once() -> float:
        began = time.perf_counter()
        call()
        return (time.perf_counter() - began) * 1000

    return median(once)


def figures() -> Iterable[Figure]:
    """The figures of this bench."""
    for name, taken in target_ms().items():
        yield Figure(f"target of 1,001 members, 10,000 partitions: {name}", taken, "ms", better="less")
    with (
        TemporaryDirectory() as folder,
        Etcd() as etcd,
        Minio() as minio,
        Cluster(etcd, minio, 1, Path(folder)) as cluster,
        Kafka() as kafka,
    ):
        ours, theirs = interleaved(
            [
                lambda: asyncio.run(seconds_to_share(cluster.bootstrap)),
                lambda: asyncio.run(seconds_to_share(kafka.bootstrap)),
            ]
        )
    yield Figure(
        "KIP-848, 100 members, 1,000 partitions: one more, until all own their share",
        ours,
        "s",
        "Apache Kafka",
        theirs,
        goal=1.0,
        better="less",
    )
