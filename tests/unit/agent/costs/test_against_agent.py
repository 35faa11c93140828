"""What the model says of PUTs and of the log, held against what a real agent counts of itself."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from agent.config.limits import ProduceConfig
from agent.costs import coefficients as measured
from agent.costs.flushing import interval_s
from deploy.services.floe import FloeAgent
from tests.bench.bench_produce import embedded
from tests.bench.load import Wire, batch_of, check, create_topic, produce_frame
from tests.bench.scrape import metric

CONNECTIONS, REQUESTS, PARTITIONS = 16, 60, 16
PAUSE_S = 0.03
NEAR = 2.0
"""How far off it may be: durations are what the agent measured, but a busy machine's loop is late besides."""
COUNTED = (
    "floe_put_seconds_count",
    "floe_put_seconds_sum",
    "floe_append_seconds_count",
    "floe_append_seconds_sum",
    "floe_append_bytes_total",
    "floe_produce_bytes_total",
)


async def written(bootstrap: str, connection: int) -> None:
    """Requests of one batch, one after the other with a pause between, of one connection."""
    frame = produce_frame("costs", batch_of(4), [connection % PARTITIONS])
    wire = await Wire.open(bootstrap)
    await asyncio.sleep(PAUSE_S * connection / CONNECTIONS)
    for _ in range(REQUESTS):
        await wire.send(frame)
        check(await wire.receive())
        await asyncio.sleep(PAUSE_S)
    await wire.close()


async def load(bootstrap: str) -> float:
    """Seconds that all of it took."""
    begin = time.perf_counter()
    await asyncio.gather(*(written(bootstrap, each) for each in range(CONNECTIONS)))
    return time.perf_counter() - begin


def test_puts_and_bytes_of_the_log_are_those_of_an_agent(tmp_path: Path) -> None:
    with FloeAgent("costs", embedded(str(tmp_path)), tmp_path) as agent:
        asyncio.run(create_topic(agent.bootstrap, "costs", PARTITIONS))
        before = {name: metric(agent.http, name) for name in COUNTED}
        seconds = asyncio.run(load(agent.bootstrap))
        spent = {name: metric(agent.http, name) - before[name] for name in COUNTED}
    requests = CONNECTIONS * REQUESTS
    size = spent["floe_produce_bytes_total"]
    assert size >= requests * 3_900
    flush_s = sum(spent[f"floe_{each}_seconds_sum"] for each in ("put", "append"))
    flush_s /= spent["floe_put_seconds_count"]
    expected = seconds / interval_s(ProduceConfig(), size / seconds, size / requests, flush_s)
    puts = spent["floe_put_seconds_count"]
    print(f"PUTs: {puts:.0f}, by the model {expected:.0f}; a flush took {flush_s * 1000:.1f} ms")
    assert expected / NEAR <= puts <= expected * NEAR
    per_batch = spent["floe_append_bytes_total"] / requests
    print(f"bytes of the log per batch: {per_batch:.1f}, coefficient {measured.LOG_BYTES_PER_BATCH.value}")
    assert per_batch >= measured.LOG_BYTES_PER_BATCH.value / NEAR
