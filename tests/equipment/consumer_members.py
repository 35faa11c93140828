"""Members of groups of KIP-848 as raw frames: many of them in one process, at next to no cost.

`ConsumerMember` does what a well-behaved client does: it gives back what it is not assigned and says so at
once, keeps its epoch when its coordinator moves, and begins anew only when it is fenced. It heartbeats as
often as it is told to.
"""

from __future__ import annotations

import asyncio
import base64
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agent.net.wire.generated import consumer_group_heartbeat as ch
from agent.net.wire.generated import metadata as md
from agent.net.wire.generated import offset_commit as oc
from coordination.kafka_codes import Code
from tests.equipment.group_members import RETRY_S, SEEK_AGAIN, Crowd, Line, Partition, coordinator_of

HEARTBEAT, COMMIT, NAMES = 1, 9, 12  # versions
FENCED = {Code.FENCED_MEMBER_EPOCH, Code.UNKNOWN_MEMBER_ID}


@dataclass(eq=False)
class ConsumerMember:
    """One member. `run` it as a task; cancel the task to let it vanish. `generation` is its epoch."""

    bootstrap: Sequence[str]
    group: str
    partitions: Mapping[str, int]
    instance_id: str | None = None
    rebalance_ms: int = 60_000
    assignor: str | None = None
    changed: Callable[[], None] = lambda: None
    patient: frozenset[Code] = frozenset()  # answers that are over some time: asked again
    member_id: str = field(default_factory=lambda: base64.urlsafe_b64encode(os.urandom(16)).decode()[:22])
    generation: int = 0
    assignment: list[Partition] = field(default_factory=list)
    joins: int = 0  # epochs that it moved to
    refused: list[Code] = field(default_factory=list)
    _names: dict[bytes, str] = field(default_factory=dict)
    _line: Line | None = None
    _connecting: asyncio.Lock = field(default_factory=asyncio.Lock)
    _whole: bool = True  # says everything: it joins, or may have missed an answer

    async def run(self) -> None:
        """Be a member for ever."""
        while True:
            try:
                await self._connect()
                await asyncio.sleep(await self.beat())
            except (OSError, asyncio.IncompleteReadError):
                await self._hang_up()
                await asyncio.sleep(RETRY_S)

    async def beat(self) -> float:
        """One heartbeat, followed; seconds until the next is due."""
        assert self._line is not None, "not connected"
        answer = await self._line.call("ConsumerGroupHeartbeat", self._request(), HEARTBEAT)
        code = Code(answer.error_code)
        if code in SEEK_AGAIN:
            await self._hang_up()
            return RETRY_S
        if code:
            assert code in FENCED | self.patient, f"{code.name}: {answer.error_message}"
            self.refused.append(code)
            self.generation, self.assignment, self._whole = 0, [], True
            return RETRY_S if code in self.patient else 0
        self._whole = False
        moved = answer.member_epoch != self.generation
        self.joins += moved
        self.generation = answer.member_epoch
        gave = answer.assignment is not None and self._take(answer.assignment)
        if moved or answer.assignment is not None:
            self.changed()
        return 0 if gave else answer.heartbeat_interval_ms / 1000

    def _request(self) -> ch.ConsumerGroupHeartbeatRequest:
        request = ch.ConsumerGroupHeartbeatRequest(
            self.group, self.member_id, self.generation, self.instance_id
        )
        owned: dict[str, list[int]] = {}
        for topic, number in self.assignment:
            owned.setdefault(topic, []).append(number)
        ids = {name: topic_id for topic_id, name in self._names.items()}
        request.topic_partitions = [ch.TopicPartitions(ids[name], row) for name, row in owned.items()]
        if self._whole or self.generation == 0:
            request.rebalance_timeout_ms = self.rebalance_ms
            request.subscribed_topic_names = list(self.partitions)
            request.server_assignor = self.assignor
        return request

    def _take(self, told: ch.Assignment) -> bool:
        """Take an assignment over; whether something was given back by that."""
        before = set(self.assignment)
        self.assignment = [
            (self._names[row.topic_id], number) for row in told.topic_partitions for number in row.partitions
        ]
        return bool(before - set(self.assignment))

    async def leave(self) -> None:
        """Say good-bye."""
        await self._connect()
        assert self._line is not None, "not connected"
        request = ch.ConsumerGroupHeartbeatRequest(self.group, self.member_id, -1, self.instance_id)
        await self._line.call("ConsumerGroupHeartbeat", request, HEARTBEAT)
        await self._hang_up()

    async def commit(self, offsets: Mapping[Partition, int]) -> Code:
        """Commit positions; the worst code."""
        await self._connect()
        assert self._line is not None, "not connected"
        topics = [
            oc.OffsetCommitRequestTopic(
                name=topic, partitions=[oc.OffsetCommitRequestPartition(number, offset)]
            )
            for (topic, number), offset in offsets.items()
        ]
        request = oc.OffsetCommitRequest(
            self.group, self.generation, self.member_id, self.instance_id, topics=topics
        )
        answer = await self._line.call("OffsetCommit", request, COMMIT)
        codes = [part.error_code for topic in answer.topics for part in topic.partitions]
        worst = Code(max(codes, key=abs, default=0))
        if worst in SEEK_AGAIN:
            await self._hang_up()
        return worst

    async def reconnect(self) -> None:
        """Look for the coordinator again: the connection broke."""
        await self._hang_up()

    async def _connect(self) -> None:
        async with self._connecting:  # commits and heartbeats may both find that there is no connection
            if self._line is None:
                if not self._names:
                    self._names = await topic_ids(self.bootstrap, list(self.partitions))
                line = await Line.open(await coordinator_of(self.bootstrap, self.group))
                self._line, self._whole = line, True

    async def _hang_up(self) -> None:
        line, self._line = self._line, None
        if line is not None:
            await line.close()


async def topic_ids(bootstrap: Sequence[str], topics: Sequence[str]) -> dict[bytes, str]:
    """Topic names by id."""
    for address in bootstrap:
        try:
            line = await Line.open(address)
        except OSError:
            continue
        asked = md.MetadataRequest(topics=[md.MetadataRequestTopic(name=topic) for topic in topics])
        found = await line.call("Metadata", asked, NAMES)
        await line.close()
        return {topic.topic_id: topic.name for topic in found.topics}
    raise ConnectionError(f"none of {bootstrap} answers")


class ConsumerCrowd(Crowd):
    """Many members of one group of KIP-848, and whether they share all partitions.

    `one_epoch`: they do so once all have come to the same epoch, too.
    """

    one_epoch = True

    def add(self, **settings: Any) -> Any:
        """One more member, running."""
        known = {**self._settings, **settings}
        member: Any = ConsumerMember(
            self.bootstrap, self.group, self.partitions, changed=self._changed.set, **known
        )
        self.members.append(member)
        self._tasks[member] = asyncio.get_running_loop().create_task(member.run())
        return member

    def shared(self) -> bool:
        """Whether they share all partitions evenly."""
        sizes = [len(member.assignment) for member in self.members]
        owned = [partition for member in self.members for partition in member.assignment]
        if self.one_epoch and len({member.generation for member in self.members}) != 1:
            return False
        whole = len(owned) == len(set(owned)) == sum(self.partitions.values())
        return whole and max(sizes) - min(sizes) < 2
