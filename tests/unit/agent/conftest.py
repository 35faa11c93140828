"""Agents without sockets for the tests of handlers and drivers."""

from __future__ import annotations

import io
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import pytest
import structlog

from agent.config import LoggingConfig
from agent.telemetry import logs
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


@pytest.fixture
def process_log() -> Iterator[io.StringIO]:
    """What the process's log gets, as people read it, whoever configured it before."""
    root = logging.getLogger()
    handlers, level, stream = list(root.handlers), root.level, io.StringIO()
    logs.configure(LoggingConfig(format="console"), stream)
    yield stream
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()
