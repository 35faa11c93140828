"""One of the two that are asked, and how an answer becomes text that can be compared."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from agent.net.wire.generated import create_topics as ct
from agent.net.wire.generated import list_offsets as lo
from coordination.kafka_codes import Code
from tests.compat.raw import call

ANSWER_S_MAX = 5
LEADER_S_MAX = 20
SHOWN_MAX = 300  # characters of a message
NOW = 1_700_000_000_000

Answers = dict[str, str]
Question = Callable[["Side"], Awaitable[Answers]]


def code(number: int) -> str:
    """A Kafka error by name."""
    return Code(number).name


def told(number: int, message: str | None) -> str:
    """An error by name with its message, where there is one; long ones are cut."""
    if not number or not message:
        return code(number)
    return f"{code(number)}: {message if len(message) <= SHOWN_MAX else f'{message[:SHOWN_MAX]}…'}"


@dataclass
class Side:
    """A cluster that is asked. `prefix` begins the names of the topics it may use."""

    bootstrap: str
    prefix: str
    _made: set[str] = field(default_factory=set)

    async def ask(self, name: str, request: Any, version: int) -> Any:
        """The answer; None when the connection was closed or nothing came in time."""
        try:
            async with asyncio.timeout(ANSWER_S_MAX):
                return await call(self.bootstrap, name, request, version)
        except (TimeoutError, asyncio.IncompleteReadError, ConnectionError):
            return None

    async def topic(self, name: str, partitions: int = 1, **configs: str) -> str:
        """A topic of this side, made when it is asked for first; its full name."""
        full = f"{self.prefix}{name}"
        if full not in self._made:
            entries = [
                ct.CreatableTopicConfig(key.replace("_", "."), value) for key, value in configs.items()
            ]
            wanted = ct.CreatableTopic(full, partitions, 1, configs=entries)
            answer = await self.ask("CreateTopics", ct.CreateTopicsRequest([wanted], 10_000), 7)
            assert answer.topics[0].error_code == 0, answer
            await self._led(full, partitions)
            self._made.add(full)
        return full

    async def _led(self, name: str, partitions: int) -> None:
        """Kafka's partitions get their leaders, and its leaders notice, a moment after the answer."""
        parts = [lo.ListOffsetsPartition(index, -1, -1) for index in range(partitions)]
        request = lo.ListOffsetsRequest(-1, 0, [lo.ListOffsetsTopic(name, parts)], 5_000)
        async with asyncio.timeout(LEADER_S_MAX):
            while True:
                answer = await self.ask("ListOffsets", request, 9)
                if not any(part.error_code for part in answer.topics[0].partitions):
                    return
                await asyncio.sleep(0.05)
