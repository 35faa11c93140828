"""A connection's effects are in the order of its requests (rule 17): what waits for what."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator

import pytest

from agent.kafka.handlers import HANDLERS
from agent.kafka.order import KINDS, Kind, Turns, Unheard
from agent.net.listening import Listener
from agent.net.server import Server
from agent.net.wire.api import APIS
from agent.net.wire.generated import create_topics as ct
from agent.net.wire.generated import delete_records as dr
from agent.net.wire.generated import join_group as jg
from agent.net.wire.generated import list_offsets as lo
from agent.net.wire.generated import metadata as m
from agent.net.wire.generated import offset_commit as oc
from agent.net.wire.generated import offset_fetch as of
from agent.net.wire.generated import produce as p
from coordination.memory_server import MemoryServer
from objectstore.adapters.memory import MemoryStore
from objectstore.naming import CHUNKS
from tests.bench.load import Wire, fetch_frame
from tests.unit.agent.net.server.harness import until
from tests.unit.agent.rig import Agent, batch, start_agent

TOPIC = "flights"


def test_every_handler_says_what_it_is_to_the_requests_around_it() -> None:
    assert KINDS.keys() == HANDLERS.keys()


class Line:
    """Requests on one connection, each named by its kind and number; what begins and ends is noted."""

    def __init__(self) -> None:
        self.turns = Turns()
        self.begun: list[str] = []
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._done: dict[str, asyncio.Event] = {}

    async def comes(self, name: str, kind: Kind) -> None:
        self._done[name] = asyncio.Event()
        self._tasks[name] = asyncio.create_task(self._work(name, kind))
        await settle()

    async def ends(self, name: str) -> None:
        self._done[name].set()
        await settle()

    def dropped(self, name: str) -> bool:
        task = self._tasks[name]
        return task.done() and not task.cancelled() and isinstance(task.exception(), Unheard)

    async def cancelled(self, name: str) -> None:
        self._tasks[name].cancel()
        await settle()

    async def close(self) -> None:
        for event in self._done.values():
            event.set()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    async def _work(self, name: str, kind: Kind) -> None:
        if not self.turns.at_once(kind):
            await self.turns.wait(kind)
        self.begun.append(name)
        try:
            await self._done[name].wait()
        finally:
            self.turns.end()


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


@pytest.fixture
async def line() -> AsyncIterator[Line]:
    made = Line()
    yield made
    await made.close()


TELLS = re.compile(r"(Api|Describe|Fetch|Find|List|OffsetF).*|.*Describe")
"""Names of the APIs that change nothing."""
WAITS = ("Fetch", "JoinGroup", "SyncGroup")
"""Those that may be answered late on purpose."""


@pytest.mark.parametrize("key", KINDS, ids=lambda key: APIS[key].name)
async def test_what_an_api_overlaps_with_and_when_it_is_dropped(line: Line, key: int) -> None:
    """Each line of the table: only Produces overlap, and only commits of positions do, each among themselves.

    What tells something is dropped when nobody listens any more; what changes something is not, unless it
    stands behind something that waits for others.
    """
    name, kind = APIS[key].name, KINDS[key]
    for other, overlaps in (
        (Kind.READ, False),
        (Kind.WRITE, False),
        (Kind.PRODUCE, name == "Produce"),
        (Kind.COMMIT, name == "OffsetCommit"),
    ):
        each = Line()
        await each.comes("first", other)
        await each.comes("it", kind)
        assert ("it" in each.begun) == overlaps, other
        await each.close()
    await line.comes("write", Kind.WRITE)
    await line.comes("it", kind)
    line.turns.close()
    await settle()
    assert line.dropped("it") == bool(TELLS.fullmatch(name) or name in WAITS)
    behind = Line()
    await behind.comes("it", kind)
    await behind.comes("write", Kind.WRITE)
    behind.turns.close()
    await settle()
    assert behind.dropped("write") == (name in WAITS)
    await behind.close()


async def test_a_read_waits_for_the_write_before_it_and_the_next_write_for_the_read(line: Line) -> None:
    await line.comes("write", Kind.WRITE)
    await line.comes("read", Kind.READ)
    await line.comes("next", Kind.WRITE)
    assert line.begun == ["write"]
    await line.ends("write")
    assert line.begun == ["write", "read"]
    await line.ends("read")
    assert line.begun == ["write", "read", "next"]


@pytest.mark.parametrize("kind", [Kind.PRODUCE, Kind.COMMIT])
async def test_produces_overlap_and_commits_do_but_not_with_each_other(line: Line, kind: Kind) -> None:
    other = Kind.COMMIT if kind is Kind.PRODUCE else Kind.PRODUCE
    await line.comes("a", kind)
    await line.comes("b", kind)
    await line.comes("other", other)
    await line.comes("c", kind)
    assert line.begun == ["a", "b"]
    await line.ends("b")
    assert line.begun == ["a", "b"], "the first one is still under way"
    await line.ends("a")
    assert line.begun == ["a", "b", "other"]


async def test_what_arrives_while_the_first_in_line_is_woken_does_not_pass_it(line: Line) -> None:
    """The read's end wakes Produce 1; a request that comes in the same step stands behind it."""
    await line.comes("read", Kind.READ)
    await line.comes("produce 1", Kind.PRODUCE)
    await line.comes("produce 2", Kind.PRODUCE)
    line.turns.end()
    assert not line.turns.at_once(Kind.PRODUCE)
    await settle()
    assert line.begun == ["read", "produce 1", "produce 2"]
    line.turns._running += 1  # its own end is to come


async def test_an_effect_that_comes_after_its_answer_is_waited_for(line: Line) -> None:
    """A Produce with acks=0 has no answer; a read behind it sees it nevertheless."""
    await line.comes("produce", Kind.PRODUCE)
    effect: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    line.turns.hold(effect)
    await line.comes("read", Kind.READ)
    await line.ends("produce")
    assert line.begun == ["produce"]
    effect.set_result(None)
    await settle()
    assert line.begun == ["produce", "read"]


async def test_when_the_connection_is_gone_reads_are_dropped_and_writes_go_on(line: Line) -> None:
    await line.comes("write", Kind.WRITE)
    await line.comes("read", Kind.READ)
    await line.comes("join", Kind.POLL)
    await line.comes("produce", Kind.PRODUCE)
    line.turns.close()
    await settle()
    assert line.dropped("read")
    assert line.dropped("join")
    await line.ends("write")
    assert line.begun == ["write", "produce"]


async def test_when_the_connection_is_gone_nothing_waits_for_a_poll(line: Line) -> None:
    """A JoinGroup may be answered in days: what stands behind it is not held until then."""
    await line.comes("join", Kind.POLL)
    await line.comes("produce", Kind.PRODUCE)
    line.turns.close()
    await settle()
    assert line.dropped("produce")
    assert line.turns.waiting == 0


async def test_behind_a_request_that_ends_the_connection_nothing_begins(line: Line) -> None:
    await line.comes("bad", Kind.WRITE)
    await line.comes("write", Kind.WRITE)
    line.turns.fail()
    await line.comes("late", Kind.WRITE)
    await line.ends("bad")
    assert line.begun == ["bad"]
    assert line.dropped("write")
    assert line.dropped("late")


async def test_nothing_begins_behind_what_fails_in_its_first_step(line: Line) -> None:
    """By then the next one, which overlaps with it, has been told to begin."""
    await line.comes("write", Kind.WRITE)

    async def bad() -> None:
        await line.turns.wait(Kind.PRODUCE)
        line.turns.fail()
        line.turns.end()

    failing = asyncio.create_task(bad())
    await settle()
    await line.comes("produce", Kind.PRODUCE)
    await line.ends("write")
    await failing
    assert line.begun == ["write"]
    assert line.dropped("produce")


async def test_one_that_is_cancelled_in_line_holds_up_nobody(line: Line) -> None:
    await line.comes("produce 1", Kind.PRODUCE)
    await line.comes("read", Kind.READ)
    await line.comes("produce 2", Kind.PRODUCE)
    await line.cancelled("read")
    assert line.begun == ["produce 1", "produce 2"]


# The same by a real socket.


@pytest.fixture
async def agent(log_server: MemoryServer, memory_store: MemoryStore) -> AsyncIterator[Agent]:
    """A log whose entries take a while to be applied: effects are late."""
    one = await start_agent(log_server, memory_store)
    one.log.faults.delivery_delay_s = 0.02
    yield one
    await one.stop()


@pytest.fixture
async def server(agent: Agent) -> AsyncIterator[Server]:
    one = Server(agent.dispatcher)
    yield one
    await one.drain(1)


@pytest.fixture
async def bootstrap(server: Server) -> str:
    (port,) = await server.start([Listener("PLAINTEXT", "127.0.0.1", 0)])
    return f"127.0.0.1:{port}"


def produced(value: bytes, acks: int = -1) -> p.ProduceRequest:
    data = p.PartitionProduceData(0, memoryview(batch(value)))
    return p.ProduceRequest(
        acks=acks, timeout_ms=20_000, topic_data=[p.TopicProduceData(TOPIC, partition_data=[data])]
    )


def end_asked() -> lo.ListOffsetsRequest:
    part = lo.ListOffsetsPartition(partition_index=0, timestamp=-1)
    return lo.ListOffsetsRequest(replica_id=-1, topics=[lo.ListOffsetsTopic(TOPIC, [part])])


async def create(bootstrap: str) -> None:
    wire = await Wire.open(bootstrap)
    made = ct.CreateTopicsRequest([ct.CreatableTopic(TOPIC, 1, 1)], 10_000)
    assert (await wire.call("CreateTopics", made, 7)).topics[0].error_code == 0
    await wire.close()


async def test_a_topic_is_there_for_the_request_behind_its_creation(bootstrap: str) -> None:
    wire = await Wire.open(bootstrap)
    made = ct.CreateTopicsRequest([ct.CreatableTopic(TOPIC, 1, 1)], 10_000)
    asked = m.MetadataRequest([m.MetadataRequestTopic(name=TOPIC)], allow_auto_topic_creation=False)
    _, sent, told = await wire.pipeline(
        ("CreateTopics", made, 7), ("Produce", produced(b"a"), 9), ("Metadata", asked, 12)
    )
    assert sent.responses[0].partition_responses[0].error_code == 0
    assert told.topics[0].error_code == 0
    await wire.close()


@pytest.mark.parametrize("acks", [-1, 0])
async def test_records_are_counted_by_the_request_behind_them(bootstrap: str, acks: int) -> None:
    await create(bootstrap)
    wire = await Wire.open(bootstrap)
    for n in range(1, 6):
        answers = await wire.pipeline(("Produce", produced(b"a", acks), 9), ("ListOffsets", end_asked(), 9))
        assert answers[-1].topics[0].partitions[0].offset == n
    await wire.close()


async def test_deleted_records_and_committed_positions_are_seen_by_the_request_behind(bootstrap: str) -> None:
    await create(bootstrap)
    wire = await Wire.open(bootstrap)
    await wire.call("Produce", produced(b"a"), 9)
    deleted = dr.DeleteRecordsRequest(
        [dr.DeleteRecordsTopic(TOPIC, [dr.DeleteRecordsPartition(0, 1)])], 10_000
    )
    first = lo.ListOffsetsPartition(partition_index=0, timestamp=-2)
    asked = lo.ListOffsetsRequest(replica_id=-1, topics=[lo.ListOffsetsTopic(TOPIC, [first])])
    _, start = await wire.pipeline(("DeleteRecords", deleted, 2), ("ListOffsets", asked, 9))
    assert start.topics[0].partitions[0].offset == 1
    row = oc.OffsetCommitRequestPartition(0, 1)
    commit = oc.OffsetCommitRequest("g", topics=[oc.OffsetCommitRequestTopic(TOPIC, partitions=[row])])
    position = of.OffsetFetchRequest("g", [of.OffsetFetchRequestTopic(TOPIC, [0])])
    _, found = await wire.pipeline(("OffsetCommit", commit, 8), ("OffsetFetch", position, 7))
    assert found.topics[0].partitions[0].committed_offset == 1
    await wire.close()


async def test_requests_behind_a_poll_are_freed_when_the_connection_goes(
    bootstrap: str, server: Server
) -> None:
    """A JoinGroup waits for the others of its group; what its connection sent behind it must not stay."""
    await create(bootstrap)
    wire = await Wire.open(bootstrap)
    protocols = [jg.JoinGroupRequestProtocol("range", b"")]
    join = jg.JoinGroupRequest("slow", 10_000, 60_000, "", None, "consumer", protocols)
    await wire.post("JoinGroup", join, 3)
    async with asyncio.timeout(5):
        await until(lambda: server.request_bytes > 0)
        alone = server.request_bytes
        await wire.post("Produce", produced(b"never"), 9)
        await wire.post("ListOffsets", end_asked(), 9)
        await until(lambda: server.request_bytes > alone + len(batch(b"never")))
        await wire.close()
        await until(lambda: server.request_bytes == alone)
    other = await Wire.open(bootstrap)
    assert (await other.call("ListOffsets", end_asked(), 9)).topics[0].partitions[0].offset == 0
    await other.close()


async def test_pipelined_produces_share_flushes(bootstrap: str, memory_store: MemoryStore) -> None:
    """Taking turns must not mean a flush, with its PUT and its entry, for each Produce."""
    await create(bootstrap)
    wire = await Wire.open(bootstrap)
    answers = await wire.pipeline(*[("Produce", produced(b"%d" % n), 9) for n in range(50)])
    offsets = [answer.responses[0].partition_responses[0].base_offset for answer in answers]
    assert offsets == list(range(50))
    chunks = [each.key async for page in memory_store.list(CHUNKS) for each in page]
    assert 0 < len(chunks) <= 5, chunks
    await wire.close()


async def test_a_fetch_behind_a_produce_reads_it(bootstrap: str) -> None:
    await create(bootstrap)
    wire = await Wire.open(bootstrap)
    await wire.post("Produce", produced(b"a"), 9)
    await wire.send(fetch_frame(TOPIC, [0], 1 << 20, 1 << 20))
    await wire.receive()
    assert b"a" in await wire.receive()
    await wire.close()


async def test_nothing_passes_the_first_request_after_a_pause(
    bootstrap: str, agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is the one that tells of the pause, and the first of its connection."""
    await create(bootstrap)
    awake = iter([False])

    def look() -> bool:
        found = next(awake, True)
        if not found:
            agent.dispatcher._woke()
        return found

    monkeypatch.setattr(agent.services.replica, "check_awake", look)
    wire = await Wire.open(bootstrap)
    with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
        await wire.pipeline(("Produce", produced(b"a"), 9), ("Produce", produced(b"b"), 9))
    await wire.close()
    other = await Wire.open(bootstrap)
    assert (await other.call("ListOffsets", end_asked(), 9)).topics[0].partitions[0].offset == 0
    await other.close()


async def test_a_produce_that_looks_for_a_topic_is_not_passed_by_the_next(bootstrap: str) -> None:
    """The first names a topic that is not there: it waits for the log, as if another agent had made it."""
    await create(bootstrap)
    wire = await Wire.open(bootstrap)
    first, second = produced(b"first"), produced(b"second")
    data = p.PartitionProduceData(0, memoryview(batch(b"lost")))
    first.topic_data.insert(0, p.TopicProduceData("absent", partition_data=[data]))
    answers = await wire.pipeline(("Produce", first, 9), ("Produce", second, 9))
    rows = [answer.responses[-1].partition_responses[0] for answer in answers]
    assert [(row.error_code, row.base_offset) for row in rows] == [(0, 0), (0, 1)]
    await wire.close()


async def test_a_commit_that_looks_for_a_topic_is_not_passed_by_the_next(bootstrap: str) -> None:
    """The same of positions: the one that was sent last stands in the end."""
    await create(bootstrap)
    wire = await Wire.open(bootstrap)

    def commit(offset: int, *names: str) -> oc.OffsetCommitRequest:
        row = oc.OffsetCommitRequestPartition(0, offset)
        return oc.OffsetCommitRequest(
            "g", topics=[oc.OffsetCommitRequestTopic(each, partitions=[row]) for each in names]
        )

    position = of.OffsetFetchRequest("g", [of.OffsetFetchRequestTopic(TOPIC, [0])])
    *_, found = await wire.pipeline(
        ("OffsetCommit", commit(1, "absent", TOPIC), 8),
        ("OffsetCommit", commit(2, TOPIC), 8),
        ("OffsetFetch", position, 7),
    )
    assert found.topics[0].partitions[0].committed_offset == 2
    await wire.close()
