"""The server is tested on both loops that an agent may run on: they hold and release buffers differently."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import pytest
import structlog
import uvloop


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """By name, for every test of this folder."""
    return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


@pytest.fixture(autouse=True)
def _fresh_loggers() -> None:
    structlog.reset_defaults()
