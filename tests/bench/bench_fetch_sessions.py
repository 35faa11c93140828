"""What a Fetch of 2,000 partitions costs an agent when one of them has a record: with a session and without.

In one process, from the bytes of a request to those of its answer, log and store in memory; CPU time of the
loop, the two by turns. The consumer does what it must: it asks for the partition behind the record then.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Iterable
from typing import NamedTuple

from agent.net.wire.api import BY_NAME
from agent.net.wire.frame import RequestHeader
from agent.net.wire.generated import fetch as codec
from coordination.memory_server import MemoryServer
from objectstore.adapters.memory import MemoryStore
from tests.bench.figure import Figure
from tests.equipment.fetch_session import FetchSession
from tests.unit.agent.kafka.test_handlers_produce_fetch import create, produce
from tests.unit.agent.rig import Agent, batch, start_agent

PARTITIONS, ROUNDS = 2_000, 20
VERSION = 12
RECORD = batch(b"v" * 100)
HEADER = RequestHeader(BY_NAME["Fetch"].key, VERSION, 1, "bench", 0)


class Cost(NamedTuple):
    """Of one Fetch: the agent's CPU, milliseconds; bytes of the request and of the answer."""

    cpu_ms: float
    asked: int
    told: int


async def _fetched(agent: Agent, session: FetchSession, keep: bool, records: int = 1) -> Cost:
    request = session.request()
    if not keep:
        request.session_epoch = -1
    body = memoryview(b"".join(codec.encode_request(request, VERSION)))
    begun = time.thread_time()
    answer = await agent.dispatcher.answer(agent.client, HEADER, body)
    spent = time.thread_time() - begun
    assert answer is not None
    raw = b"".join(answer)
    told = session.take(codec.decode_response(raw, VERSION))
    read = [key for key, part in told.items() if part.records]
    for key in read:
        session.wanted[key] += 1
    assert len(read) == records
    return Cost(spent * 1000, len(body), len(raw))


async def measured() -> tuple[Cost, Cost]:
    """Medians without a session and with one."""
    agent = await start_agent(MemoryServer(), MemoryStore())
    await create(agent, partitions=PARTITIONS)
    ways = [FetchSession({("t", index): 0 for index in range(PARTITIONS)}) for _ in range(2)]
    for keep, session in enumerate(ways):
        await _fetched(agent, session, bool(keep), 0)
    costs: list[list[Cost]] = [[], []]
    for turn in range(ROUNDS):
        stored = await produce(agent, RECORD, index=turn * 7 % PARTITIONS)
        assert stored.error_code == 0, stored
        for keep, session in enumerate(ways):
            costs[keep].append(await _fetched(agent, session, bool(keep)))
    await agent.stop()
    whole, kept = (Cost(*(statistics.median(row) for row in zip(*rows, strict=True))) for rows in costs)
    return whole, kept


def figures() -> Iterable[Figure]:
    """CPU and bytes."""
    whole, kept = asyncio.run(measured())
    title = f"a Fetch of {PARTITIONS:,} partitions, a record in one"
    beside = "without a session"
    yield Figure(
        f"{title}: agent CPU", kept.cpu_ms, "ms", peer=beside, peer_value=whole.cpu_ms, better="less"
    )
    size, before = kept.asked + kept.told, whole.asked + whole.told
    yield Figure(f"{title}: request and answer", size, "B", peer=beside, peer_value=before, better="less")


if __name__ == "__main__":
    for figure in figures():
        print(figure.line(), flush=True)
