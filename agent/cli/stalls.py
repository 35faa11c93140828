"""Why a reader gets nothing, which aiokafka keeps to itself: an agent is asked.

aiokafka tells the application no error of a Fetch but those of offsets and permissions, and asks again for
ever: at a damaged record, of a topic that was deleted meanwhile, when all agents are gone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress

from aiokafka import AIOKafkaConsumer, TopicPartition

from agent.cli.failures import Failure, Status, refused
from agent.cli.holes import fetch
from agent.cli.output import remarks
from agent.cli.session import Refusal, session
from coordination.clock import SystemClock
from coordination.kafka_codes import RETRIABLE, Code

QUIET_S = 5.0
"""Without a record until an agent is asked why, and between two such questions."""
FOLLOWED_QUIET_S = 30.0
"""The same for who follows, where silence is mostly right."""
ASKS_MAX = 6
"""Questions in a row until a reader gives up on what may pass, or what nobody explains."""
POSITIONS_S = 0.5
"""To learn positions: one that aiokafka looks up anew it waits for, and for ever where the topic is gone."""
STAYING = frozenset({Code.CORRUPT_MESSAGE, Code.UNKNOWN_TOPIC_OR_PARTITION})
"""What Kafka calls retriable and a command need not wait for."""
CLOCK = SystemClock()


class Stalls:
    """Watches where one consumer stands. When it stands still, a command fails; who follows is told."""

    def __init__(self, bootstrap: str, *, follow: bool = False) -> None:
        self._bootstrap, self._follow = bootstrap, follow
        self._at: dict[TopicPartition, int] = {}
        self._since: dict[TopicPartition, float] = {}
        self._asks = 0
        self._told: set[str] = set()

    async def positions(
        self, consumer: AIOKafkaConsumer, places: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, int]:
        """Where it stands in these, as far as that is known. To be asked after each poll. Raises Failure."""
        found, now = await _positions(consumer, places), CLOCK.monotonic()
        for where in places:
            if where not in self._since or found.get(where, self._at.get(where)) != self._at.get(where):
                self._since[where], self._asks = now, 0
        self._at |= found
        quiet_s = FOLLOWED_QUIET_S if self._follow else QUIET_S
        quiet = [where for where in places if now - self._since[where] >= quiet_s]
        if quiet and self._follow:
            await self._tell(quiet)
        elif quiet and len(quiet) == len(places):  # first, all that there is of other partitions
            await self._end(quiet)
        self._since |= dict.fromkeys(quiet, CLOCK.monotonic())
        return found

    async def _tell(self, quiet: Sequence[TopicPartition]) -> None:
        """What is wrong, once: it may pass, and no record is nothing wrong."""
        try:
            await self._first_silent(quiet)
        except Failure as failure:
            self._remark(f"{failure}; waiting")

    async def _end(self, quiet: Sequence[TopicPartition]) -> None:
        """Raises Failure for what stays, and for what may pass once it was told often."""
        self._asks += 1
        try:
            silent = await self._first_silent(quiet)
        except Failure as failure:
            if self._asks >= ASKS_MAX or not _may_pass(failure):
                raise
            return
        if silent is not None and self._asks >= ASKS_MAX:
            raise refused(f"{_name(silent)}: nothing comes at offset {self._at.get(silent, 0)}")
        if silent is None:
            self._asks = 0
            self._remark(
                f"{self._bootstrap} has records of {_name(quiet[0])}, but none come from the agent that "
                "leads it: is the address that it advertises reached from here?"
            )

    async def _first_silent(self, quiet: Sequence[TopicPartition]) -> TopicPartition | None:
        """The first of which an agent has nothing; None: it has something of all. Raises Failure."""
        silent = None
        async with session(self._bootstrap) as kafka:
            for where in quiet:
                at = self._at.get(where, 0)
                try:
                    answer = await fetch(kafka, where.topic, where.partition, at, wait_ms=0, bytes_max=1)
                except Refusal as failure:
                    if failure.code != Code.CORRUPT_MESSAGE:
                        raise
                    place = f"{where.topic} --partition {where.partition} --from {at}"
                    hint = f"floe topic skip-damaged {place} tells what is damaged, and how to go on without"
                    raise Refusal(failure.code, f"{failure}; {hint}") from None
                if silent is None and not answer.records:
                    silent = where
        return silent

    def _remark(self, text: str) -> None:
        if text not in self._told:
            self._told.add(text)
            remarks().print(text, style="dim")


async def _positions(
    consumer: AIOKafkaConsumer, places: Collection[TopicPartition]
) -> dict[TopicPartition, int]:
    found: dict[TopicPartition, int] = {}
    with suppress(TimeoutError):
        async with asyncio.timeout(POSITIONS_S):
            for where in places:
                found[where] = await consumer.position(where)
    return found


def _may_pass(failure: Failure) -> bool:
    if isinstance(failure, Refusal):
        return failure.code in RETRIABLE - STAYING
    return failure.status is Status.UNREACHABLE


def _name(where: TopicPartition) -> str:
    return f"{where.topic}-{where.partition}"
