"""Produce, Fetch and ListOffsets through the dispatcher: what each version of a client gets."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from agent.net.listening import ConnectionInfo, RequestContext
from agent.net.wire.api import API_VERSIONS
from agent.net.wire.errors import WireError
from agent.net.wire.frame import RequestHeader
from agent.net.wire.generated import fetch as f
from agent.net.wire.generated import list_offsets as lo
from agent.net.wire.generated import produce as p
from agent.net.wire.generated.metadata import MetadataRequest
from coordination.commands import BindSchema, CreateTopic, DeleteTopic
from coordination.kafka_codes import Code
from coordination.state.types import Done
from objectstore.batch import NewRecord, build, peek, records
from objectstore.compression import Compression
from tests.unit.agent.conftest import StartAgent
from tests.unit.agent.rig import Agent, batch
from tests.unit.coordination.conftest import until
from tests.unit.schema import samples

TOPIC = b"T" * 16
NOW = 1_700_000_000_000


async def create(agent: Agent, name: str = "t", partitions: int = 2, **configs: str) -> None:
    topic_id = name.encode().upper().ljust(16, b"T")[:16]
    entries = [CreateTopic(name=name, topic_id=topic_id, partitions=partitions)]
    for key, value in configs.items():
        entries[0].configs.add(name=key.replace("_", "."), value=value)
    assert isinstance(await agent.services.replica.propose(entries[0]), Done)


async def produce(
    agent: Agent,
    raw: bytes | None,
    version: int = 9,
    *,
    index: int = 0,
    name: str = "t",
    acks: int = -1,
    **more: Any,
) -> Any:
    topic = p.TopicProduceData(name=name, topic_id=more.pop("topic_id", TOPIC))
    topic.partition_data = [p.PartitionProduceData(index, None if raw is None else memoryview(raw))]
    timeout_ms = more.pop("request_timeout_ms", 5000)
    request = p.ProduceRequest(acks=acks, timeout_ms=timeout_ms, topic_data=[topic], **more)
    response = await agent.call("Produce", request, version)
    return None if response is None else response.responses[0].partition_responses[0]


def fetch_request(offset: int, index: int = 0, wait_ms: int = 0, **more: Any) -> f.FetchRequest:
    partition = f.FetchPartition(
        index, fetch_offset=offset, partition_max_bytes=more.pop("bytes_max", 1 << 20)
    )
    topic = f.FetchTopic(
        topic=more.pop("name", "t"), topic_id=more.pop("topic_id", TOPIC), partitions=[partition]
    )
    return f.FetchRequest(max_wait_ms=wait_ms, min_bytes=more.pop("min_bytes", 1), topics=[topic], **more)


async def fetch(agent: Agent, offset: int, version: int = 12, **more: Any) -> Any:
    response = await agent.call("Fetch", fetch_request(offset, **more), version)
    return response.responses[0].partitions[0]


def values(answer: Any) -> list[bytes | None]:
    return [record.value for record in records(answer.records)]


async def offsets(
    agent: Agent, *timestamps: int, version: int = 9, isolation: int = 0
) -> list[tuple[int, int, int]]:
    found = []
    for timestamp in timestamps:
        part = lo.ListOffsetsPartition(partition_index=0, timestamp=timestamp)
        request = lo.ListOffsetsRequest(
            replica_id=-1, isolation_level=isolation, topics=[lo.ListOffsetsTopic("t", [part])]
        )
        answer = (await agent.call("ListOffsets", request, version)).topics[0].partitions[0]
        found.append((answer.error_code, answer.offset, answer.timestamp))
    return found


@pytest.mark.parametrize("version", range(3, 14))
async def test_every_version_of_produce_stores_and_every_version_of_fetch_reads(
    agent: Agent, version: int
) -> None:
    await create(agent)
    answer = await produce(agent, batch(b"a", b"b"), version)
    assert (answer.error_code, answer.base_offset) == (0, 0)
    for fetch_version in (4, 7, 12, 13, 18):
        read = await fetch(agent, 0, fetch_version)
        assert (read.error_code, read.high_watermark, values(read)) == (0, 2, [b"a", b"b"])


async def test_what_has_no_room_is_not_overtaken_by_its_connection_s_next_requests(agent: Agent) -> None:
    await create(agent)
    driver = agent.services.produce
    await driver.room(driver.budget.limit)
    first = asyncio.ensure_future(produce(agent, batch(b"a"), request_timeout_ms=20))
    await until(lambda: driver.budget.waiting)
    second = asyncio.ensure_future(produce(agent, batch(b"b")))
    assert (await first).error_code == Code.NOT_ENOUGH_REPLICAS
    driver.budget.give(driver.budget.limit)
    assert (await second).error_code == Code.NOT_ENOUGH_REPLICAS, (
        "it had been sent before the first one failed"
    )
    assert (await produce(agent, batch(b"c"))).base_offset == 0
    assert driver.budget.used == 0


async def test_what_waits_for_room_does_not_overtake_what_fails_meanwhile(agent: Agent) -> None:
    await create(agent)
    driver = agent.services.produce
    await driver.room(driver.budget.limit)
    waiting = asyncio.ensure_future(produce(agent, batch(b"a")))
    await until(lambda: driver.budget.waiting)
    driver.failures += 1
    driver.budget.give(driver.budget.limit)
    assert (await waiting).error_code == Code.NOT_ENOUGH_REPLICAS
    assert (await produce(agent, batch(b"b"))).base_offset == 0
    assert driver.budget.used == 0


async def test_a_request_that_looks_for_a_topic_is_not_overtaken_in_another(agent: Agent) -> None:
    await create(agent)
    data = [p.PartitionProduceData(0, memoryview(batch(b"first")))]
    known, unknown = p.TopicProduceData(name="t", partition_data=data), p.TopicProduceData(name="nowhere")
    request = p.ProduceRequest(acks=-1, timeout_ms=5000, topic_data=[unknown, known])
    first = asyncio.ensure_future(agent.call("Produce", request, 9))
    second = asyncio.ensure_future(produce(agent, batch(b"second")))
    assert (await second).base_offset == 1
    assert (await first).responses[1].partition_responses[0].base_offset == 0


@pytest.mark.parametrize(
    ("software", "rack", "followed"),
    [("", "", False), ("librdkafka", "", True), ("apache-kafka-java", "", True), ("", "y", True)],
)
async def test_only_who_can_follow_is_sent_to_its_zone(
    start: StartAgent, software: str, rack: str, followed: bool
) -> None:
    """KafkaJS gives no rack and does not know an agent that has just come back: sent there, it would ask
    nobody for the partition until its metadata is five minutes old. Its next Metadata names that agent."""
    here = await start("a", agent={"zone": "x"})
    await create(here)
    await produce(here, batch(b"a"))
    there = await start("b", agent={"zone": "y"})
    brokers = here.services.replica.state.brokers
    await until(lambda: len(brokers) == 2)
    client = here.connect()
    client.software = software
    request = fetch_request(0, rack_id=rack)
    answer = await here.call("Fetch", request, 12, client, client_id="app,floe_zone=y")
    part = answer.responses[0].partitions[0]
    if followed:
        assert (part.preferred_read_replica, bytes(part.records)) == (there.services.replica.node_id, b"")
    else:
        assert (part.preferred_read_replica, values(part)) == (-1, [b"a"])


@pytest.mark.parametrize(
    ("software", "rack", "followed"),
    [("", "", False), ("librdkafka", "", True), ("apache-kafka-java", "", True), ("", "y", True)],
)
async def test_who_follows_is_told_where_to_read_when_an_agent_leaves(
    start: StartAgent, software: str, rack: str, followed: bool
) -> None:
    """As of a preferred replica, so that it goes at once; one that is here still gets the error at last."""
    here = await start("a")
    await create(here)
    await produce(here, batch(b"a"))
    there = await start("b")
    brokers = here.services.replica.state.brokers
    await until(lambda: len(brokers) == 2)
    client = here.connect()
    lost = here.connect()
    client.software = lost.software = software
    await here.call("Metadata", MetadataRequest(topics=None), 12, lost)
    moved = brokers[there.services.replica.node_id]
    for listeners in ((), moved.listeners):  # the other one comes back elsewhere, and then where it is
        here.services.hints.places.see([replace(moved, listeners=listeners)])
    await here.call("Metadata", MetadataRequest(topics=None), 12, client)
    await here.services.replica.leave()
    # Until the others know it, all are served as ever: nobody is sent to where the other one is no more.
    for each in (client, lost):
        answer = await here.call("Fetch", fetch_request(0, rack_id=rack), 12, each)
        part = answer.responses[0].partitions[0]
        assert (part.preferred_read_replica, values(part)) == (-1, [b"a"])
    here.services.standing.leaving = True
    refused = (Code.NOT_LEADER_OR_FOLLOWER, -1, -1)
    pointed = (Code.NONE, 1, there.services.replica.node_id)
    for due in (pointed, pointed, refused) if followed else (refused,):
        answer = await here.call("Fetch", fetch_request(0, rack_id=rack), 12, client)
        part = answer.responses[0].partitions[0]
        assert (part.error_code, part.high_watermark, part.preferred_read_replica) == due
        assert bytes(part.records) == b""
    # Who heard of the other one before it moved may look for it where it was.
    answer = await here.call("Fetch", fetch_request(0, rack_id=rack), 12, lost)
    assert answer.responses[0].partitions[0].error_code == Code.NOT_LEADER_OR_FOLLOWER
    old = await here.call("Fetch", fetch_request(0), 10, here.connect())
    assert old.responses[0].partitions[0].error_code == Code.NOT_LEADER_OR_FOLLOWER


@pytest.mark.parametrize(
    ("name", "version", "known"),
    [
        ("librdkafka", "2.16.0", "librdkafka"),
        ("confluent-kafka-python", "2.16.1-rdkafka-2.16.0", "librdkafka"),
        ("confluent-kafka-python", "2.3.0-librdkafka-2.3.0", "librdkafka"),
        ("apache-kafka-java", "4.1.0", "apache-kafka-java"),
    ],
)
async def test_bindings_of_librdkafka_are_known_as_it(
    agent: Agent, name: str, version: str, known: str
) -> None:
    connection = ConnectionInfo(1, "PLAINTEXT", "h", name, version)
    context = RequestContext(connection, API_VERSIONS, 0, 1, None)
    await agent.dispatcher(context, RequestHeader(API_VERSIONS, 0, 1, None, 0), memoryview(b""))
    assert connection.session.software == known


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_old_produce_versions_are_refused_not_ignored(agent: Agent, version: int) -> None:
    await create(agent)
    answer = await produce(agent, batch(b"a"), version)
    assert (answer.error_code, answer.base_offset) == (Code.UNSUPPORTED_VERSION, -1)


@pytest.mark.parametrize("version", [9, 13])
async def test_unknown_topics_and_partitions(agent: Agent, version: int) -> None:
    await create(agent)
    missing = await produce(agent, batch(b"a"), version, name="nope", topic_id=b"n" * 16)
    assert missing.error_code == (Code.UNKNOWN_TOPIC_ID if version >= 13 else Code.UNKNOWN_TOPIC_OR_PARTITION)
    assert (missing.base_offset, missing.log_start_offset) == (-1, -1)
    assert (await produce(agent, batch(b"a"), version, index=9)).error_code == Code.UNKNOWN_TOPIC_OR_PARTITION
    read = await fetch(agent, 0, version + 3, name="nope", topic_id=b"n" * 16)
    assert read.error_code == (Code.UNKNOWN_TOPIC_ID if version >= 10 else Code.UNKNOWN_TOPIC_OR_PARTITION)


async def test_one_bad_partition_does_not_spoil_the_others(agent: Agent) -> None:
    await create(agent)
    topic = p.TopicProduceData(name="t")
    broken = bytearray(batch(b"x"))
    broken[-1] ^= 1
    topic.partition_data = [
        p.PartitionProduceData(0, memoryview(bytes(broken))),
        p.PartitionProduceData(1, memoryview(batch(b"y"))),
    ]
    response = await agent.call("Produce", p.ProduceRequest(acks=-1, timeout_ms=5000, topic_data=[topic]), 9)
    answers = response.responses[0].partition_responses
    assert [(a.error_code, a.base_offset) for a in answers] == [(Code.CORRUPT_MESSAGE, -1), (0, 0)]


async def test_acks_0_has_no_answer_and_stores(agent: Agent) -> None:
    await create(agent)
    assert await produce(agent, batch(b"a"), acks=0) is None
    assert values(await fetch(agent, 0, wait_ms=5000)) == [b"a"]


async def test_acks_0_with_an_error_closes_the_connection(agent: Agent) -> None:
    await create(agent)
    with pytest.raises(WireError):
        await produce(agent, b"", acks=0)


async def test_acks_must_be_known(agent: Agent) -> None:
    await create(agent)
    assert (await produce(agent, batch(b"a"), acks=2)).error_code == Code.INVALID_REQUIRED_ACKS


@pytest.mark.parametrize("codec", list(Compression))
async def test_every_codec_passes_through_unchanged(agent: Agent, codec: Compression) -> None:
    await create(agent)
    raw = build([NewRecord(NOW, b"k", b"v" * 1000, (("h", b"1"),))] * 3, compression=codec)
    await produce(agent, raw)
    answer = await fetch(agent, 0)
    assert bytes(answer.records)[16:] == raw[16:]
    assert [(r.key, r.headers) for r in records(answer.records)] == [(b"k", [("h", b"1")])] * 3


async def test_append_time_replaces_the_producers_timestamps(agent: Agent) -> None:
    await create(agent, message_timestamp_type="LogAppendTime")
    answer = await produce(agent, batch(b"a", b"b", timestamp=5))
    header = peek((await fetch(agent, 0)).records)
    assert answer.log_append_time_ms == header.max_timestamp > NOW
    assert header.timestamp_type == 1
    assert {r.timestamp for r in records((await fetch(agent, 0)).records)} == {answer.log_append_time_ms}


async def test_a_batch_above_the_topics_limit(agent: Agent) -> None:
    await create(agent, max_message_bytes="100")
    assert (await produce(agent, batch(b"x" * 100))).error_code == Code.MESSAGE_TOO_LARGE


async def test_records_that_break_the_schema_are_named(agent: Agent) -> None:
    await create(agent)
    schema = BindSchema(
        topic="t", descriptor_set=samples.descriptor_set(samples.FLIGHTS), message="nyc.Flight"
    )
    assert isinstance(await agent.services.replica.propose(schema), Done)
    good = b"\x08\xdd\x0f"  # year = 2013
    answer = await produce(agent, batch(good, b"\xff\xff", good, b"\x07"))
    assert (answer.error_code, answer.base_offset) == (Code.INVALID_RECORD, -1)
    assert [each.batch_index for each in answer.record_errors] == [1, 3]
    assert all(each.batch_index_error_message for each in answer.record_errors)
    assert answer.error_message
    assert answer.log_start_offset == 0
    assert (await produce(agent, batch(good))).error_code == 0


async def test_a_retry_through_another_agent_is_recognised(start: StartAgent) -> None:
    first, second = await start("a"), await start("b")
    await create(first)
    raw = batch(b"a", b"b", producer_id=9, producer_epoch=0, base_sequence=0)
    assert (await produce(first, raw)).base_offset == 0
    again = await produce(second, raw)
    assert (again.error_code, again.base_offset) == (0, 0)
    following = batch(b"c", producer_id=9, producer_epoch=0, base_sequence=2)
    assert (await produce(second, following)).base_offset == 2
    assert values(await fetch(first, 0, min_bytes=1, wait_ms=1000))[:2] == [b"a", b"b"]


async def test_one_agent_reads_what_another_wrote(start: StartAgent) -> None:
    writer, reader = await start("a"), await start("b")
    await create(writer)
    for n in range(5):
        await produce(writer, batch(b"%d" % n))
    read = values(await fetch(reader, 0, min_bytes=5 * len(batch(b"0")), wait_ms=5000))
    assert read == [b"%d" % n for n in range(5)]


async def test_pipelined_produces_of_one_connection_keep_their_order(agent: Agent) -> None:
    await create(agent)
    answers = await asyncio.gather(*[produce(agent, batch(b"%d" % n)) for n in range(50)])
    assert [answer.base_offset for answer in answers] == list(range(50))


async def test_a_long_poll_wakes_on_append(agent: Agent) -> None:
    await create(agent)
    poll = asyncio.create_task(fetch(agent, 0, wait_ms=60_000))
    await asyncio.sleep(0.05)
    assert not poll.done()
    await produce(agent, batch(b"a"))
    async with asyncio.timeout(5):
        assert values(await poll) == [b"a"]
    assert agent.services.reader.stats.gets == 0, "the tail comes from memory"


async def test_a_long_poll_for_more_bytes_gathers_them(agent: Agent) -> None:
    await create(agent)
    size = len(batch(b"a"))
    poll = asyncio.create_task(fetch(agent, 0, wait_ms=60_000, min_bytes=2 * size))
    await produce(agent, batch(b"a"))
    await asyncio.sleep(0.02)
    assert not poll.done()
    await produce(agent, batch(b"b"))
    async with asyncio.timeout(5):
        assert values(await poll) == [b"a", b"b"]


async def test_a_long_poll_ends_empty_in_time(agent: Agent) -> None:
    await create(agent)
    answer = await fetch(agent, 0, wait_ms=20)
    assert (answer.error_code, answer.high_watermark, len(answer.records or b"")) == (0, 0, 0)


async def test_out_of_range_is_said_after_a_barrier_and_at_once(start: StartAgent) -> None:
    writer, behind = await start("a"), await start("b")
    await create(writer)
    for _ in range(3):
        await produce(writer, batch(b"a"))
    behind.log.faults.delivery_delay_s = 0.1
    await produce(writer, batch(b"b"))
    async with asyncio.timeout(5):
        answer = await fetch(behind, 4, wait_ms=50)
        assert (answer.error_code, answer.high_watermark) == (0, 4)
        beyond = await fetch(behind, 5, wait_ms=60_000)
        assert (beyond.error_code, beyond.high_watermark) == (Code.OFFSET_OUT_OF_RANGE, 4)


async def test_without_the_log_an_offset_beyond_what_is_known_is_not_out_of_range(
    start: StartAgent,
) -> None:
    """Seed 10318 of the simulation: the consumer went back to offset 0, where all is read twice."""
    writer, behind = await start("a"), await start("b")
    await create(writer)
    await produce(writer, batch(b"a"))
    assert (await fetch(behind, 1)).error_code == 0, "it has applied the first record"
    behind.log.faults.refused = True
    await produce(writer, batch(b"b"))
    beyond = await fetch(behind, 2)
    assert (beyond.error_code, beyond.high_watermark) == (Code.NOT_LEADER_OR_FOLLOWER, 1)
    behind.log.faults.refused = False
    assert (await fetch(behind, 2)).error_code == 0


async def test_one_unknown_partition_does_not_end_the_wait(agent: Agent) -> None:
    await create(agent)
    request = fetch_request(0, wait_ms=60_000)
    request.topics[0].partitions.append(f.FetchPartition(7, fetch_offset=0, partition_max_bytes=10))
    poll = asyncio.create_task(agent.call("Fetch", request, 12))
    await asyncio.sleep(0.05)
    assert not poll.done()
    await produce(agent, batch(b"a"))
    async with asyncio.timeout(5):
        codes = [part.error_code for part in (await poll).responses[0].partitions]
    assert codes == [0, Code.UNKNOWN_TOPIC_OR_PARTITION]


async def test_aborted_transactions_are_a_list_only_for_readers_of_committed_data(agent: Agent) -> None:
    await create(agent)
    await produce(agent, batch(b"a"))
    assert (await fetch(agent, 0, isolation_level=1)).aborted_transactions == []
    assert (await fetch(agent, 0, isolation_level=0)).aborted_transactions is None


async def test_list_offsets_by_every_kind_of_timestamp(agent: Agent) -> None:
    await create(agent)
    await produce(agent, batch(b"0", b"1", b"2", timestamp=NOW))
    await produce(agent, batch(b"3", b"4", timestamp=NOW + 100))
    await produce(agent, batch(b"5", timestamp=NOW + 50))
    assert await offsets(agent, -1, -2, -3, -4, -5) == [
        (0, 6, -1), (0, 0, -1), (0, 4, NOW + 101), (0, 0, -1), (0, -1, -1),
    ]  # fmt: skip
    assert await offsets(agent, 0, NOW + 1, NOW + 2, NOW + 3, NOW + 101, NOW + 102) == [
        (0, 0, NOW), (0, 1, NOW + 1), (0, 2, NOW + 2), (0, 3, NOW + 100), (0, 4, NOW + 101), (0, -1, -1),
    ]  # fmt: skip
    assert await offsets(agent, -1, isolation=1) == [(0, 6, -1)]


@pytest.mark.parametrize(("timestamp", "version"), [(-3, 6), (-4, 7), (-5, 8), (-6, 10), (-7, 11)])
async def test_timestamps_newer_than_the_version_are_unsupported(
    agent: Agent, timestamp: int, version: int
) -> None:
    await create(agent)
    assert (await offsets(agent, timestamp, version=version))[0][0] == Code.UNSUPPORTED_VERSION


async def test_list_offsets_is_fresh_on_an_agent_that_is_behind(start: StartAgent) -> None:
    writer, behind = await start("a"), await start("b")
    await create(writer)
    behind.log.faults.delivery_delay_s = 0.1
    await produce(writer, batch(b"a", b"b"))
    assert await offsets(behind, -1) == [(0, 2, -1)]


async def test_a_partition_named_twice_is_invalid(agent: Agent) -> None:
    await create(agent)
    part = lo.ListOffsetsPartition(partition_index=0, timestamp=-1)
    request = lo.ListOffsetsRequest(replica_id=-1, topics=[lo.ListOffsetsTopic("t", [part, part])])
    answer = await agent.call("ListOffsets", request, 9)
    assert {each.error_code for each in answer.topics[0].partitions} == {Code.INVALID_REQUEST}


async def test_a_deleted_topic_ends_a_poll(agent: Agent) -> None:
    await create(agent)
    poll = asyncio.create_task(fetch(agent, 0, wait_ms=60_000))
    await asyncio.sleep(0.02)
    await agent.services.replica.propose(DeleteTopic(name="t"))
    async with asyncio.timeout(5):
        assert (await poll).error_code == Code.UNKNOWN_TOPIC_OR_PARTITION


def test_fetched_parts_are_not_joined() -> None:
    """The wire takes several buffers for one partition's records."""
    parts: Sequence[memoryview] = [memoryview(b"ab"), memoryview(b"cd")]
    data = f.PartitionData(records=parts)
    response = f.FetchResponse(responses=[f.FetchableTopicResponse(topic="t", partitions=[data])])
    out = f.encode_response(response, 12)
    assert any(part is parts[0] for part in out)
