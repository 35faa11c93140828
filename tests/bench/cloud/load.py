"""An open-loop load of raw frames, and what a consumer sees of it.

Requests are due at fixed times whatever the answers do, and latencies count from when a request was due, so a
stall is felt by all that was to be sent in it (no coordinated omission). A request holds one batch, as after
a client's linger; the wait in there is the same for everybody and not counted. Acknowledged: its answer is
here. End to end: a consumer that reads all partitions has its batch.
"""

from __future__ import annotations

import asyncio
import statistics
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from agent.net.wire.api import BY_NAME
from agent.net.wire.frame import parse_response_header
from agent.net.wire.generated import fetch as f
from agent.net.wire.generated import produce as p
from tests.bench.load import (
    FETCH_VERSION,
    PRODUCE_VERSION,
    RECORD_BYTES,
    Wire,
    batch_of,
    fetch_frame,
    produce_frame,
)

PARTITIONS = 16
PERIODS_S = {1: 0.010, 16: 0.020, 200: 0.200}
"""By the number of producers, how often each sends: 100 to 1,000 requests a second as their linger goes."""
FETCH_BYTES_MAX = 8 << 20
SETTLE_S_MAX, SETTLE_STEP_S = 20.0, 0.02
Place = tuple[int, int]  # partition and base offset


@dataclass(frozen=True, slots=True)
class Load:
    """`rate` bytes a second from so many producers; what is due before `warm_s` is not counted."""

    rate: float
    producers: int
    seconds: float
    warm_s: float = 3.0
    seed: int = 1

    @property
    def period_s(self) -> float:
        """Between two requests of a producer."""
        return PERIODS_S[self.producers]

    @property
    def records(self) -> int:
        """In each request."""
        return max(1, round(self.rate * self.period_s / self.producers / RECORD_BYTES))

    @property
    def mib(self) -> float:
        """Record bytes that are counted."""
        requests = (self.seconds - self.warm_s) / self.period_s * self.producers
        return requests * self.records * RECORD_BYTES / 2**20


@dataclass(slots=True)
class Seen:
    """By batch: when it was due, when it was acknowledged, and when each consumer had it; loop seconds."""

    due: dict[Place, float] = field(default_factory=dict)
    acknowledged: dict[Place, float] = field(default_factory=dict)
    failed: int = 0

    def acks_ms(self, since: float) -> list[float]:
        """From due to acknowledged."""
        return [1000 * (self.acknowledged[at] - due) for at, due in self.due.items() if due >= since]

    def ends_ms(self, had: Mapping[Place, float], since: float) -> list[float]:
        """From due to a consumer's having it. Raises KeyError where it has not."""
        return [1000 * (had[at] - due) for at, due in self.due.items() if due >= since]


async def produce(bootstrap: str, topic: str, load: Load, number: int, start: float, seen: Seen) -> None:
    """One producer; a batch each time, the partitions in turns."""
    loop, wire = asyncio.get_running_loop(), await Wire.open(bootstrap)
    batch = batch_of(load.records)
    frames = [produce_frame(topic, batch, [index]) for index in range(PARTITIONS)]
    asked: deque[tuple[int, float]] = deque()
    due = start + Random(load.seed * 1_000 + number).random() * load.period_s
    reading = asyncio.create_task(_answers(wire, asked, seen))
    turn = number
    while due < start + load.seconds:
        if (left := due - loop.time()) > 0:
            await asyncio.sleep(left)
        asked.append((turn % PARTITIONS, due))
        await wire.send(frames[turn % PARTITIONS])
        turn, due = turn + 1, due + load.period_s
    until = loop.time() + SETTLE_S_MAX
    for _ in range(int(SETTLE_S_MAX / SETTLE_STEP_S)):
        if not asked or reading.done() or loop.time() > until:
            break
        await asyncio.sleep(SETTLE_STEP_S)
    seen.failed += len(asked)
    reading.cancel()
    await asyncio.wait([reading])
    await wire.close()


async def _answers(wire: Wire, asked: deque[tuple[int, float]], seen: Seen) -> None:
    loop = asyncio.get_running_loop()
    while True:
        payload = await wire.receive()
        now = loop.time()
        _, start = parse_response_header(BY_NAME["Produce"], PRODUCE_VERSION, payload)
        answer = p.decode_response(memoryview(payload)[start:], PRODUCE_VERSION)
        told = answer.responses[0].partition_responses[0]
        partition, due = asked.popleft()
        if told.error_code:
            seen.failed += 1
            continue
        seen.due[partition, told.base_offset] = due
        seen.acknowledged[partition, told.base_offset] = now


async def consume(bootstrap: str, topic: str, records: int, had: dict[Place, float]) -> None:
    """Read all partitions from their beginning, for ever; every batch has so many records."""
    loop, wire, offsets = asyncio.get_running_loop(), await Wire.open(bootstrap), [0] * PARTITIONS
    while True:
        await wire.send(fetch_frame(topic, offsets, FETCH_BYTES_MAX, FETCH_BYTES_MAX))
        payload = await wire.receive()
        now = loop.time()
        _, start = parse_response_header(BY_NAME["Fetch"], FETCH_VERSION, payload)
        answer = f.decode_response(memoryview(payload)[start:], FETCH_VERSION)
        for part in answer.responses[0].partitions if answer.responses else ():
            held: Any = part.records or b""
            view, at = memoryview(held), 0
            while at < len(view):
                had[part.partition_index, offsets[part.partition_index]] = now
                at += 12 + int.from_bytes(view[at + 8 : at + 12], "big")
                offsets[part.partition_index] += records


@dataclass(frozen=True, slots=True)
class Measured:
    """Latencies in ms of all requests that count: acknowledged, and end to end by each consumer."""

    acknowledged: list[float]
    ends: list[list[float]]
    failed: int


async def run(bootstrap: str, readers: Sequence[str], topic: str, load: Load) -> Measured:
    """The load on one agent, and a consumer at each of `readers`."""
    loop, seen = asyncio.get_running_loop(), Seen()
    had: list[dict[Place, float]] = [{} for _ in readers]
    reading = [
        asyncio.create_task(consume(reader, topic, load.records, places))
        for reader, places in zip(readers, had, strict=True)
    ]
    start = loop.time() + 1.0
    try:
        await asyncio.gather(
            *(produce(bootstrap, topic, load, number, start, seen) for number in range(load.producers))
        )
        deadline = loop.time() + SETTLE_S_MAX
        while any(len(places) < len(seen.due) for places in had) and loop.time() < deadline:
            for each in reading:
                if each.done():
                    each.result()
            await asyncio.sleep(0.05)
    finally:
        for each in reading:
            each.cancel()
        await asyncio.wait(reading)
    since = start + load.warm_s
    return Measured(seen.acks_ms(since), [seen.ends_ms(places, since) for places in had], seen.failed)


def percentiles(values: Sequence[float]) -> tuple[float, float, float]:
    """p50, p99, p99.9."""
    cuts = statistics.quantiles(values, n=1000)
    return cuts[499], cuts[989], cuts[998]
