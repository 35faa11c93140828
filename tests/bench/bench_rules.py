"""Rules of protovalidate: records per second of one core, several workers over one, produce with them."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import time
import urllib.request
from base64 import b64encode
from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from agent.config import RulesConfig
from agent.net.wire.generated import create_topics as ct
from agent.rules.messages import Check, Findings
from agent.rules.pool import RulesPool
from agent.rules.process import Worker
from deploy.services.floe import FloeAgent
from objectstore.batch import NewRecord, build
from schema.rules.ruled import Ruled, Run
from tests.bench.bench_produce import embedded
from tests.bench.bench_schema import flight_values, median_rate
from tests.bench.figure import Figure, interleaved
from tests.bench.load import CREATE_VERSION, NOW, Wire, produce_all, produce_frame
from tests.unit.schema import samples

BATCH_RECORDS = 4_000  # 0.5 MB, a large batch
BATCHES = 8  # of a measurement
PARTITIONS, CONNECTIONS, REQUESTS, WINDOW = 2, 3, 24, 3
WORKERS = 4
BAD_MONTH = bytes((2 << 3, 13))  # field 2, a varint
KIND = samples.message_type(samples.RULED_FLIGHTS, "nyc.Flight")
_topics = itertools.count(1)


def batch(bad_every: int = 0) -> bytes:
    """Flights that obey their rules, but for one of so many."""
    values = list(flight_values(BATCH_RECORDS))
    for place in range(0, BATCH_RECORDS, bad_every) if bad_every else ():
        values[place] += BAD_MONTH  # the last value of a field counts
    return build([NewRecord(NOW, None, value) for value in values])


def per_core(sent: bytes) -> float:
    """Records per CPU second, decoding of the batch included, as a worker does it."""
    source = {0: (KIND.descriptor_set, KIND.name)}
    check = Check([0], {"value": [Run(0, 0, 0)]}, 0, BATCH_RECORDS, 128, True, source, roles=["value"])
    worker = Worker()

    def work() -> None:
        found, _ = worker.answer(check, memoryview(sent))
        assert isinstance(found, Findings)
        assert (found.records, found.bad_records) == (BATCH_RECORDS, 0)

    work()
    return median_rate(work, BATCH_RECORDS)


async def pooled(workers: int, sent: bytes) -> float:
    """Records per second of topics side by side, with so many workers."""
    pool = RulesPool(RulesConfig(workers=workers))
    ruled = Ruled(["value"])
    ruled.note("value", 0, KIND, 0)

    async def topic(name: str, count: int) -> None:
        for _ in range(count):
            await pool.check(name, memoryview(sent), ruled, BATCH_RECORDS, stop=True)

    names = [f"t{number}" for number in range(WORKERS)]
    try:
        await asyncio.gather(*(topic(name, 1) for name in names))
        begin = time.perf_counter()
        await asyncio.gather(*(topic(name, BATCHES) for name in names))
        return len(names) * BATCHES * BATCH_RECORDS / (time.perf_counter() - begin)
    finally:
        await pool.close()


async def load(agent: FloeAgent, policy: str, sent: bytes) -> float:
    """Records per second of one run on a fresh topic that is bound to flights with rules."""
    topic = f"rules-{next(_topics)}"
    wire = await Wire.open(agent.bootstrap)
    wanted = ct.CreatableTopic(name=topic, num_partitions=PARTITIONS, replication_factor=-1)
    wanted.configs = [ct.CreatableTopicConfig("floe.value.rules", policy)]
    request = ct.CreateTopicsRequest(topics=[wanted], timeout_ms=10_000)
    answer = await wire.call("CreateTopics", request, CREATE_VERSION)
    assert answer.topics[0].error_code == 0, answer
    await wire.close()
    await asyncio.to_thread(bind, agent.http, topic)
    frame = produce_frame(topic, sent, range(PARTITIONS))
    await produce_all(agent.bootstrap, frame, 2, 1)  # its workers run
    begin = time.perf_counter()
    await asyncio.gather(*[produce_all(agent.bootstrap, frame, REQUESTS, WINDOW) for _ in range(CONNECTIONS)])
    return CONNECTIONS * REQUESTS * PARTITIONS * BATCH_RECORDS / (time.perf_counter() - begin)


def bind(http: str, topic: str) -> None:
    """Bind a topic's values to flights with rules."""
    body = {"message": KIND.name, "descriptor_set": b64encode(KIND.descriptor_set).decode()}
    request = urllib.request.Request(f"{http}/admin/topics/{topic}/schema", json.dumps(body).encode())
    with urllib.request.urlopen(request, timeout=30) as answer:
        assert answer.status == 200


def measured(run: Callable[..., Coroutine[Any, Any, float]], *given: Any) -> float:
    """What a run gives, in an event loop of its own."""
    return asyncio.run(run(*given))


def figures() -> Iterable[Figure]:
    """One core; several workers where there are cores; produce with `reject`, `off`, and `quarantine`."""
    sent = batch()
    name = "rules of flights, three standard ones and one in CEL"
    yield Figure(name, per_core(sent), "records/s/core", goal=100_000)
    if (os.cpu_count() or 1) > WORKERS:
        many, one = interleaved([partial(measured, pooled, each, sent) for each in (WORKERS, 1)])
        yield Figure(f"the same by {WORKERS} workers", many, "records/s", "one worker", one, goal=3)
    with TemporaryDirectory() as folder:
        settings = {**embedded(folder), "rules": {"workers": WORKERS}}
        with FloeAgent("bench", settings, Path(folder)) as agent:
            peers = [partial(measured, load, agent, policy, sent) for policy in ("reject", "off")]
            reject, off = interleaved(peers)
            apart = [partial(measured, load, agent, "quarantine", each) for each in (batch(100), sent)]
            bad, good = interleaved(apart)
    yield Figure(
        "produce with 1 % of the flights to quarantine", bad, "records/s", "all good", good, goal=0.8
    )
    yield Figure(
        "produce of flights with these rules, large batches", reject, "records/s", "off", off, goal=0.6
    )
