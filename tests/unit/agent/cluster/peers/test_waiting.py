"""How many of this agent's requests wait for one peer, and what those beyond that do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from agent.cluster.peers import client
from agent.cluster.peers.near import Patience
from tests.unit.agent.cluster.peers.zone import Zones, check
from tests.unit.coordination.conftest import until


@pytest.fixture
async def zones() -> AsyncIterator[Zones]:
    made = Zones()
    yield made
    await made.stop()


async def test_requests_that_wait_for_a_peer_are_bounded(
    zones: Zones, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "CONNECTIONS_MAX", 1)
    monkeypatch.setattr(client, "WAITING_MAX", 2)
    author = await zones.add("a")
    other = await zones.add("a", patience=Patience(hedge_s=60.0, timeout_s=60.0))
    author.server._beat_s = 0.01
    written = [await zones.chunk(author) for _ in range(6)]
    author.serving.clear()
    reads = [asyncio.ensure_future(other.reader.read(slices[0])) for slices in written]
    await until(lambda: sum(read.done() for read in reads) == 3)
    assert (other.gets, other.near.stats.failed) == (3, 3), "one is asked, two wait, the bucket has the rest"
    assert not other.near.standings.resting(author.address)
    author.serving.set()
    for read, slices in zip(reads, written, strict=True):
        check(await read, slices[0])
    assert other.gets == 3


async def test_a_job_that_reads_many_small_chunks_at_once_asks_their_author_only(zones: Zones) -> None:
    author = await zones.add("a")
    other = await zones.add("a", patience=Patience(hedge_s=60.0, timeout_s=60.0))
    written = [(await zones.chunk(author))[0] for _ in range(300)]
    for read, wanted in zip(await other.reader.read_many(written), written, strict=True):
        check(read, wanted)
    assert (other.gets, other.near.stats.failed) == (0, 0)
