"""Administration at size: 1,000 topics of 10 partitions in one request, then Metadata of all of them.

Floe (one agent on etcd and MinIO) and Apache Kafka are asked by the same raw requests, in turns, but
that Kafka takes no more than 10,000 metadata records in a request and gets two for the creation.
"""

from __future__ import annotations

import asyncio
import itertools
import statistics
import time
from collections.abc import Awaitable, Iterable
from contextlib import ExitStack

from agent.net.wire.generated import create_topics as ct
from agent.net.wire.generated import delete_topics as dt
from agent.net.wire.generated import metadata as m
from deploy.services import Etcd, Minio
from deploy.services.floe import FloeAgent
from deploy.services.kafka import Kafka
from tests.bench.agents import on_services
from tests.bench.figure import ROUNDS, Figure
from tests.bench.load import Wire, frame_of

TOPICS, PARTITIONS = 1_000, 10
ASKED = 15
AT_ONCE = {"floe": TOPICS, "kafka": TOPICS // 2}  # Kafka: "excessively large batch operation"
_runs = itertools.count(1)


async def create(wire: Wire, names: list[str], at_once: int) -> None:
    """All topics, `at_once` in one request."""
    for start in range(0, len(names), at_once):
        await create_together(wire, names[start : start + at_once])


async def create_together(wire: Wire, names: list[str]) -> None:
    """One request."""
    topics = [ct.CreatableTopic(name, PARTITIONS, 1) for name in names]
    answer = await wire.call("CreateTopics", ct.CreateTopicsRequest(topics, 60_000), 7)
    refused = {(row.error_code, row.error_message) for row in answer.topics if row.error_code}
    assert not refused, refused


async def delete(wire: Wire, names: list[str]) -> None:
    """The topics again."""
    topics = [dt.DeleteTopicState(name=name) for name in names]
    answer = await wire.call("DeleteTopics", dt.DeleteTopicsRequest(topics, [], 60_000), 6)
    assert [row.error_code for row in answer.responses] == [0] * len(names)


async def shown(wire: Wire) -> int:
    """How many partitions Metadata of all topics has."""
    answer = await wire.call("Metadata", m.MetadataRequest(None, False), 13)
    return sum(len(topic.partitions) for topic in answer.topics)


async def settled(wire: Wire, partitions: int) -> None:
    """Kafka's brokers notice a moment after the answer."""
    async with asyncio.timeout(120):
        while await shown(wire) != partitions:  # noqa: ASYNC110  # it is another process that changes
            await asyncio.sleep(0.1)


async def timed(call: Awaitable[object]) -> float:
    """Seconds."""
    began = time.perf_counter()
    await call
    return time.perf_counter() - began


async def raw_metadata(wire: Wire, frame: bytes) -> None:
    """One request and its answer, not decoded: the client's own work is not measured."""
    await wire.send(frame)
    assert len(await wire.receive()) > TOPICS * PARTITIONS


async def run(floe: str, kafka: str) -> dict[str, list[float]]:
    """Seconds by what was measured."""
    sides = {"floe": await Wire.open(floe), "kafka": await Wire.open(kafka)}
    found: dict[str, list[float]] = {}
    # With operations, which `settled` does not ask for: the first answer is not ready yet.
    request = m.MetadataRequest(None, False, include_topic_authorized_operations=True)
    frame = frame_of("Metadata", request, 12)
    for _ in range(ROUNDS):
        number = next(_runs)
        names = [f"bench-{number}-{index}" for index in range(TOPICS)]
        for side, wire in sides.items():
            found.setdefault(f"create {side}", []).append(await timed(create(wire, names, AT_ONCE[side])))
            await settled(wire, TOPICS * PARTITIONS)
        for side, wire in sides.items():
            first = await timed(raw_metadata(wire, frame))
            found.setdefault(f"first {side}", []).append(first)
        for side, wire in itertools.islice(itertools.cycle(sides.items()), 2 * ASKED):
            found.setdefault(f"again {side}", []).append(await timed(raw_metadata(wire, frame)))
        for wire in sides.values():
            await delete(wire, names)
            await settled(wire, 0)
    for wire in sides.values():
        await wire.close()
    return found


def figures() -> Iterable[Figure]:
    """Creation, then Metadata when nothing is ready and when everything is."""
    with ExitStack() as stack:
        etcd, minio = stack.enter_context(Etcd()), stack.enter_context(Minio())
        settings = on_services(etcd, minio, minio.make_bucket("bench"))
        agent = stack.enter_context(FloeAgent("agent", settings))
        kafka = stack.enter_context(Kafka())
        found = {
            name: statistics.median(times)
            for name, times in asyncio.run(run(agent.bootstrap, kafka.bootstrap)).items()
        }
    created = f"CreateTopics, {TOPICS:,} topics x {PARTITIONS} in one request"
    asked = f"Metadata of {TOPICS * PARTITIONS:,} partitions"
    peer = "Apache Kafka 4.3.1"
    yield Figure(created, found["create floe"], "s", goal=5, better="less")
    yield Figure(
        f"{created}, beside Kafka (in two)",
        found["create floe"],
        "s",
        peer,
        found["create kafka"],
        better="less",
    )
    for name, key, goal in (("first asked for", "first", 60), ("from the cache", "again", 25)):
        ours, theirs = found[f"{key} floe"] * 1000, found[f"{key} kafka"] * 1000
        yield Figure(f"{asked}, {name}", ours, "ms", goal=goal, better="less")
        yield Figure(f"{asked}, {name}, beside Kafka", ours, "ms", peer, theirs, better="less")
