"""What the tables of very many topics cost an agent when each gets little: CPU, objects, how late rows are.

One agent on etcd and MinIO; 1,000 topics of 10 partitions, a record of 100 bytes for each partition every ten
seconds. The same load without tables is taken off, so what is left is the committers' own, with their helper
process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

from agent.net.wire.generated import produce as p
from deploy.services import Etcd, Minio
from deploy.services.floe import FloeAgent
from objectstore.batch import NewRecord, build
from objectstore.open import open_store
from tests.bench.agents import on_services
from tests.bench.bench_admin import create
from tests.bench.figure import Figure
from tests.bench.load import NOW, PRODUCE_VERSION, Wire, cpu_seconds, decoded, frame_of
from tests.bench.scrape import metrics

TOPICS, PARTITIONS = 1_000, 10
TURN_S = 10  # each topic gets its records once in it
WARM_S, MEASURED_S = 60, 180
CPU_GOAL = 10.0  # percent of a core


class Spent(NamedTuple):
    """Since the start: CPU seconds of agent and helper, objects of tables; and the oldest row not in one."""

    cpu_s: float
    objects: int
    behind_s: float


def family_cpu_s(pid: int) -> float:
    """Of a process and the helpers that it started."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return cpu_seconds(pid) + sum(family_cpu_s(int(child)) for child in children)


async def trickle(bootstrap: str, seconds: int) -> None:
    """So many turns of all topics, a part of them each second."""
    wire = await Wire.open(bootstrap)
    batch = memoryview(build([NewRecord(NOW, None, b"v" * 100)]))
    rows = [p.PartitionProduceData(index, batch) for index in range(PARTITIONS)]
    loop = asyncio.get_running_loop()
    begun = loop.time()
    for second in range(seconds):
        names = [f"t{number:04}" for number in range(second % TURN_S, TOPICS, TURN_S)]
        data = [p.TopicProduceData(name, partition_data=rows) for name in names]
        request = p.ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=data)
        await wire.send(frame_of("Produce", request, PRODUCE_VERSION))
        answer = decoded("Produce", PRODUCE_VERSION, await wire.receive())
        codes = {row.error_code for topic in answer.responses for row in topic.partition_responses}
        assert codes == {0}, codes
        await asyncio.sleep(max(0.0, begun + second + 1 - loop.time()))
    await wire.close()


async def objects(url: str, minio: Minio) -> int:
    """Objects of tables that were ever stored: none is deleted before a day is over."""
    keys: dict[str, Any] = {"access_key": minio.access_key, "secret_key": minio.secret_key}
    store = open_store(url, endpoint=minio.endpoint, allow_http=True, **keys)
    found = 0
    async for page in store.list("tables/"):
        found += len(page)
    await store.close()
    return found


def one(tables: bool) -> tuple[Spent, Spent]:
    """Before and after MEASURED_S of the load."""
    with ExitStack() as stack:
        etcd, minio = stack.enter_context(Etcd()), stack.enter_context(Minio())
        bucket = minio.make_bucket("bench")
        settings = on_services(etcd, minio, bucket, tables={"enabled": tables})
        agent = stack.enter_context(FloeAgent("agent", settings))

        def spent() -> Spent:
            stored = asyncio.run(objects(f"s3://{bucket}/floe", minio))
            late = max(metrics(agent.http, "floe_table_seconds_behind")) if tables else 0.0
            return Spent(family_cpu_s(agent.pid), stored, late)

        async def load() -> tuple[Spent, Spent]:
            wire = await Wire.open(agent.bootstrap)
            await create(wire, [f"t{number:04}" for number in range(TOPICS)], TOPICS)
            await wire.close()
            await trickle(agent.bootstrap, WARM_S)
            before = await asyncio.to_thread(spent)
            await trickle(agent.bootstrap, MEASURED_S)
            return before, await asyncio.to_thread(spent)

        return asyncio.run(load())


def figures() -> Iterable[Figure]:
    """The committers' own, of a core and of the bucket."""
    without, with_tables = one(tables=False), one(tables=True)
    bare, whole = (after.cpu_s - before.cpu_s for before, after in (without, with_tables))
    stored = with_tables[1].objects - with_tables[0].objects
    title = f"tables of {TOPICS:,} topics x {PARTITIONS}, a record in each partition every {TURN_S} s"
    percent = (whole - bare) / MEASURED_S * 100
    yield Figure(f"{title}: CPU", percent, "% of a core", goal=CPU_GOAL, better="less")
    yield Figure(f"{title}: objects stored", stored * 3600 / MEASURED_S, "PUTs/h", better="less")
    yield Figure(f"{title}: oldest row not in its table", with_tables[1].behind_s, "s", better="less")
    yield Figure(f"{title}: the agent without tables", bare / MEASURED_S * 100, "% of a core", better="less")


if __name__ == "__main__":
    for figure in figures():
        print(figure.line(), flush=True)
