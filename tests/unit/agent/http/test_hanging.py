"""Probes are answered while what they ask hangs: both dependencies at once, within the agent's own bound."""

from __future__ import annotations

import asyncio

from coordination.memory_server import MemoryServer
from objectstore.adapters.memory import MemoryStore
from objectstore.faulty import FaultyStore
from objectstore.store import ObjectMeta
from tests.contract.log_labs import until
from tests.unit.agent.http.conftest import Edge, agent_on, connect

HANGS_S = 60.0  # longer than whoever waits for it would; pytest's own bound is longer


class Hanging(FaultyStore):
    """A store whose HEAD does not answer while it is told not to."""

    def __init__(self) -> None:
        super().__init__(MemoryStore(), 1)
        self.answers = asyncio.Event()
        self.answers.set()

    async def head(self, key: str) -> ObjectMeta:
        """See ObjectStore."""
        await self.answers.wait()
        return await super().head(key)


async def reasons(edge: Edge) -> list[str]:
    """Of one /readyz, which must come long before what hangs is given up."""
    async with asyncio.timeout(HANGS_S / 4), connect(edge.app) as client:
        answer = await client.get("/readyz")
    assert (answer.status_code == 200) == (not answer.json()["reasons"])
    return [str(each) for each in answer.json()["reasons"]]


async def test_log_and_store_hang_together() -> None:
    store = Hanging()
    patient = {"barrier_timeout_ms": int(HANGS_S * 1000), "host": "127.0.0.1", "port": 0}
    async with agent_on(MemoryServer(), store, http=patient, health={"answer_ms_max": 50}) as edge:
        assert await reasons(edge) == []
        edge.log.faults.partitioned = True
        store.answers.clear()
        found: set[str] = set()
        while not {"log", "store"} <= found:
            found = {each.partition(":")[0] for each in await reasons(edge)}
        edge.log.faults.partitioned = False
        store.answers.set()
        await until(lambda: _ready(edge))


async def _ready(edge: Edge) -> bool:
    return not await reasons(edge)
