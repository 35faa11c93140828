"""How long after its acknowledgement a record is a row that everybody sees, with the settings of a newcomer.

One agent on etcd and MinIO. A row is seen when the catalog tells of a snapshot with that many rows: engines
ask it the same way. Rows are counted in the order in which records were acknowledged.
"""

from __future__ import annotations

import asyncio
import json
import statistics
from bisect import bisect_left
from collections.abc import Iterable
from contextlib import ExitStack
from typing import NamedTuple

from deploy.services import Etcd, Minio
from deploy.services.floe import FloeAgent
from tests.bench.agents import on_services
from tests.bench.asking import Client, get
from tests.bench.figure import Figure
from tests.bench.load import Wire, batch_of, check, create_topic, produce_frame

SECONDS = 60
LOOK_S = 0.05
LATE_S_MAX = 120


class Load(NamedTuple):
    """So many requests per second, each with a batch of so many records of 1 kB for each partition."""

    topic: str
    partitions: int
    requests_per_s: int
    records: int
    goal_s: float

    @property
    def rows(self) -> int:
        """Records of one request."""
        return self.partitions * self.records


TRICKLE = Load("trickle", 1, 10, 1, 5.0)
HEAVY = Load("heavy", 16, 10, 64, 10.0)  # 10.5 MB/s


async def produced(agent: FloeAgent, load: Load, requests: int) -> list[float]:
    """When each request was acknowledged, event loop time."""
    wire, loop, acked = await Wire.open(agent.bootstrap), asyncio.get_running_loop(), []
    frame = produce_frame(load.topic, batch_of(load.records), range(load.partitions))
    begun = loop.time()
    for number in range(requests):
        await asyncio.sleep(max(0.0, begun + number / load.requests_per_s - loop.time()))
        await wire.send(frame)
        check(await wire.receive())
        acked.append(loop.time())
    await wire.close()
    return acked


async def seen(agent: FloeAgent, load: Load, rows: int) -> list[tuple[int, float]]:
    """Rows that the catalog told of, and since when; until so many are there."""
    client, loop = await Client.open(agent.http_port), asyncio.get_running_loop()
    request, found = get(f"/iceberg/v1/namespaces/floe/tables/{load.topic}"), [(0, 0.0)]
    async with asyncio.timeout(SECONDS + LATE_S_MAX):
        while found[-1][0] < rows:
            head, body = await client.answer(request)  # at first there is no table
            told = rows_of(body) if head.startswith(b"HTTP/1.1 200") else 0
            if told > found[-1][0]:
                found.append((told, loop.time()))
            await asyncio.sleep(LOOK_S)
    client.close()
    return found


def rows_of(answer: bytes) -> int:
    """How many the table has now."""
    metadata = json.loads(answer)["metadata"]
    now = metadata.get("current-snapshot-id")
    snapshots = (each for each in metadata.get("snapshots") or () if each["snapshot-id"] == now)
    return next((int(each["summary"]["total-records"]) for each in snapshots), 0)


async def late(agent: FloeAgent, load: Load) -> list[float]:
    """Seconds from the acknowledgement of each request until all its rows were seen.

    The topic has its table before.
    """
    await create_topic(agent.bootstrap, load.topic, load.partitions)
    await produced(agent, load, 1)
    await seen(agent, load, load.rows)
    requests = SECONDS * load.requests_per_s
    acked, looked = await asyncio.gather(
        produced(agent, load, requests), seen(agent, load, (1 + requests) * load.rows)
    )
    counts = [rows for rows, _ in looked]
    ends = [(number + 2) * load.rows for number in range(requests)]
    return [looked[bisect_left(counts, end)][1] - at for end, at in zip(ends, acked, strict=True)]


def figures() -> Iterable[Figure]:
    """p50 and p99 of both loads."""
    for load in (TRICKLE, HEAVY):
        with ExitStack() as services:
            etcd, minio = services.enter_context(Etcd()), services.enter_context(Minio())
            settings = on_services(etcd, minio, minio.make_bucket("bench"), tables={"enabled": True})
            agent = services.enter_context(FloeAgent("floe", settings))
            found = statistics.quantiles(asyncio.run(late(agent, load)), n=100)
        megabytes = load.requests_per_s * load.rows / 1000
        title = (
            f"from acknowledged to seen in the table, {megabytes:.2f} MB/s in {load.partitions} partitions"
        )
        yield Figure(f"{title}: p50", found[49], "s", better="less")
        yield Figure(f"{title}: p99", found[98], "s", goal=load.goal_s, better="less")


if __name__ == "__main__":
    for one in figures():
        print(one.line(), flush=True)
