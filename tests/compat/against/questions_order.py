"""Questions about order: what a request sees of the one before it, both sent at once on one connection."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from agent.net.wire.generated import add_offsets_to_txn as ao
from agent.net.wire.generated import add_partitions_to_txn as ap
from agent.net.wire.generated import consumer_group_describe as cd
from agent.net.wire.generated import consumer_group_heartbeat as ch
from agent.net.wire.generated import delete_groups as dg
from agent.net.wire.generated import delete_records as dr
from agent.net.wire.generated import describe_groups as de
from agent.net.wire.generated import describe_producers as dp
from agent.net.wire.generated import describe_transactions as dx
from agent.net.wire.generated import end_txn as et
from agent.net.wire.generated import fetch as f
from agent.net.wire.generated import find_coordinator as fc
from agent.net.wire.generated import heartbeat as hb
from agent.net.wire.generated import init_producer_id as ip
from agent.net.wire.generated import join_group as jg
from agent.net.wire.generated import leave_group as lg
from agent.net.wire.generated import list_groups as li
from agent.net.wire.generated import list_offsets as lo
from agent.net.wire.generated import list_transactions as lt
from agent.net.wire.generated import offset_commit as oc
from agent.net.wire.generated import offset_delete as od
from agent.net.wire.generated import offset_fetch as of
from agent.net.wire.generated import produce as p
from agent.net.wire.generated import sync_group as sg
from agent.net.wire.generated import txn_offset_commit as tc
from coordination.kafka_codes import Code
from objectstore.batch import NewRecord, build
from tests.bench.load import Wire
from tests.compat.against.questions_transactions import coordinated
from tests.compat.against.side import NOW, Answers, Question, Side, code
from tests.compat.raw import set_broker_config
from tests.equipment.group_members import subscription

ROUNDS = int(os.environ.get("ORDER_ROUNDS", "5"))  # 100 when something about the order has changed
AGAIN_S, TRIES_MAX = 0.05, 200
GROUP, TRANSACTION = 0, 1  # kinds of coordinators

Call = tuple[str, Any, int]
Tell = Callable[[Any], str]


@dataclass
class Pair:
    """A write, and what a request right behind it tells of its effect."""

    write: Call
    reads: dict[str, tuple[Call, Tell]]


@dataclass
class Asker:
    """One connection, and a name that nobody else uses."""

    side: Side
    wire: Wire
    name: str
    topic: str

    async def call(self, name: str, request: Any, version: int) -> Any:
        """One request that is answered before the next is sent."""
        return await self.wire.call(name, request, version)

    async def settled(self, name: str, request: Any, version: int) -> Any:
        """Asked until Kafka's markers are written and its coordinators are loaded."""
        for _ in range(TRIES_MAX):
            answer = await self.call(name, request, version)
            if getattr(answer, "error_code", 0) not in (
                Code.CONCURRENT_TRANSACTIONS,
                Code.COORDINATOR_LOAD_IN_PROGRESS,
                Code.NOT_COORDINATOR,
            ):
                break
            await asyncio.sleep(AGAIN_S)
        return answer


def produced(topic: str, acks: int = -1, **producer: int) -> Call:
    """One record."""
    batch = memoryview(build([NewRecord(NOW, None, b"v")], **producer))
    data = [p.TopicProduceData(topic, partition_data=[p.PartitionProduceData(0, batch)])]
    return "Produce", p.ProduceRequest(None, acks, 10_000, data), 9


def offset(topic: str, time: int = -1) -> tuple[Call, Tell]:
    """ListOffsets."""
    part = lo.ListOffsetsPartition(0, -1, time)
    request = lo.ListOffsetsRequest(-1, 0, [lo.ListOffsetsTopic(topic, [part])])
    return ("ListOffsets", request, 9), lambda got: told_offset(got.topics[0].partitions[0])


def told_offset(part: Any) -> str:
    """A code and an offset."""
    return f"{code(part.error_code)} {part.offset}"


def fetched(topic: str, start: int = 0) -> tuple[Call, Tell]:
    """Fetch without waiting."""
    part = f.FetchPartition(0, fetch_offset=start, partition_max_bytes=1 << 20)
    request = f.FetchRequest(
        max_wait_ms=0, max_bytes=1 << 20, topics=[f.FetchTopic(topic, partitions=[part])]
    )

    def tell(got: Any) -> str:
        one = got.responses[0].partitions[0]
        return f"{code(one.error_code)} {'records' if len(one.records or b'') else 'nothing'}"

    return ("Fetch", request, 12), tell


def position(group: str, topic: str, *, stable: bool = False) -> tuple[Call, Tell]:
    """OffsetFetch of one partition."""
    request = of.OffsetFetchRequest(group, [of.OffsetFetchRequestTopic(topic, [0])], require_stable=stable)

    def tell(got: Any) -> str:
        one = got.topics[0].partitions[0]
        return f"{code(got.error_code)} {code(one.error_code)} {one.committed_offset}"

    return ("OffsetFetch", request, 7), tell


def group_state(group: str) -> tuple[Call, Tell]:
    """DescribeGroups."""
    request = de.DescribeGroupsRequest([group])
    return (
        "DescribeGroups",
        request,
        5,
    ), lambda got: f"{code(got.groups[0].error_code)} {got.groups[0].group_state}"


def listed(group: str) -> tuple[Call, Tell]:
    """ListGroups: whether the group is among them."""
    return (
        "ListGroups",
        li.ListGroupsRequest(),
        4,
    ), lambda got: "listed" if any(each.group_id == group for each in got.groups) else "not listed"


def consumers(group: str) -> tuple[Call, Tell]:
    """ConsumerGroupDescribe: how many members."""
    request = cd.ConsumerGroupDescribeRequest([group])
    return (
        "ConsumerGroupDescribe",
        request,
        0,
    ), lambda got: f"{code(got.groups[0].error_code)} {len(got.groups[0].members)} members"


def transaction(name: str) -> tuple[Call, Tell]:
    """DescribeTransactions."""
    request = dx.DescribeTransactionsRequest([name])

    def tell(got: Any) -> str:
        one = got.transaction_states[0]
        state = one.transaction_state.replace("Prepare", "Complete")  # Kafka's markers come a moment later
        return f"{code(one.error_code)} {state}"

    return ("DescribeTransactions", request, 0), tell


async def records_sent(a: Asker) -> Pair:
    """A record is counted, read and known of its producer."""
    topic = await a.side.topic(a.name.removeprefix(a.side.prefix))
    made = await a.settled("InitProducerId", ip.InitProducerIdRequest(None, 60_000), 4)
    asked = dp.DescribeProducersRequest([dp.TopicRequest(topic, [0])])
    producers = (
        ("DescribeProducers", asked, 0),
        lambda got: f"{len(got.topics[0].partitions[0].active_producers)} producers",
    )
    write = produced(topic, producer_id=made.producer_id, producer_epoch=0, base_sequence=0)
    reads = {"ListOffsets": offset(topic), "Fetch": fetched(topic), "DescribeProducers": producers}
    return Pair(write, reads)


async def records_sent_unanswered(a: Asker) -> Pair:
    """So is one that nobody is told of."""
    topic = await a.side.topic(a.name.removeprefix(a.side.prefix))
    return Pair(produced(topic, 0), {"ListOffsets": offset(topic), "Fetch": fetched(topic)})


async def records_deleted(a: Asker) -> Pair:
    """The log starts later."""
    topic = await a.side.topic(a.name.removeprefix(a.side.prefix))
    await a.call(*produced(topic))
    rows = [dr.DeleteRecordsTopic(topic, [dr.DeleteRecordsPartition(0, 1)])]
    write = ("DeleteRecords", dr.DeleteRecordsRequest(rows, 10_000), 2)
    return Pair(write, {"ListOffsets": offset(topic, -2), "Fetch": fetched(topic)})


def committed(a: Asker, at: int = 7) -> Call:
    """OffsetCommit of whoever is no member."""
    rows = [oc.OffsetCommitRequestTopic(a.topic, partitions=[oc.OffsetCommitRequestPartition(0, at)])]
    return "OffsetCommit", oc.OffsetCommitRequest(a.name, topics=rows), 8


async def position_committed(a: Asker) -> Pair:
    """A position is there, and its group."""
    reads = {
        "OffsetFetch": position(a.name, a.topic),
        "DescribeGroups": group_state(a.name),
        "ListGroups": listed(a.name),
    }
    return Pair(committed(a), reads)


async def positions_deleted(a: Asker) -> Pair:
    """A position that was deleted is gone."""
    await a.call(*committed(a))
    rows = [od.OffsetDeleteRequestTopic(a.topic, [od.OffsetDeleteRequestPartition(0)])]
    write = ("OffsetDelete", od.OffsetDeleteRequest(a.name, rows), 0)
    return Pair(write, {"OffsetFetch": position(a.name, a.topic)})


async def group_deleted(a: Asker) -> Pair:
    """A group that was deleted is gone."""
    await a.call(*committed(a))
    reads = {
        "OffsetFetch": position(a.name, a.topic),
        "DescribeGroups": group_state(a.name),
        "ListGroups": listed(a.name),
    }
    return Pair(("DeleteGroups", dg.DeleteGroupsRequest([a.name]), 2), reads)


def join(a: Asker) -> Call:
    """JoinGroup of a version that needs no second round."""
    known = [jg.JoinGroupRequestProtocol("range", subscription([a.topic]))]
    return "JoinGroup", jg.JoinGroupRequest(a.name, 10_000, 5_000, "", None, "consumer", known), 3


async def member_joined(a: Asker) -> Pair:
    """A group has its first member."""
    return Pair(join(a), {"DescribeGroups": group_state(a.name), "ListGroups": listed(a.name)})


async def shares_given(a: Asker) -> Pair:
    """A group is stable once its leader has shared."""
    joined = await a.call(*join(a))
    share = [sg.SyncGroupRequestAssignment(joined.member_id, b"all")]
    request = sg.SyncGroupRequest(
        a.name, joined.generation_id, joined.member_id, None, "consumer", "range", share
    )
    beat = hb.HeartbeatRequest(a.name, joined.generation_id, joined.member_id)
    reads = {
        "DescribeGroups": group_state(a.name),
        "Heartbeat": (("Heartbeat", beat, 3), lambda got: code(got.error_code)),
    }
    return Pair(("SyncGroup", request, 5), reads)


async def member_left(a: Asker) -> Pair:
    """The last member has left: the group can be deleted at once."""
    joined = await a.call(*join(a))
    request = lg.LeaveGroupRequest(a.name, members=[lg.MemberIdentity(joined.member_id)])
    deleted = (
        ("DeleteGroups", dg.DeleteGroupsRequest([a.name]), 2),
        lambda got: code(got.results[0].error_code),
    )
    return Pair(("LeaveGroup", request, 3), {"DescribeGroups": group_state(a.name), "DeleteGroups": deleted})


def consumer_beat(a: Asker, epoch: int, **more: Any) -> Call:
    """ConsumerGroupHeartbeat."""
    request = ch.ConsumerGroupHeartbeatRequest(a.name, "m" * 22, epoch, **more)
    return "ConsumerGroupHeartbeat", request, 1


def consumer_joins(a: Asker) -> Call:
    """The first one."""
    return consumer_beat(
        a, 0, rebalance_timeout_ms=60_000, subscribed_topic_names=[a.topic], topic_partitions=[]
    )


async def consumer_joined(a: Asker) -> Pair:
    """A group of KIP-848 has its first member."""
    return Pair(consumer_joins(a), {"ConsumerGroupDescribe": consumers(a.name), "ListGroups": listed(a.name)})


async def consumer_left(a: Asker) -> Pair:
    """The last one has left."""
    await a.call(*consumer_joins(a))
    deleted = (
        ("DeleteGroups", dg.DeleteGroupsRequest([a.name]), 2),
        lambda got: code(got.results[0].error_code),
    )
    reads = {"ConsumerGroupDescribe": consumers(a.name), "DeleteGroups": deleted}
    return Pair(consumer_beat(a, -1), reads)


def begun(a: Asker) -> Call:
    """InitProducerId of a transactional producer."""
    return "InitProducerId", ip.InitProducerIdRequest(a.name, 60_000), 4


async def producer_begun(a: Asker) -> Pair:
    """A transactional id is known."""

    def tell(got: Any) -> str:
        return "listed" if any(s.transactional_id == a.name for s in got.transaction_states) else "not listed"

    every = ("ListTransactions", lt.ListTransactionsRequest(), 1)
    return Pair(begun(a), {"DescribeTransactions": transaction(a.name), "ListTransactions": (every, tell)})


def partition_added(a: Asker, pair: tuple[int, int]) -> Call:
    """AddPartitionsToTxn."""
    rows = [ap.AddPartitionsToTxnTopic(a.topic, [0])]
    return "AddPartitionsToTxn", ap.AddPartitionsToTxnRequest([], a.name, *pair, rows), 3


async def started(a: Asker) -> tuple[int, int]:
    """A producer id and its epoch."""
    answer = await a.settled(*begun(a))
    return answer.producer_id, answer.producer_epoch


async def partitions_added(a: Asker) -> Pair:
    """A transaction has begun."""
    return Pair(partition_added(a, await started(a)), {"DescribeTransactions": transaction(a.name)})


async def transaction_ended(a: Asker) -> Pair:
    """A transaction has ended."""
    pair = await started(a)
    await a.call(*partition_added(a, pair))
    ended = ("EndTxn", et.EndTxnRequest(a.name, *pair, True), 3)
    return Pair(ended, {"DescribeTransactions": transaction(a.name)})


async def positions_pending(a: Asker) -> Pair:
    """Positions of a transaction that has not ended are unstable."""
    pair = await started(a)
    await a.call("AddOffsetsToTxn", ao.AddOffsetsToTxnRequest(a.name, *pair, a.name), 3)
    rows = [tc.TxnOffsetCommitRequestTopic(a.topic, [tc.TxnOffsetCommitRequestPartition(0, 9)])]
    request = tc.TxnOffsetCommitRequest(a.name, a.name, *pair, topics=rows)
    return Pair(("TxnOffsetCommit", request, 3), {"OffsetFetch": position(a.name, a.topic, stable=True)})


Make = Callable[[Asker], Awaitable[Pair]]


def asked(makes: dict[str, Make], kind: int | None = None) -> Question:
    """A question: every pair so often, each time with names of its own; what was told, and how often."""

    async def ask(side: Side) -> Answers:
        await coordinated(side)
        # A group's first rebalance waits for nobody. Kafka takes this from its file only, and refuses it.
        await set_broker_config(side.bootstrap, "group.initial.rebalance.delay.ms", "0")
        topic = await side.topic("order")
        found: dict[str, Counter[str]] = {}
        for name, make in makes.items():
            labels: list[str] = []
            turn = 0
            while not labels or turn < len(labels) * ROUNDS:
                full = f"{side.prefix}{name}-{turn}"
                wire = await Wire.open(await address(side, full, kind))
                pair = await make(Asker(side, wire, full, topic))
                labels = list(pair.reads)
                label = labels[turn % len(labels)]
                read, tell = pair.reads[label]
                answers = await wire.pipeline(pair.write, read)
                found.setdefault(f"{name}: {label}", Counter())[tell(answers[-1])] += 1
                await wire.close()
                turn += 1
        return {
            key: next(iter(texts)) if len(texts) == 1 else "now this, now that"
            for key, texts in found.items()
        }

    return ask


async def address(side: Side, name: str, kind: int | None) -> str:
    """Where a group or a transactional id is coordinated."""
    if kind is None:
        return side.bootstrap
    request = fc.FindCoordinatorRequest(key_type=kind, coordinator_keys=[name])
    found = (await side.ask("FindCoordinator", request, 4)).coordinators[0]
    return f"{found.host}:{found.port}"


QUESTIONS: dict[str, Question] = {
    "Order.records": asked(
        {
            "Produce": records_sent,
            "Produce-unanswered": records_sent_unanswered,
            "DeleteRecords": records_deleted,
        }
    ),
    "Order.groups": asked(
        {
            "OffsetCommit": position_committed,
            "OffsetDelete": positions_deleted,
            "DeleteGroups": group_deleted,
            "JoinGroup": member_joined,
            "SyncGroup": shares_given,
            "LeaveGroup": member_left,
            "ConsumerGroupHeartbeat-joining": consumer_joined,
            "ConsumerGroupHeartbeat-leaving": consumer_left,
        },
        GROUP,
    ),
    "Order.transactions": asked(
        {
            "InitProducerId": producer_begun,
            "AddPartitionsToTxn": partitions_added,
            "EndTxn": transaction_ended,
        },
        TRANSACTION,
    ),
    "Order.pending": asked({"TxnOffsetCommit": positions_pending}, GROUP),
}
