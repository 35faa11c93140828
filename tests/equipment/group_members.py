"""Members of consumer groups as raw frames: many of them in one process, at next to no cost.

`ClassicMember` speaks JoinGroup, SyncGroup and Heartbeat as a well-behaved client does: it keeps its member
id and its generation when its coordinator moves, and joins again only when it is told to. Tests read
`generation`, `assignment` and `joins`; `Crowd` runs many and tells when they share all partitions.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agent.net.wire.api import BY_NAME
from agent.net.wire.frame import encode_request_header, frame_request, parse_response_header
from agent.net.wire.generated import find_coordinator as fc
from agent.net.wire.generated import heartbeat as hb
from agent.net.wire.generated import join_group as jg
from agent.net.wire.generated import leave_group as lg
from agent.net.wire.generated import metadata as md
from agent.net.wire.generated import offset_commit as oc
from agent.net.wire.generated import offset_fetch as of
from agent.net.wire.generated import sync_group as sg
from coordination.kafka_codes import Code
from tests.equipment.forms import note

Partition = tuple[str, int]  # topic, number
RETRY_S = 0.05
JOIN, SYNC, HEARTBEAT, LEAVE, FIND, COMMIT, FETCH = 9, 5, 4, 5, 4, 8, 8  # versions
SEEK_AGAIN = {Code.NOT_COORDINATOR, Code.COORDINATOR_NOT_AVAILABLE, Code.COORDINATOR_LOAD_IN_PROGRESS}
START_AFRESH = {Code.UNKNOWN_MEMBER_ID, Code.ILLEGAL_GENERATION}


class Line:
    """One connection: requests one after the other, encoded and decoded by the generated codecs."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, client_id: str) -> None:
        self._reader, self._writer, self._client_id = reader, writer, client_id
        self._turn = asyncio.Lock()

    @classmethod
    async def open(cls, address: str, client_id: str = "members") -> Line:
        """Connect to host:port. Raises OSError."""
        host, port = address.rsplit(":", 1)
        return cls(*await asyncio.open_connection(host, int(port), limit=1 << 20), client_id)

    async def call(self, name: str, request: Any, version: int) -> Any:
        """The response. Raises OSError or IncompleteReadError when the connection breaks."""
        api = BY_NAME[name]
        header = encode_request_header(api, version, 1, self._client_id)
        frame = frame_request(header, api.codec().encode_request(request, version))
        async with self._turn:
            self._writer.write(frame)
            (length,) = struct.unpack(">i", await self._reader.readexactly(4))
            body = memoryview(await self._reader.readexactly(length))
        _, start = parse_response_header(api, version, body)
        answer = api.codec().decode_response(body[start:], version)
        note(name, answer)
        return answer

    async def close(self) -> None:
        """Hang up."""
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()


async def coordinator_of(bootstrap: Sequence[str], group: str) -> str:
    """host:port of the group's coordinator, from the first address that knows one."""
    while True:
        for address in bootstrap:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                line = await Line.open(address)
                try:
                    request = fc.FindCoordinatorRequest(key_type=0, coordinator_keys=[group])
                    found = (await line.call("FindCoordinator", request, FIND)).coordinators[0]
                finally:
                    await line.close()
                if not found.error_code:
                    return f"{found.host}:{found.port}"
        await asyncio.sleep(RETRY_S)


async def partitions_of(bootstrap: Sequence[str], topics: Sequence[str]) -> dict[str, int]:
    """How many partitions each topic has."""
    line = await Line.open(bootstrap[0])
    try:
        asked = [md.MetadataRequestTopic(name=topic) for topic in topics]
        found = await line.call("Metadata", md.MetadataRequest(topics=asked), 9)
    finally:
        await line.close()
    return {topic.name: len(topic.partitions) for topic in found.topics}


def subscription(topics: Sequence[str]) -> bytes:
    """ConsumerProtocolSubscription, version 0."""
    parts = [struct.pack(">hi", 0, len(topics))]
    for topic in topics:
        parts.append(struct.pack(">h", len(topic)) + topic.encode())
    return b"".join(parts) + struct.pack(">i", -1)


def assignment(partitions: Sequence[Partition]) -> bytes:
    """ConsumerProtocolAssignment, version 0."""
    by_topic: dict[str, list[int]] = {}
    for topic, number in partitions:
        by_topic.setdefault(topic, []).append(number)
    parts = [struct.pack(">hi", 0, len(by_topic))]
    for topic, numbers in by_topic.items():
        parts.append(struct.pack(">h", len(topic)) + topic.encode())
        parts.append(struct.pack(f">i{len(numbers)}i", len(numbers), *numbers))
    return b"".join(parts) + struct.pack(">i", -1)


def assigned(content: bytes) -> list[Partition]:
    """The partitions of a ConsumerProtocolAssignment; none where there is none."""
    if not content:
        return []
    (_, topics), position = struct.unpack_from(">hi", content), 6
    found: list[Partition] = []
    for _ in range(topics):
        (length,) = struct.unpack_from(">h", content, position)
        topic = content[position + 2 : position + 2 + length].decode()
        position += 2 + length
        (count,) = struct.unpack_from(">i", content, position)
        found += [(topic, number) for number in struct.unpack_from(f">{count}i", content, position + 4)]
        position += 4 + 4 * count
    return found


def shares(partitions: Mapping[str, int], members: Sequence[str]) -> dict[str, list[Partition]]:
    """All partitions, dealt out evenly."""
    every = [(topic, number) for topic, count in partitions.items() for number in range(count)]
    return {member: every[place :: len(members)] for place, member in enumerate(sorted(members))}


@dataclass(eq=False)
class ClassicMember:
    """One member. `run` it as a task; cancel the task to let it vanish without a word."""

    bootstrap: Sequence[str]
    group: str
    partitions: Mapping[str, int]  # topics that it subscribes to, with how many partitions they have
    instance_id: str | None = None
    session_ms: int = 10_000
    rebalance_ms: int = 30_000
    heartbeat_s: float = 0.2
    changed: Callable[[], None] = lambda: None
    member_id: str = ""
    generation: int = -1
    assignment: list[Partition] = field(default_factory=list)
    joins: int = 0  # generations that it joined
    refused: list[Code] = field(default_factory=list)
    _line: Line | None = None
    _connecting: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def run(self) -> None:
        """Be a member for ever."""
        while True:
            try:
                await self._connect()
                if self.generation < 0 and not await self._join():
                    continue
                await self._stay()
            except (OSError, asyncio.IncompleteReadError):
                await self._hang_up()
                await asyncio.sleep(RETRY_S)

    async def leave(self) -> None:
        """Say good-bye."""
        await self._connect()
        assert self._line is not None, "not connected"
        leaving = [lg.MemberIdentity(self.member_id, self.instance_id)]
        await self._line.call("LeaveGroup", lg.LeaveGroupRequest(self.group, members=leaving), LEAVE)
        await self._hang_up()

    async def commit(self, offsets: Mapping[Partition, int]) -> Code:
        """Commit positions as a member of the current generation; the worst code."""
        await self._connect()
        assert self._line is not None, "not connected"
        topics: dict[str, oc.OffsetCommitRequestTopic] = {}
        for (topic, number), offset in offsets.items():
            named = topics.setdefault(topic, oc.OffsetCommitRequestTopic(name=topic))
            named.partitions.append(oc.OffsetCommitRequestPartition(number, offset))
        request = oc.OffsetCommitRequest(
            self.group, self.generation, self.member_id, self.instance_id, topics=list(topics.values())
        )
        answer = await self._line.call("OffsetCommit", request, COMMIT)
        codes = [part.error_code for topic in answer.topics for part in topic.partitions]
        worst = Code(max(codes, key=abs, default=0))
        if worst in SEEK_AGAIN:
            await self._hang_up()
        return worst

    async def committed(self) -> dict[Partition, int]:
        """All positions of the group."""
        await self._connect()
        assert self._line is not None, "not connected"
        request = of.OffsetFetchRequest(groups=[of.OffsetFetchRequestGroup(self.group, topics=None)])
        answer = (await self._line.call("OffsetFetch", request, FETCH)).groups[0]
        return {(t.name, p.partition_index): p.committed_offset for t in answer.topics for p in t.partitions}

    async def reconnect(self) -> None:
        """Look for the coordinator again: the connection broke."""
        await self._hang_up()

    async def _connect(self) -> None:
        async with self._connecting:
            if self._line is None:
                self._line = await Line.open(await coordinator_of(self.bootstrap, self.group))

    async def _hang_up(self) -> None:
        line, self._line = self._line, None
        if line is not None:
            await line.close()

    async def _join(self) -> bool:
        assert self._line is not None, "not connected"
        mine = [jg.JoinGroupRequestProtocol("range", subscription(list(self.partitions)))]
        request = jg.JoinGroupRequest(
            self.group, self.session_ms, self.rebalance_ms, self.member_id, self.instance_id, "consumer", mine
        )
        answer = await self._line.call("JoinGroup", request, JOIN)
        code = Code(answer.error_code)
        if code:
            if code is Code.MEMBER_ID_REQUIRED:
                self.member_id = answer.member_id
            else:
                await self._refused(code)
            return False
        self.member_id = answer.member_id
        given: list[sg.SyncGroupRequestAssignment] = []
        if answer.leader == self.member_id and not answer.skip_assignment:
            everybody = shares(self.partitions, [member.member_id for member in answer.members])
            given = [
                sg.SyncGroupRequestAssignment(name, assignment(part)) for name, part in everybody.items()
            ]
        return await self._sync(answer.generation_id, given)

    async def _sync(self, generation: int, given: list[sg.SyncGroupRequestAssignment]) -> bool:
        assert self._line is not None, "not connected"
        request = sg.SyncGroupRequest(
            self.group, generation, self.member_id, self.instance_id, "consumer", "range", given
        )
        answer = await self._line.call("SyncGroup", request, SYNC)
        if answer.error_code:
            await self._refused(Code(answer.error_code))
            return False
        self.generation, self.assignment = generation, assigned(bytes(answer.assignment))
        self.joins += 1
        self.changed()
        return True

    async def _stay(self) -> None:
        """Heartbeats until something else is due."""
        while True:
            await asyncio.sleep(self.heartbeat_s)
            request = hb.HeartbeatRequest(self.group, self.generation, self.member_id, self.instance_id)
            line = self._line
            if line is None:
                return
            code = Code((await line.call("Heartbeat", request, HEARTBEAT)).error_code)
            if code:
                await self._refused(code)
                return

    async def _refused(self, code: Code) -> None:
        if code in SEEK_AGAIN:
            await self._hang_up()
            await asyncio.sleep(RETRY_S)
            return
        if code is Code.REBALANCE_IN_PROGRESS:
            self.generation = -1
            return
        self.refused.append(code)
        self.generation, self.assignment = -1, []
        if code in START_AFRESH:
            self.member_id = ""
        else:
            raise AssertionError(f"member {self.member_id!r} of {self.group!r}: {code.name}")


class Crowd:
    """Many members of one group, and whether they share all partitions."""

    def __init__(self, bootstrap: str, group: str, partitions: Mapping[str, int], **settings: Any) -> None:
        """`settings`: of every ClassicMember."""
        self.bootstrap, self.group, self.partitions = bootstrap.split(","), group, dict(partitions)
        self.members: list[ClassicMember] = []
        self._settings = settings
        self._tasks: dict[ClassicMember, asyncio.Task[None]] = {}
        self._changed = asyncio.Event()

    def add(self, **settings: Any) -> ClassicMember:
        """One more member, running."""
        known = {**self._settings, **settings}
        member = ClassicMember(
            self.bootstrap, self.group, self.partitions, changed=self._changed.set, **known
        )
        self.members.append(member)
        self._tasks[member] = asyncio.get_running_loop().create_task(member.run())
        return member

    async def settled(self, seconds: float = 60.0) -> None:
        """Wait until all are of one generation and own every partition exactly once."""
        async with asyncio.timeout(seconds):
            while not self.shared():
                self._changed.clear()
                for task in self._tasks.values():
                    if task.done():
                        task.result()
                if not self.shared():
                    await self._changed.wait()

    def shared(self) -> bool:
        """Whether they share all partitions now."""
        if len({member.generation for member in self.members}) != 1 or self.members[0].generation < 0:
            return False
        owned = [partition for member in self.members for partition in member.assignment]
        return len(owned) == len(set(owned)) == sum(self.partitions.values())

    async def remove(self, member: ClassicMember, *, politely: bool = True) -> None:
        """End one member: it leaves, or vanishes without a word."""
        self.members.remove(member)
        task = self._tasks.pop(member)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        if politely:
            await member.leave()

    async def stop(self) -> None:
        """End all members without a word."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        for member in self.members:
            await member._hang_up()
