"""The console with 10,000 topics and 1,000 groups: time, bytes, how late the loop is.

One agent, in this process, over memory log and store; asked without a socket, as a browser does again and
again for the live part. How late the loop is says a task that wants to run every millisecond: by the
processor time between its turns, as others may have the machine meanwhile.
"""

from __future__ import annotations

import asyncio
import gc
import statistics
import time
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

import httpx
from aiokafka import AIOKafkaProducer

from agent.app import App
from agent.config import Config
from agent.http import build
from coordination.commands import CommitOffsets, CreateTopic, command
from coordination.state.types import Done
from tests.bench.figure import ROUNDS, Figure

TOPICS, PARTITIONS, GROUPS, POSITIONS = 10_000, 3, 1_000, 30
ASKED = 20
WRITTEN = 100  # topics with a record
TOGETHER = 500  # commands in one entry
LIVE = {"X-Floe-Live": "1"}
SETTINGS: dict[str, object] = {
    "log": {"url": "memory:"},
    "store": {"url": "memory:"},
    "tables": {"enabled": False},
    "http": {"host": "127.0.0.1", "port": 0},
    "listeners": [{"host": "127.0.0.1", "port": 0}],
    "agent": {"name": "bench"},
}


@dataclass(slots=True)
class Seen:
    """Of one page: seconds, bytes, and how late the loop was at worst, seconds."""

    seconds: float
    size: int
    late: float


@asynccontextmanager
async def filled() -> AsyncIterator[App]:
    """An agent with topics and groups."""
    app = App(Config.model_validate(SETTINGS))
    await app.start()
    topics = [
        CreateTopic(name=f"topic-{number:05}", topic_id=number.to_bytes(16, "big"), partitions=PARTITIONS)
        for number in range(1, TOPICS + 1)
    ]
    await _propose(app, topics)
    groups = [
        CommitOffsets(
            group=f"group-{number:04}",
            generation=-1,
            partition=sorted(
                app.replica.state.topics[f"topic-{1 + (number + each * 7) % TOPICS:05}"].partitions[0].handle
                for each in range(POSITIONS)
            ),
            offset=[0] * POSITIONS,
        )
        for number in range(GROUPS)
    ]
    await _propose(app, groups)
    await _produce(app)
    gc.collect()
    gc.freeze()  # as an agent's process does once it has loaded
    yield app
    await app.stop()


async def _produce(app: App) -> None:
    """Records in partitions that groups have positions in, so that they are behind."""
    producer = AIOKafkaProducer(bootstrap_servers=f"127.0.0.1:{app.kafka_port}")
    await producer.start()
    for number in range(1, WRITTEN + 1):
        await producer.send_and_wait(f"topic-{number:05}", b"x", partition=0)
    await producer.stop()


async def _propose(app: App, messages: Sequence[CreateTopic | CommitOffsets]) -> None:
    for start in range(0, len(messages), TOGETHER):
        results = await app.replica.submit([command(each) for each in messages[start : start + TOGETHER]])
        assert all(isinstance(each, Done) for each in results)


async def seen(client: httpx.AsyncClient, path: str) -> Seen:
    """One answer."""
    worst = 0.0

    async def watch() -> None:
        nonlocal worst
        while True:
            before = time.process_time()
            await asyncio.sleep(0.001)
            worst = max(worst, time.process_time() - before)

    watching = asyncio.create_task(watch())
    await asyncio.sleep(0.01)
    worst, began = 0.0, time.perf_counter()
    answer = await client.get(path, headers=LIVE)
    took = time.perf_counter() - began
    await asyncio.sleep(0.002)  # what ran last counts too
    watching.cancel()
    assert answer.status_code == 200
    return Seen(took, len(answer.content), worst)


async def measured() -> dict[str, list[Seen]]:
    """By page."""
    async with filled() as app:
        transport = httpx.ASGITransport(app=build(app._parts()))
        found: dict[str, list[Seen]] = {}
        async with httpx.AsyncClient(transport=transport, base_url="http://agent", timeout=60) as client:
            for name, path in (
                ("overview", "/console"),
                ("topics", "/console/topics?after=topic-05000"),
                ("groups", "/console/groups"),
            ):
                found[name] = [await seen(client, path) for _ in range(ASKED * ROUNDS)]
            found["overview, groups looked at"] = []
            for _ in range(ASKED):  # an application of its own remembers no lags
                again = httpx.ASGITransport(app=build(app._parts()))
                async with httpx.AsyncClient(transport=again, base_url="http://agent", timeout=60) as fresh:
                    found["overview, groups looked at"].append(await seen(fresh, "/console"))
        return found


def figures() -> Iterable[Figure]:
    """Medians of time and lateness, the largest size; the first of each is among them."""
    goals = dict.fromkeys(("overview", "overview, groups looked at"), (200.0, 50.0, 5.0))
    for name, rows in asyncio.run(measured()).items():
        took, size, late = goals.get(name, (None, None, None))
        where = f"console, {name} with {TOPICS:,} topics and {GROUPS:,} groups"
        median = statistics.median(each.seconds for each in rows)
        yield Figure(f"{where}: median time", median * 1000, "ms", goal=took, better="less")
        largest = max(each.size for each in rows)
        yield Figure(f"{where}: size of a refresh", largest / 1024, "KiB", goal=size, better="less")
        lateness = statistics.median(each.late for each in rows)
        yield Figure(f"{where}: the loop late by", lateness * 1000, "ms", goal=late, better="less")
