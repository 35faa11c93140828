"""A consumer that is no member of a group and commits its own positions, each higher than the one before.

It is impatient: a commit that is not answered is followed by the next one through another agent. So whoever
held the older one back, and wakes, must not write it over the newer one (positions.py judges that).
"""

from __future__ import annotations

import asyncio

from agent.net.wire.generated.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from agent.net.wire.generated.offset_fetch import OffsetFetchRequest
from tests.equipment.transactional_client import Connection
from tests.sim.clients import Surroundings
from tests.sim.relay import GROUP as COPIES

GROUP = "solo"
COMMIT_VERSION, FETCH_VERSION = 8, 5
ANSWER_S_MAX = 0.7
PAUSE_S = 0.15
FETCHED_OF = 0.4
FETCHED = (GROUP, COPIES, "t0", "t1")
"""Groups whose positions it looks at: those of transactions are decided by one agent and told by another."""
ERRORS = (OSError, EOFError, TimeoutError)


class Solo:
    """One client."""

    def __init__(self, around: Surroundings) -> None:
        self._around = around
        self._connection: Connection | None = None

    async def live(self) -> None:
        """Until told to stop."""
        random = self._around.loop.random
        while not self._around.stopping.is_set():
            await asyncio.sleep(random.expovariate(1 / PAUSE_S))
            try:
                async with asyncio.timeout(ANSWER_S_MAX):
                    code = await self._ask(fetch=random.random() < FETCHED_OF)
            except ERRORS:
                code = -1
            if code:
                self._connection = None  # stays open: what is under way on it still arrives

    async def _ask(self, *, fetch: bool) -> int:
        if self._connection is None:
            self._connection = await Connection.open(self._around.loop.random.choice(self._around.bootstrap))
        topic = self._around.keys.every[0].topic
        if fetch:
            asked = OffsetFetchRequest(self._around.loop.random.choice(FETCHED), None)
            return int((await self._connection.call("OffsetFetch", asked, FETCH_VERSION)).error_code)
        self._around.names += 1  # grows for every life of this client
        row = OffsetCommitRequestPartition(0, self._around.names)
        commit = OffsetCommitRequest(GROUP, topics=[OffsetCommitRequestTopic(topic, partitions=[row])])
        answer = await self._connection.call("OffsetCommit", commit, COMMIT_VERSION)
        return int(answer.topics[0].partitions[0].error_code)
