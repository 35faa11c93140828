"""A reader that names only changes: a fetch session (KIP-227) as Java's consumer has, and what none may hide.

Partitions that an answer leaves out have nothing new. Now and then that is checked: what the same agent then
gives to somebody without a session, the session's next answer must tell of, too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from random import Random

from agent.net.wire.generated.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from tests.equipment.transactional_client import Connection

FETCH_VERSION = 12
WAIT_MS, FETCH_BYTES = 200, 4096
NO_SESSION, FIRST, NEVER = 0, 0, -1
CHECKED_OF = 8  # incremental answers that left something out


class SessionReader:
    """Of one topic's partitions, over one connection. `wrong`: is told (anomaly, detail)."""

    def __init__(
        self,
        connection: Connection,
        topic: str,
        random: Random,
        counts: Counter[str],
        wrong: Callable[[str, str], None],
    ) -> None:
        self._connection, self._topic = connection, topic
        self._random, self._counts, self._wrong = random, counts, wrong
        self._id, self._epoch = NO_SESSION, FIRST
        self._asked: list[int] = []  # offsets as the session has them

    async def fetch(self, at: Sequence[int]) -> list[PartitionData]:
        """What is told of each partition from its offset on; of one that was left out, nothing."""
        going_on = self._id != NO_SESSION
        told = await self._next(at)
        left_out = [index for index in range(len(at)) if index not in told]
        if going_on and self._id and left_out:
            self._counts["partitions left out of a fetch session's answer"] += len(left_out)
            if self._random.random() < 1 / CHECKED_OF:
                told |= await self._checked(at, left_out)
        return [told.get(index) or PartitionData(index) for index in range(len(at))]

    async def _next(self, at: Sequence[int]) -> dict[int, PartitionData]:
        names = [n for n, offset in enumerate(at) if not self._id or self._asked[n] != offset]
        answer = await self._call(at, names, self._id, self._epoch if self._id else FIRST)
        if answer.error_code:  # it was evicted, or is not as this client thinks: begun anew
            self._counts["fetch sessions refused"] += 1
            self._id, self._epoch = NO_SESSION, FIRST
            return {}
        if not self._id and answer.session_id:
            self._counts["fetch sessions begun"] += 1
            self._epoch = FIRST
        self._id, self._asked = answer.session_id, list(at)
        self._epoch += 1
        return _by_index(answer)

    async def _checked(self, at: Sequence[int], left_out: Sequence[int]) -> dict[int, PartitionData]:
        """The session's next answer, which must tell of whatever somebody else was given just before it."""
        others = _by_index(await self._call(at, left_out, NO_SESSION, NEVER))
        there = [index for index, each in others.items() if each.records and not each.error_code]
        told = await self._next(at)
        self._counts["fetch sessions checked"] += bool(there)
        for index in there if self._id else ():
            if index not in told:
                self._wrong(
                    "session-left-out", f"{index} has records at {at[index]}, its session says nothing"
                )
        return told

    async def _call(self, at: Sequence[int], names: Sequence[int], number: int, epoch: int) -> FetchResponse:
        wanted = [
            FetchPartition(index, fetch_offset=at[index], partition_max_bytes=FETCH_BYTES) for index in names
        ]
        request = FetchRequest(
            max_wait_ms=WAIT_MS,
            min_bytes=1,
            session_id=number,
            session_epoch=epoch,
            topics=[FetchTopic(topic=self._topic, partitions=wanted)] if wanted else [],
        )
        answer: FetchResponse = await self._connection.call("Fetch", request, FETCH_VERSION)
        return answer


def _by_index(answer: FetchResponse) -> dict[int, PartitionData]:
    return {each.partition_index: each for topic in answer.responses for each in topic.partitions}
