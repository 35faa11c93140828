"""Questions about what is named wrongly: topics by id where that is not known, another producer's id.

And batches whose records have times that the topic does not allow: which of them are told.
"""

from __future__ import annotations

import asyncio

from agent.net.wire.generated import describe_transactions as dx
from agent.net.wire.generated import metadata as m
from agent.net.wire.generated import produce as p
from objectstore.batch import NewRecord, build
from tests.compat.against.questions_transactions import GROUP, client, coordinated, settled
from tests.compat.against.side import NOW, Answers, Question, Side, code, told
from tests.compat.raw import topic_id
from tests.equipment.transactional_client import V2

FUTURE = 4_102_444_800_000
STRANGE = b"?" * 16
TIMED_OUT_S_MAX = 60  # Kafka looks every ten seconds


async def topics_by_id(side: Side) -> Answers:
    """Metadata asked by topic id, without a name, and with both, by version."""
    topic = await side.topic("named")
    known = await topic_id(side.bootstrap, topic)
    asked = {
        "id": m.MetadataRequestTopic(known, None),
        "unknown id": m.MetadataRequestTopic(STRANGE, None),
        "id and name": m.MetadataRequestTopic(known, topic),
        "id and another name": m.MetadataRequestTopic(known, "other"),
        "neither": m.MetadataRequestTopic(name=None),
        "name": m.MetadataRequestTopic(name=topic),
    }
    found: Answers = {}
    for version in (10, 11, 12, 13):
        for what, one in asked.items():
            answer = await side.ask("Metadata", m.MetadataRequest([one], False), version)
            found[f"{what} {version}"] = "no answer" if answer is None else _shown(answer, known)
    mixed = m.MetadataRequest(
        [m.MetadataRequestTopic(name=topic), m.MetadataRequestTopic(known, None)], False
    )
    for version in (11, 12):
        found[f"name then id {version}"] = _shown(await side.ask("Metadata", mixed, version), known)
    return found


def _shown(answer: m.MetadataResponse, known: bytes) -> str:
    brokers = "brokers" if answer.brokers else "no brokers"
    ids = {known: "its id", STRANGE: "that id"}
    rows = [
        f"{code(each.error_code)} {each.name!r} {ids.get(each.topic_id, 'no id')} {len(each.partitions)}"
        for each in answer.topics
    ]
    return f"{brokers}, {rows}"


async def foreign_transactional_ids(side: Side) -> Answers:
    """Produce with another producer's transactional id, with one that nobody has, then with the right one."""
    await coordinated(side)
    found: Answers = {}
    for version in (11, 12):
        topic = await side.topic(f"foreign-{version}", 1, retention_ms="-1")
        async with (
            client(side, f"own-{version}", Produce=version) as own,
            client(side, f"other-{version}") as other,
        ):
            await settled(own.init)
            await settled(other.init)
            if version == 11:
                await settled(lambda own=own, topic=topic: own.add(topic, 0))
            name = own.name
            for what, given in (("another's id", other.name), ("nobody's id", "nobody"), ("own id", name)):
                own.name = given
                found[f"{what} {version}"] = await settled(lambda own=own, topic=topic: own.send(topic, b"a"))
            own.name = name
            for who, each in (("own", own.name), ("other", other.name)):
                answer = await side.ask("DescribeTransactions", dx.DescribeTransactionsRequest([each]), 0)
                found[f"{who} is then {version}"] = answer.transaction_states[0].transaction_state
    return found


async def times(side: Side) -> Answers:
    """Records too far from now: what is said of which."""
    topic = await side.topic("times", 1, retention_ms="-1", message_timestamp_before_max_ms="9000000000000")
    old = await side.topic("old", 1, retention_ms="-1", message_timestamp_before_max_ms="1000")
    found: Answers = {}
    for name, where, stamps in (
        ("future", topic, (FUTURE,)),
        ("second and third in the future", topic, (NOW, FUTURE, FUTURE, NOW)),
        ("past", old, (NOW, NOW)),
    ):
        batch = memoryview(build([NewRecord(at, b"k", b"v") for at in stamps]))
        data = [p.TopicProduceData(where, partition_data=[p.PartitionProduceData(0, batch)])]
        answer = await side.ask("Produce", p.ProduceRequest(None, -1, 5_000, data), 9)
        row = answer.responses[0].partition_responses[0]
        found[name] = told(row.error_code, row.error_message)
        found[f"{name}: records"] = str([each.batch_index for each in row.record_errors])
    return found


async def inner_topics(side: Side) -> Answers:
    """The topics in which Kafka keeps positions and transactions."""
    await coordinated(side)
    found: Answers = {}
    for name in ("__consumer_offsets", "__transaction_state"):
        asked = m.MetadataRequest([m.MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
        one = (await side.ask("Metadata", asked, 12)).topics[0]
        found[name] = f"{code(one.error_code)}, {'internal' if one.is_internal else 'not internal'}"
    return found


async def ends_after_a_timeout(side: Side) -> Answers:
    """A transaction that was aborted for its timeout: what its producer is told, and whether it may go on."""
    await coordinated(side)
    found: Answers = {}
    for name, versions in (("v1", {}), ("v2", V2)):
        topic = await side.topic(f"late-{name}", 1, retention_ms="-1")
        async with client(side, f"late-{name}", **versions) as x:
            await settled(lambda x=x: x.init(timeout_ms=3_000))
            if name == "v1":
                await settled(lambda x=x, topic=topic: x.add(topic, 0))
                await settled(lambda x=x: x.add_group(GROUP))
            await settled(lambda x=x, topic=topic: x.send(topic, b"a"))
            found[f"positions in time {name}"] = await settled(
                lambda x=x, topic=topic: x.offsets(GROUP, topic, 1)
            )
            asked = dx.DescribeTransactionsRequest([x.name])
            async with asyncio.timeout(TIMED_OUT_S_MAX):
                state = "Ongoing"
                while state != "CompleteAbort":
                    await asyncio.sleep(0.1)
                    answer = await side.ask("DescribeTransactions", asked, 0)
                    state = answer.transaction_states[0].transaction_state
            for version in (2, 3, 4) if name == "v1" else (V2["TxnOffsetCommit"],):
                x.versions["TxnOffsetCommit"] = version
                found[f"positions {version}"] = await settled(
                    lambda x=x, topic=topic: x.offsets(GROUP, topic, 2)
                )
            if name == "v1":
                found["add"] = await settled(lambda x=x, topic=topic: x.add(topic, 0))
                found["add the group"] = await settled(lambda x=x: x.add_group(GROUP))
            found[f"send {name}"] = await settled(lambda x=x, topic=topic: x.send(topic, b"b"))
            found[f"commit {name}"] = await settled(lambda x=x: x.end(commit=True))
            found[f"abort {name}"] = await settled(lambda x=x: x.end(commit=False))
            found[f"begins anew {name}"] = await settled(x.init)
    return found


QUESTIONS: dict[str, Question] = {
    "Metadata.ids": topics_by_id,
    "Produce.foreign": foreign_transactional_ids,
    "Produce.times": times,
    "Cluster.inner-topics": inner_topics,
    "Transactions.timed-out": ends_after_a_timeout,
}
