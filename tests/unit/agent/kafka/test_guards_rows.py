"""What is refused beside what is answered, what is not shown at all, and how soon a change counts."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from agent.kafka.authority.authority import NAME_CHARS_MAX
from agent.kafka.authority.needs import SUPPORTED
from agent.kafka.handlers.k00_produce import Unacknowledged
from agent.net.wire.errors import WireError
from agent.net.wire.generated import consumer_group_describe as cgd
from agent.net.wire.generated import consumer_group_heartbeat as cgh
from agent.net.wire.generated import create_acls as ca
from agent.net.wire.generated import create_topics as ct
from agent.net.wire.generated import delete_topics as dt
from agent.net.wire.generated import describe_acls as da
from agent.net.wire.generated import describe_cluster as dcl
from agent.net.wire.generated import describe_groups as de
from agent.net.wire.generated import describe_topic_partitions as dtp
from agent.net.wire.generated import describe_transactions as dtx
from agent.net.wire.generated import fetch as fe
from agent.net.wire.generated import init_producer_id as ip
from agent.net.wire.generated import list_groups as lg
from agent.net.wire.generated import list_offsets as lo
from agent.net.wire.generated import list_transactions as lt
from agent.net.wire.generated import metadata as md
from agent.net.wire.generated import offset_commit as oc
from agent.net.wire.generated import offset_fetch as of
from agent.net.wire.generated import produce as pr
from coordination.kafka_codes import Code
from coordination.state.acl_types import CLUSTER_NAME, Operation, PatternType, ResourceType
from coordination.state.acls import NAME_LENGTH_MAX
from tests.unit.agent.kafka.guards_rig import (
    ALTER,
    CLUSTER,
    CREATE,
    DELETE,
    DESCRIBE,
    GROUP,
    ID,
    READ,
    TOPIC,
    WRITE,
    Guarded,
    guarded,
)
from tests.unit.agent.rig import batch

NO_TOPIC, NO_GROUP = Code.TOPIC_AUTHORIZATION_FAILED, Code.GROUP_AUTHORIZATION_FAILED
NONE_ASKED = -(1 << 31)
ALL_NAMES = "*"


async def metadata(there: Guarded, *names: str, version: int = 12, **more: Any) -> Any:
    topics = [md.MetadataRequestTopic(name=name) for name in names] if names else None
    request = md.MetadataRequest(topics, more.pop("create", False), **more)
    return await there.ask("Metadata", request, version)


def topic_id(there: Guarded, name: str) -> bytes:
    return there.agent.services.replica.state.topics[name].topic_id


def bits(*operations: Operation) -> int:
    return sum(1 << operation for operation in operations)


async def test_topics_that_one_may_not_describe_are_not_among_all() -> None:
    async with guarded() as there:
        assert (await metadata(there)).topics == []
        for version in (0, 1, 12):
            answer = await there.ask("Metadata", md.MetadataRequest([] if version == 0 else None), version)
            assert answer.topics == [], version
            assert answer.brokers
        await there.allow(READ, TOPIC, "seen")
        for version in (0, 1, 12):
            answer = await there.ask("Metadata", md.MetadataRequest([] if version == 0 else None), version)
            assert [row.name for row in answer.topics] == ["seen"], version
            assert len(answer.topics[0].partitions) == 2


async def test_a_topic_asked_for_by_name_is_refused_whether_it_is_there_or_not() -> None:
    async with guarded() as there:
        await there.allow(DESCRIBE, TOPIC, "seen")
        answer = await metadata(there, "hidden", "nowhere", "seen")
        assert {row.name: row.error_code for row in answer.topics} == {
            "seen": 0,
            "hidden": NO_TOPIC,
            "nowhere": NO_TOPIC,
        }
        hidden = next(row for row in answer.topics if row.name == "hidden")
        assert (hidden.topic_id, hidden.partitions) == (bytes(16), [])
        answer = await there.ask("Metadata", md.MetadataRequest([md.MetadataRequestTopic(name="hidden")]), 0)
        assert [row.error_code for row in answer.topics] == [NO_TOPIC], "of version 0, where none are all"


async def test_an_id_does_not_tell_the_name() -> None:
    async with guarded() as there:
        ids = [topic_id(there, "hidden"), topic_id(there, "seen"), b"?" * 16]
        await there.allow(DESCRIBE, TOPIC, "seen")
        request = md.MetadataRequest([md.MetadataRequestTopic(each, None) for each in ids])
        answer = await there.ask("Metadata", request, 12)
        assert {row.topic_id: (row.error_code, row.name) for row in answer.topics} == {
            ids[0]: (NO_TOPIC, None),
            ids[1]: (0, "seen"),
            ids[2]: (Code.UNKNOWN_TOPIC_ID, None),
        }


@pytest.mark.parametrize("by", [(CLUSTER, CLUSTER_NAME), (TOPIC, "new")])
async def test_who_may_create_creates_by_naming(by: tuple[ResourceType, str]) -> None:
    async with guarded() as there:
        await there.allow(DESCRIBE, TOPIC, "new")
        answer = await metadata(there, "new", create=True)
        assert [row.error_code for row in answer.topics] == [NO_TOPIC]
        assert "new" not in there.agent.services.replica.state.topics
        answer = await metadata(there, "new", create=False)
        assert [row.error_code for row in answer.topics] == [Code.UNKNOWN_TOPIC_OR_PARTITION]
        await there.allow(CREATE, *by)
        answer = await metadata(there, "new", create=True)
        assert [row.error_code for row in answer.topics] == [0]
        assert "new" in there.agent.services.replica.state.topics


async def test_operations_are_those_that_one_may() -> None:
    async with guarded() as there:
        await there.allow(READ, TOPIC, "seen")
        more = {"include_topic_authorized_operations": True, "include_cluster_authorized_operations": True}
        answer = await metadata(there, "seen", version=10, **more)
        assert answer.topics[0].topic_authorized_operations == bits(READ, DESCRIBE)
        assert answer.cluster_authorized_operations == 0, (
            "who may not describe the cluster is told of nothing"
        )
        asked = dcl.DescribeClusterRequest(include_cluster_authorized_operations=True)
        assert (await there.ask("DescribeCluster", asked, 1)).cluster_authorized_operations == 0
        await there.allow(ALTER, CLUSTER, CLUSTER_NAME)
        assert (await there.ask("DescribeCluster", asked, 1)).cluster_authorized_operations == bits(
            ALTER, DESCRIBE
        )
        answer = await metadata(there, "seen", version=10, **more)
        assert answer.cluster_authorized_operations == bits(ALTER, DESCRIBE)
        root = await there.agent.call("Metadata", md.MetadataRequest(None, False, True, True), 10, there.root)
        assert root.cluster_authorized_operations == bits(*SUPPORTED[CLUSTER])
        assert {row.topic_authorized_operations for row in root.topics} == {bits(*SUPPORTED[TOPIC])}
        await there.allow(DELETE, GROUP, "g")
        await there.ask("OffsetCommit", commit("g", "seen"), 8)
        answer = await there.ask("DescribeGroups", de.DescribeGroupsRequest(["g"], True), 5)
        assert answer.groups[0].authorized_operations == bits(DELETE, DESCRIBE)


async def test_partitions_page_by_page() -> None:
    async with guarded() as there:
        await there.allow(READ, TOPIC, "seen")
        answer = await there.ask("DescribeTopicPartitions", dtp.DescribeTopicPartitionsRequest(), 0)
        assert [(row.name, len(row.partitions)) for row in answer.topics] == [("seen", 2)]
        assert answer.topics[0].topic_authorized_operations == bits(READ, DESCRIBE)
        both = [dtp.TopicRequest("hidden"), dtp.TopicRequest("seen")]
        answer = await there.ask("DescribeTopicPartitions", dtp.DescribeTopicPartitionsRequest(both, 1), 0)
        assert [(row.name, row.error_code) for row in answer.topics] == [("seen", 0), ("hidden", NO_TOPIC)]
        assert answer.next_cursor == dtp.Cursor("seen", 1)
        cursor = dtp.Cursor("hidden", 0)
        answer = await there.ask(
            "DescribeTopicPartitions", dtp.DescribeTopicPartitionsRequest([], 9, cursor), 0
        )
        assert [row.name for row in answer.topics] == ["seen"]
        answer = await there.ask(
            "DescribeTopicPartitions", dtp.DescribeTopicPartitionsRequest([], 9, dtp.Cursor("zzz", 0)), 0
        )
        assert answer.topics == [], "behind all that one may see, not all there is"


def produce(*names: str, acks: int = -1, by_id: Guarded | None = None) -> pr.ProduceRequest:
    data = [
        pr.TopicProduceData(
            name,
            topic_id=bytes(16) if by_id is None else topic_id(by_id, name),
            partition_data=[pr.PartitionProduceData(0, batch(b"v"))],
        )
        for name in names
    ]
    return pr.ProduceRequest(None, acks, 5000, data)


@pytest.mark.parametrize("version", [9, 13])
async def test_produce_stores_what_it_may(version: int) -> None:
    async with guarded() as there:
        await there.allow(WRITE, TOPIC, "seen")
        request = produce("hidden", "seen", by_id=there if version == 13 else None)
        answer = await there.ask("Produce", request, version)
        codes = [part.error_code for row in answer.responses for part in row.partition_responses]
        assert codes == [NO_TOPIC, 0]
        topics = there.agent.services.replica.state.topics
        ends = {name: topics[name].partitions[0].high_watermark for name in ("seen", "hidden")}
        assert ends == {"seen": 1, "hidden": 0}


async def test_who_wants_no_answer_loses_the_connection() -> None:
    async with guarded() as there:
        with pytest.raises(Unacknowledged):
            await there.ask("Produce", produce("hidden", acks=0), 9)


def fetch(there: Guarded, *names: str, wait_ms: int = 0, version: int = 13) -> fe.FetchRequest:
    part = fe.FetchPartition(0, fetch_offset=0, partition_max_bytes=1 << 20)
    topics = [
        fe.FetchTopic("", topic_id(there, name), [part])
        if version >= 13
        else fe.FetchTopic(name, bytes(16), [part])
        for name in names
    ]
    return fe.FetchRequest(max_wait_ms=wait_ms, min_bytes=1, max_bytes=1 << 20, topics=topics)


@pytest.mark.parametrize("version", [12, 13])
async def test_fetch_reads_what_it_may(version: int) -> None:
    async with guarded() as there:
        await there.agent.call("Produce", produce("seen", "hidden"), 9, there.root)
        await there.allow(READ, TOPIC, "seen")
        answer = await there.ask("Fetch", fetch(there, "hidden", "seen", version=version), version)
        got = {
            row.topic or row.topic_id: (part.error_code, part.high_watermark, bool(part.records))
            for row in answer.responses
            for part in row.partitions
        }
        seen, hidden = (
            ("seen", "hidden") if version < 13 else (topic_id(there, name) for name in ("seen", "hidden"))
        )
        assert got == {seen: (0, 1, True), hidden: (NO_TOPIC, -1, False)}


async def test_a_long_poll_is_asked_again_when_it_answers() -> None:
    async with guarded() as there:
        await there.allow(READ, TOPIC, "seen")
        waiting = asyncio.ensure_future(there.ask("Fetch", fetch(there, "seen", wait_ms=20_000), 13))
        await asyncio.sleep(0.05)
        assert not waiting.done()
        assert await there.revoke("seen") == 1
        await there.agent.call("Produce", produce("seen"), 9, there.root)
        answer = await waiting
        (part,) = answer.responses[0].partitions
        assert (part.error_code, part.high_watermark, bytes(part.records)) == (NO_TOPIC, -1, b"")


async def test_a_revoked_acl_stops_the_next_request_and_a_new_one_lets_it_go_on() -> None:
    async with guarded() as there:
        for _ in range(2):
            await there.allow(WRITE, TOPIC, "seen")
            answer = await there.ask("Produce", produce("seen"), 9)
            assert answer.responses[0].partition_responses[0].error_code == 0
            await there.revoke("seen")
            answer = await there.ask("Produce", produce("seen"), 9)
            assert answer.responses[0].partition_responses[0].error_code == NO_TOPIC


def commit(group: str, *names: str) -> oc.OffsetCommitRequest:
    rows = [
        oc.OffsetCommitRequestTopic(name, partitions=[oc.OffsetCommitRequestPartition(0, 5)])
        for name in names
    ]
    return oc.OffsetCommitRequest(group, -1, "", topics=rows)


async def test_positions() -> None:
    async with guarded() as there:
        await there.agent.call("OffsetCommit", commit("g", "seen", "hidden"), 8, there.root)
        await there.allow(READ, GROUP, "g")
        await there.allow(READ, TOPIC, "seen")
        answer = await there.ask("OffsetCommit", commit("g", "hidden", "seen"), 8)
        assert [row.partitions[0].error_code for row in answer.topics] == [NO_TOPIC, 0]
        named = [of.OffsetFetchRequestTopics(name, partition_indexes=[0]) for name in ("hidden", "seen")]
        groups = [
            of.OffsetFetchRequestGroup("g", topics=named),
            of.OffsetFetchRequestGroup("other", topics=named),
            of.OffsetFetchRequestGroup("g", topics=None),
        ]
        answer = await there.ask("OffsetFetch", of.OffsetFetchRequest(groups=groups[:2]), 9)
        told = {
            group.group_id: (
                group.error_code,
                {
                    row.name: (row.partitions[0].error_code, row.partitions[0].committed_offset)
                    for row in group.topics
                },
            )
            for group in answer.groups
        }
        assert told == {"g": (0, {"seen": (0, 5), "hidden": (NO_TOPIC, -1)}), "other": (NO_GROUP, {})}
        answer = await there.ask("OffsetFetch", of.OffsetFetchRequest(groups=groups[2:]), 9)
        assert [row.name for group in answer.groups for row in group.topics] == ["seen"]
        answer = await there.ask("OffsetFetch", of.OffsetFetchRequest("g", None), 5)
        assert [row.name for row in answer.topics] == ["seen"]
        by_id = [
            of.OffsetFetchRequestTopics("", topic_id(there, name), [0]) for name in ("hidden", "seen")
        ] + [of.OffsetFetchRequestTopics("", b"?" * 16, [0])]
        request = of.OffsetFetchRequest(groups=[of.OffsetFetchRequestGroup("g", topics=by_id)])
        answer = await there.ask("OffsetFetch", request, 10)
        codes = {row.topic_id: row.partitions[0].error_code for row in answer.groups[0].topics}
        assert codes == {
            topic_id(there, "hidden"): NO_TOPIC,
            topic_id(there, "seen"): 0,
            b"?" * 16: Code.UNKNOWN_TOPIC_ID,
        }


async def test_groups_that_one_may_not_describe_are_not_listed() -> None:
    async with guarded() as there:
        for group in ("g", "h"):
            await there.agent.call("OffsetCommit", commit(group, "seen"), 8, there.root)
        assert (await there.ask("ListGroups", lg.ListGroupsRequest(), 4)).groups == []
        await there.allow(READ, GROUP, "h")
        assert [
            row.group_id for row in (await there.ask("ListGroups", lg.ListGroupsRequest(), 4)).groups
        ] == ["h"]
        await there.allow(DESCRIBE, CLUSTER, CLUSTER_NAME)
        assert len((await there.ask("ListGroups", lg.ListGroupsRequest(), 4)).groups) == 2


async def test_transactions_that_one_may_not_describe_are_not_listed() -> None:
    async with guarded() as there:
        for name in ("x", "y"):
            answer = await there.agent.call(
                "InitProducerId", ip.InitProducerIdRequest(name, 60_000), 4, there.root
            )
            assert answer.error_code == 0
        assert (await there.ask("ListTransactions", lt.ListTransactionsRequest(), 0)).transaction_states == []
        await there.allow(WRITE, ID, "x")
        listed = await there.ask("ListTransactions", lt.ListTransactionsRequest(), 0)
        assert [row.transactional_id for row in listed.transaction_states] == ["x"]
        answer = await there.ask("DescribeTransactions", dtx.DescribeTransactionsRequest(["x", "y"]), 0)
        assert {row.transactional_id: row.error_code for row in answer.transaction_states} == {
            "x": 0,
            "y": Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        }


async def test_members_topics_hide_a_group_from_who_may_not_describe_them() -> None:
    async with guarded() as there:
        beat = cgh.ConsumerGroupHeartbeatRequest(
            "k", "m" * 22, 0, rebalance_timeout_ms=1000, subscribed_topic_names=["seen"], topic_partitions=[]
        )
        assert (await there.agent.call("ConsumerGroupHeartbeat", beat, 1, there.root)).error_code == 0
        await there.allow(DESCRIBE, GROUP, "k")
        described = await there.ask("ConsumerGroupDescribe", cgd.ConsumerGroupDescribeRequest(["k"]), 0)
        assert [(row.error_code, row.members) for row in described.groups] == [(NO_TOPIC, [])]
        await there.allow(DESCRIBE, TOPIC, "seen")
        described = await there.ask("ConsumerGroupDescribe", cgd.ConsumerGroupDescribeRequest(["k"]), 0)
        assert [(row.error_code, len(row.members)) for row in described.groups] == [(0, 1)]


async def test_a_new_topics_configs_are_told_to_who_may_read_them() -> None:
    async with guarded() as there:
        await there.allow(CREATE, CLUSTER, CLUSTER_NAME)
        answer = await there.ask("CreateTopics", ct.CreateTopicsRequest([ct.CreatableTopic("one", 3, 1)]), 7)
        (row,) = answer.topics
        assert (row.error_code, row.topic_config_error_code) == (0, NO_TOPIC)
        assert (row.num_partitions, row.replication_factor, row.configs) == (-1, -1, [])
        await there.allow(Operation.ALTER_CONFIGS, TOPIC, "two")
        answer = await there.ask("CreateTopics", ct.CreateTopicsRequest([ct.CreatableTopic("two", 3, 1)]), 7)
        (row,) = answer.topics
        assert (row.topic_config_error_code, row.num_partitions) == (0, 3)
        assert row.configs
        twice = [ct.CreatableTopic("hidden", 1, 1)] * 2
        await there.revoke(CLUSTER_NAME)
        answer = await there.ask("CreateTopics", ct.CreateTopicsRequest(twice), 7)
        assert [row.error_code for row in answer.topics] == [Code.INVALID_REQUEST]


async def test_deleting_tells_nobody_what_is_there() -> None:
    async with guarded() as there:
        hidden, seen = topic_id(there, "hidden"), topic_id(there, "seen")
        await there.allow(DESCRIBE, TOPIC, "seen")
        await there.allow(DESCRIBE, TOPIC, "gone")
        states = [dt.DeleteTopicState(None, each) for each in (hidden, seen, b"?" * 16)]
        states += [dt.DeleteTopicState("gone"), dt.DeleteTopicState("elsewhere")]
        answer = await there.ask("DeleteTopics", dt.DeleteTopicsRequest(states, timeout_ms=5000), 6)
        told = {(row.name, row.topic_id): row.error_code for row in answer.responses}
        nil = bytes(16)
        assert told == {
            (None, hidden): NO_TOPIC,
            ("seen", seen): NO_TOPIC,
            (None, b"?" * 16): Code.UNKNOWN_TOPIC_ID,
            ("gone", nil): Code.UNKNOWN_TOPIC_OR_PARTITION,
            ("elsewhere", nil): NO_TOPIC,
        }
        assert set(there.agent.services.replica.state.topics) == {"seen", "hidden"}


async def test_many_rows_one_of_which_is_refused() -> None:
    async with guarded() as there:
        await there.allow(DESCRIBE, TOPIC, "s", pattern=PatternType.PREFIXED)
        parts = [lo.ListOffsetsPartition(index, -1, -1) for index in range(3_000)]
        topics = [lo.ListOffsetsTopic("seen", parts), lo.ListOffsetsTopic("hidden", parts[:1])]
        answer = await there.ask("ListOffsets", lo.ListOffsetsRequest(-1, 0, topics), 9)
        assert [len(row.partitions) for row in answer.topics] == [3_000, 1]
        assert answer.topics[1].partitions[0].error_code == NO_TOPIC


@pytest.mark.parametrize(
    ("host", "code"), [("10.1.2.3", 0), ("10.1.0.0/16", 0), ("10.1.2.4", NO_TOPIC), ("10.2.0.0/16", NO_TOPIC)]
)
async def test_from_where(host: str, code: int) -> None:
    async with guarded() as there:
        await there.allow(WRITE, TOPIC, "seen", host=host)
        answer = await there.ask("Produce", produce("seen"), 9)
        assert answer.responses[0].partition_responses[0].error_code == code


async def test_everybody_where_no_acl_is() -> None:
    async with guarded(allow_everyone_if_no_acl_found=True) as there:
        assert [row.name for row in (await metadata(there)).topics] == ["hidden", "seen"]
        await there.allow(READ, TOPIC, "hidden", who="User:bob")
        assert [row.name for row in (await metadata(there)).topics] == ["seen"]


async def test_acls_over_the_wire() -> None:
    async with guarded() as there:
        rows = [
            ca.AclCreation(2, "t", 3, "User:eve", "*", 3, 3),
            ca.AclCreation(2, "t", 4, "User:eve", "10.0.0.0/8", 4, 2),
            ca.AclCreation(2, "t", 3, "eve", "*", 3, 3),
            ca.AclCreation(4, "cluster", 3, "User:eve", "*", 3, 3),
            ca.AclCreation(2, "a\nb\x00", 3, "User:\u202eeve", "*", 3, 3),
        ]
        answer = await there.agent.call("CreateAcls", ca.CreateAclsRequest(rows), 3, there.root)
        wrong = Code.INVALID_REQUEST
        assert [row.error_code for row in answer.results] == [0, 0, wrong, wrong, 0]
        everything = da.DescribeAclsRequest(1, None, 1, None, None, 1, 1)
        told = await there.agent.call("DescribeAcls", everything, 3, there.root)
        assert [(row.resource_name, row.pattern_type) for row in told.resources] == [
            ("t", 3),
            ("t", 4),
            ("a\nb\x00", 3),
        ]
        nothing = da.DescribeAclsRequest(1, "nowhere", 1, None, None, 1, 1)
        told = await there.agent.call("DescribeAcls", nothing, 3, there.root)
        assert (told.error_code, told.resources) == (0, [])
        unknown = da.DescribeAclsRequest(0, None, 1, None, None, 1, 1)
        with pytest.raises(WireError):
            await there.agent.call("DescribeAcls", unknown, 3, there.root)


async def test_answers_are_forgotten_at_their_most() -> None:
    async with guarded(cache_entries_max=2) as there:
        authority = there.agent.services.authority
        for number in range(10):
            assert not authority.allows("alice", "10.1.2.3", READ, TOPIC, f"t{number}")
            assert 1 <= authority.entries <= 2


async def test_answers_about_long_names_are_not_remembered() -> None:
    """Clients choose them: each as long as a text of the protocol may be."""
    async with guarded() as there:
        authority, name = there.agent.services.authority, "x" * (NAME_CHARS_MAX + 1)
        await there.allow(READ, TOPIC, "x", pattern=PatternType.PREFIXED)
        assert authority.allows("alice", "10.1.2.3", READ, TOPIC, name[1:])
        before = authority.entries
        assert authority.allows("alice", "10.1.2.3", READ, TOPIC, name)
        assert not authority.allows("alice", "10.1.2.3", WRITE, TOPIC, name)
        assert authority.entries == before > 0


async def test_shadow_keeps_the_newest_kinds_only() -> None:
    async with guarded("shadow", shadow_rows_max=2) as there:
        for name in ("a", "b", "a", "c"):
            await metadata(there, name)
        shadow = there.agent.services.authority.shadow
        assert [(seen.name, times.count) for seen, times in shadow.rows()] == [("a", 2), ("c", 1)]
        assert shadow.forgotten == 1
        assert shadow.rows(after_ms=1 << 60) == []
        await metadata(there, "x" * 5_000)
        assert {len(seen.name) for seen, _ in shadow.rows()} == {1, NAME_LENGTH_MAX}
