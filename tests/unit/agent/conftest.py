"""Agents without sockets for the tests of handlers and drivers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from coordination.memory_server import MemoryServer
from objectstore.adapters.memory import MemoryStore
from tests.unit.agent.rig import Agent, start_agent

StartAgent = Callable[..., Awaitable[Agent]]


@pytest.fixture
def log_server() -> MemoryServer:
    return MemoryServer()


@pytest.fixture
def memory_store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
async def start(log_server: MemoryServer, memory_store: MemoryStore) -> AsyncIterator[StartAgent]:
    """Starts agents on one log and one store; they are stopped afterwards."""
    started: list[Agent] = []

    async def begin(name: str = "a", **settings: Any) -> Agent:
        agent = await start_agent(log_server, settings.pop("store_port", memory_store), name, **settings)
        started.append(agent)
        return agent

    yield begin
    for agent in started:
        await agent.stop()


@pytest.fixture
async def agent(start: StartAgent) -> Agent:
    return await start()
