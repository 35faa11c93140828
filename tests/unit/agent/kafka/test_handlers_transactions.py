"""Transactions through the dispatcher: the requests and codes of each version, what readers get of it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from agent.background.rewriting.merging.planner import due
from agent.kafka.transactions.requests import StaleConnection
from agent.net.wire.generated.init_producer_id import InitProducerIdRequest
from agent.net.wire.generated.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from agent.net.wire.generated.txn_offset_commit import TxnOffsetCommitRequest
from coordination.commands import AbortTransaction, AlterClusterConfigs, AlterTopicConfigs
from coordination.kafka_codes import Code
from objectstore.adapters.memory import MemoryStore
from objectstore.batch import peek, records, split
from objectstore.cache import SliceCache
from tests.unit.agent.background.merging_rig import EAGER, merge_rows, partition_of
from tests.unit.agent.conftest import StartAgent
from tests.unit.agent.kafka.test_handlers_produce_fetch import create, fetch, offsets, produce
from tests.unit.agent.kafka.transactions_rig import V1, V2, Txn
from tests.unit.agent.rig import Agent, batch

COMMITTED = {"isolation_level": 1}


def shown(answer: Any) -> list[tuple[int, bytes | None]]:
    """What a consumer makes of an answer: (offset, value), aborted and control records left out."""
    if not answer.records:
        return []
    content, out = answer.records, []
    waiting = sorted((each.first_offset, each.producer_id) for each in answer.aborted_transactions or ())
    aborted: set[int] = set()
    for position, size in split(content):
        header = peek(content, position)
        while waiting and waiting[0][0] <= header.last_offset:
            aborted.add(waiting.pop(0)[1])
        if header.control:
            (marker,) = records(content[position : position + size])
            if marker.key == b"\0\0\0\0":
                aborted.discard(header.producer_id)
        elif not (header.transactional and header.producer_id in aborted):
            out += [(each.offset, each.value) for each in records(content[position : position + size])]
    return out


async def position(agent: Agent, version: int = 7, *, stable: bool = False) -> tuple[int, int]:
    """What group g committed for t-0: (code, offset)."""
    topic = OffsetFetchRequestTopic("t", [0])
    request = OffsetFetchRequest("g", [topic], require_stable=stable)
    row = (await agent.call("OffsetFetch", request, version)).topics[0].partitions[0]
    return row.error_code, row.committed_offset


@pytest.mark.parametrize("versions", [V1, V2], ids=["v1", "v2"])
async def test_committed_records_are_read_once_the_transaction_is(
    agent: Agent, versions: dict[str, int]
) -> None:
    await create(agent)
    producer = Txn(agent, versions=versions)
    assert await producer.init() == 0
    if versions is V1:
        assert await producer.add(0, 1) == [0, 0]
    assert (await producer.send(b"a", b"b")).base_offset == 0
    assert (await producer.send(b"c", index=1)).base_offset == 0
    before = await fetch(agent, 0, **COMMITTED)
    assert (before.last_stable_offset, before.high_watermark, before.records) == (0, 2, b"")
    assert shown(await fetch(agent, 0)) == [(0, b"a"), (1, b"b")], (
        "whoever reads uncommitted records sees them"
    )
    assert await offsets(agent, -1, isolation=1) == [(0, 0, -1)]
    assert await offsets(agent, -1) == [(0, 2, -1)]
    assert await producer.end(commit=True) == 0
    after = await fetch(agent, 0, **COMMITTED)
    assert (after.last_stable_offset, after.high_watermark) == (3, 3)
    assert shown(after) == [(0, b"a"), (1, b"b")]
    assert after.aborted_transactions == []
    assert shown(await fetch(agent, 0, index=1, **COMMITTED)) == [(0, b"c")]
    assert await offsets(agent, -1, isolation=1) == [(0, 3, -1)]
    assert producer.pair == ((0, 1) if versions is V2 else (0, 0))


async def test_control_batches_are_real_on_the_wire(agent: Agent) -> None:
    await create(agent)
    producer = Txn(agent)
    await producer.init()
    for commit in (True, False):
        await producer.send(b"a")
        await producer.end(commit=commit)
    answer = await fetch(agent, 1)
    assert peek(answer.records).base_offset == 1
    markers = [
        peek(answer.records, at) for at, _ in split(answer.records) if peek(answer.records, at).control
    ]
    assert [(each.base_offset, each.producer_id, each.producer_epoch) for each in markers] == [
        (1, 0, 1), (3, 0, 2),
    ]  # fmt: skip
    assert all(each.transactional and each.record_count == 1 and each.base_sequence == -1 for each in markers)
    keys = [record.key for at, size in split(answer.records) if peek(answer.records, at).control
            for record in records(answer.records[at : at + size])]  # fmt: skip
    assert keys == [b"\0\0\0\1", b"\0\0\0\0"]


async def test_aborted_transactions_are_listed_exactly(agent: Agent) -> None:
    await create(agent)
    one, two = Txn(agent, "one"), Txn(agent, "two")
    await one.init()
    await two.init()
    await produce(agent, batch(b"plain"))
    await one.send(b"1a")
    await two.send(b"2a")
    await one.send(b"1b")
    await two.end(commit=True)
    await one.end(commit=False)
    await two.send(b"2b")
    await two.end(commit=False)
    answer = await fetch(agent, 0, **COMMITTED)
    listed = [(each.producer_id, each.first_offset) for each in answer.aborted_transactions]
    assert listed == [(0, 1), (1, 6)], "in the order of their ends"
    assert shown(answer) == [(0, b"plain"), (2, b"2a")]
    late = await fetch(agent, 6, **COMMITTED)
    assert [(each.producer_id, each.first_offset) for each in late.aborted_transactions] == [(1, 6)]
    assert shown(late) == []
    first = await fetch(agent, 0, bytes_max=1, **COMMITTED)
    assert first.aborted_transactions == [], "not of what is not in the answer"
    assert (await fetch(agent, 0)).aborted_transactions in (None, [])


async def test_merging_leaves_aborted_records_behind_and_keeps_the_markers(
    agent: Agent, memory_store: MemoryStore
) -> None:
    await create(agent)
    producer, other = Txn(agent), Txn(agent, "y")
    await producer.init()
    await other.init()
    for number, commit in enumerate((True, False, True, False)):
        await producer.send(b"%d" % number)
        await produce(agent, batch(b"plain%d" % number))
        await producer.end(commit=commit)
    await other.send(b"open")
    await produce(agent, batch(b"last"))
    expected = shown(await fetch(agent, 0, **COMMITTED))
    assert [value for _, value in expected] == [b"0", b"plain0", b"plain1", b"2", b"plain2", b"plain3"]
    agent.services.reader._tail = SliceCache(0)
    for rows in (4, 5, 99):
        assert (await merge_rows(agent, memory_store, rows)).refused == []
        for offset in range(11):
            found = shown(await fetch(agent, offset, **COMMITTED))
            assert found, "there is something to be read"
            assert found == [row for row in expected if row[0] >= offset][: len(found)]
    partition = partition_of(agent)
    merged = partition.merged
    assert merged is not None
    assert (merged.end_offset, partition.last_stable, partition.high_watermark) == (12, 12, 14)
    assert partition.aborted(0, 99) == [], "nothing is left to be listed"
    everything = await fetch(agent, 0)
    controls = [peek(everything.records, at).control for at, _ in split(everything.records)]
    assert controls.count(True) == 4
    await other.end(commit=False)
    assert shown(await fetch(agent, 12, **COMMITTED)) == [(13, b"last")]


async def test_a_tail_that_begins_with_an_open_transaction_is_not_looked_at(agent: Agent) -> None:
    await create(agent)
    producer = Txn(agent)
    await producer.init()
    await producer.send(b"open")
    for number in range(20):
        await produce(agent, batch(b"%d" % number))
    partition = partition_of(agent)
    assert due(partition, 8, EAGER, 0.0) is None
    assert due(partition, 8, EAGER, 1e10) is None, "nor for its age"
    await producer.end(commit=False)
    found = due(partition, 8, EAGER, 0.0)
    assert found is not None
    assert found.rows == 22


async def test_a_merge_of_nothing_but_aborted_records_leaves_a_gap(
    agent: Agent, memory_store: MemoryStore
) -> None:
    await create(agent)
    producer = Txn(agent)
    await producer.init()
    await producer.send(b"a")
    await producer.send(b"b")
    await producer.end(commit=False)
    await produce(agent, batch(b"plain"))
    agent.services.reader._tail = SliceCache(0)
    assert (await merge_rows(agent, memory_store, 1)).swapped == [0]
    for offset in (0, 1):
        assert shown(await fetch(agent, offset, **COMMITTED)) == [(3, b"plain")]
    assert (await merge_rows(agent, memory_store, 9)).swapped == [0]
    for offset in range(3):
        assert shown(await fetch(agent, offset, **COMMITTED)) == [(3, b"plain")]


async def test_positions_count_with_the_transaction_and_are_unstable_before(agent: Agent) -> None:
    await create(agent)
    producer = Txn(agent)
    await producer.init()
    assert await producer.offsets(7) == 0
    assert await position(agent) == (0, -1)
    assert await position(agent, stable=True) == (Code.UNSTABLE_OFFSET_COMMIT, -1)
    await producer.end(commit=True)
    assert await position(agent, stable=True) == (0, 7)
    await producer.offsets(9)
    await producer.end(commit=False)
    assert await position(agent, stable=True) == (0, 7)


@pytest.mark.parametrize(
    ("version", "code"), [(3, Code.INVALID_TXN_STATE), (4, Code.TRANSACTION_ABORTABLE), (5, Code.NONE)]
)
async def test_positions_of_a_group_that_was_not_added(agent: Agent, version: int, code: Code) -> None:
    await create(agent)
    producer = Txn(agent, versions={**V1, "offsets": version})
    await producer.init()
    assert await producer.offsets(7) == code
    assert await producer.add_group() == 0
    assert await producer.offsets(7) == 0
    assert await producer.add_group("") == 0, "as Kafka"
    assert await producer.offsets(7, group="") == Code.INVALID_GROUP_ID


@pytest.mark.parametrize(
    ("versions", "code"),
    [
        ({"produce": 10}, Code.INVALID_TXN_STATE),
        ({"produce": 11}, Code.TRANSACTION_ABORTABLE),
        ({"produce": 12}, Code.NONE),
    ],
)
async def test_a_batch_for_a_partition_that_was_not_added(
    agent: Agent, versions: dict[str, int], code: Code
) -> None:
    await create(agent)
    producer = Txn(agent, versions={**V1, **versions})
    await producer.init()
    answer = await producer.send(b"a")
    assert (answer.error_code, answer.base_offset) == (code, 0 if not code else -1)


async def test_a_transactional_batch_needs_a_request_that_names_the_id(agent: Agent) -> None:
    await create(agent)
    raw = batch(b"a", producer_id=0, producer_epoch=0, base_sequence=0, transactional=True)
    assert (await produce(agent, raw)).error_code == Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert (await produce(agent, raw, transactional_id="x")).error_code == Code.INVALID_PRODUCER_ID_MAPPING
    raw = batch(b"a", transactional=True)
    assert (await produce(agent, raw, transactional_id="x")).error_code == Code.INVALID_RECORD
    assert (await produce(agent, batch(b"a"), transactional_id="x")).error_code == 0, (
        "as Kafka: it may hold others"
    )


@pytest.mark.parametrize(("version", "code"), [(3, Code.INVALID_PRODUCER_EPOCH), (4, Code.PRODUCER_FENCED)])
async def test_init_of_a_fenced_producer(agent: Agent, version: int, code: Code) -> None:
    first, second = Txn(agent), Txn(agent)
    await first.init()
    await second.init()
    assert await first.init(version=version, given=first.pair) == code
    assert await second.init(version=version, given=second.pair) == 0


async def test_what_init_refuses(agent: Agent) -> None:
    producer = Txn(agent)
    for timeout_ms in (0, -1, 900_001):
        assert await producer.init(timeout_ms) == Code.INVALID_TRANSACTION_TIMEOUT
    change = AlterTopicConfigs.Change(name="transaction.max.timeout.ms", value="1000")
    await agent.services.replica.propose(AlterClusterConfigs(changes=[change]))
    assert await producer.init(1001) == Code.INVALID_TRANSACTION_TIMEOUT
    assert await producer.init(1000) == 0
    for request in (InitProducerIdRequest("", 1000), InitProducerIdRequest("x", 1000, 5, -1)):
        assert (await agent.call("InitProducerId", request, 4)).error_code == Code.INVALID_REQUEST


@pytest.mark.parametrize(("api", "old"), [("end", (1, 2)), ("add", (1, 2)), ("add_offsets", (1, 2))], ids=str)
async def test_older_versions_know_no_producer_fenced(agent: Agent, api: str, old: tuple[int, int]) -> None:
    await create(agent)
    for version, code in zip(old, (Code.INVALID_PRODUCER_EPOCH, Code.PRODUCER_FENCED), strict=True):
        producer = Txn(agent, versions={**V1, api: version})
        await producer.init()
        await Txn(agent).init()
        found = {
            "end": producer.end(commit=True),
            "add": producer.add(0),
            "add_offsets": producer.add_group(),
        }
        for name, call in found.items():
            answer = await call
            if name == api:
                assert answer in (code, [code])


@pytest.mark.parametrize("known", [False, True])
async def test_after_a_timeout_clients_recover(agent: Agent, known: bool) -> None:
    """KIP-588: each gets a code that its client survives, and goes on with the pair that it asks for."""
    await create(agent)
    versions = {"produce": 11, "add": 5, "add_offsets": 4, "offsets": 4, "end": 4} if known else {
        "produce": 10, "add": 3, "add_offsets": 3, "offsets": 3, "end": 3,
    }  # fmt: skip
    producer = Txn(agent, versions=versions)
    await producer.init(timeout_ms=1)
    await producer.add(0)
    await producer.send(b"a")
    await agent.services.replica.propose(AbortTransaction(transactional_id="x", number=1, forced=True))
    code = Code.TRANSACTION_ABORTABLE if known else Code.INVALID_PRODUCER_ID_MAPPING
    assert await producer.offsets(1) == (code if known else Code.ILLEGAL_GENERATION)
    if not known:
        producer.versions["offsets"] = 2
        assert await producer.offsets(1) == Code.GROUP_AUTHORIZATION_FAILED
    assert (await producer.send(b"b")).error_code == Code.INVALID_PRODUCER_EPOCH
    assert await producer.add(0) == [code]
    assert await producer.add_group() == code
    assert await producer.end(commit=True) == code
    assert await producer.end(commit=False) == 0
    assert await producer.init(given=producer.pair) == 0
    await producer.add(0)
    assert (await producer.send(b"c")).error_code == 0
    assert await producer.end(commit=True) == 0
    assert [value for _, value in shown(await fetch(agent, 0, **COMMITTED))] == [b"c"]


async def test_a_transaction_of_ten_thousand_partitions(agent: Agent) -> None:
    await create(agent, partitions=10_000)
    producer = Txn(agent, versions=V1)
    await producer.init()
    assert not any(await producer.add(*range(10_000)))
    await producer.send(b"a", index=9_999)
    assert await producer.end(commit=True) == 0
    ends = [each.high_watermark for each in agent.services.replica.state.topics["t"].partitions]
    assert (sum(ends), ends[9_999]) == (10_001, 2)


async def test_a_request_of_an_earlier_transaction_closes_its_connection(agent: Agent) -> None:
    """KAFKA-17754: EndTxn, given up and sent again by its client, arrives in the next transaction."""
    await create(agent)
    producer = Txn(agent, versions=V1)
    old, young = agent.connect(), agent.connect()
    producer.client = old
    await producer.init()
    await producer.add(0)
    await producer.send(b"a")
    young.stamp = agent.services.replica.state.revision
    producer.client = young
    assert await producer.end(commit=True) == 0
    again = agent.connect()
    again.stamp = agent.services.replica.state.revision
    producer.client = again
    assert await producer.add(0) == [0]
    await producer.send(b"b")
    producer.client = old
    for stale in (producer.end(commit=True), producer.add(0), producer.add_group(), producer.offsets(1)):
        with pytest.raises(StaleConnection):
            await stale
    answer = await fetch(agent, 0, **COMMITTED)
    assert (shown(answer), answer.last_stable_offset) == ([(0, b"a")], 2)
    assert agent.services.metrics.transactions_stale._value.get() == 4


@pytest.mark.parametrize(
    ("version", "code"),
    [
        (2, Code.GROUP_AUTHORIZATION_FAILED),
        (3, Code.ILLEGAL_GENERATION),
        (4, Code.TRANSACTION_ABORTABLE),
    ],
)
async def test_positions_that_nobody_can_tell_apart_end_in_an_abort(
    agent: Agent, version: int, code: Code
) -> None:
    """Each version gets the code that its clients abort for and go on, and the commit is refused as well."""
    await create(agent, partitions=2)
    versions = {"offsets": version, "end": max(version, 3)}
    producer = Txn(agent, versions={**V1, **versions})
    main, old, young = agent.connect(), agent.connect(), agent.connect()
    producer.client = main
    await producer.init()
    for _ in range(2):
        assert await producer.add_group() == 0
        assert await producer.end(commit=False) == 0
    assert await producer.add_group() == 0
    producer.client = old
    assert await producer.offsets(100, index=1) == 0
    assert await producer.offsets(101) == 0
    young.stamp = agent.services.replica.state.revision
    producer.client = young
    assert await producer.offsets(200) == code
    assert await producer.offsets(200, index=1) == code
    producer.client = main
    known = version >= 4
    refused = Code.TRANSACTION_ABORTABLE if known else Code.INVALID_PRODUCER_ID_MAPPING
    assert await producer.end(commit=True) == refused
    assert await producer.end(commit=False) == 0
    assert await position(agent) == (0, -1)


async def test_positions_of_no_partition_are_decided_as_well(agent: Agent) -> None:
    """kafka-python sends such a request and commits once it is answered: what is late must not be left."""
    await create(agent)
    producer = Txn(agent, versions=V1)
    main, old, other = agent.connect(), agent.connect(), agent.connect()
    producer.client = main
    await producer.init()
    await producer.add_group()
    await producer.end(commit=False)
    assert await producer.add_group() == 0
    producer.client = old
    assert await producer.offsets(100) == 0
    request = TxnOffsetCommitRequest("x", "g", *producer.pair, topics=[])
    with pytest.raises(StaleConnection):
        await agent.call("TxnOffsetCommit", request, 3, other)
    other.stamp = agent.services.replica.state.revision
    assert (await agent.call("TxnOffsetCommit", request, 3, other)).topics == []
    producer.client = main
    assert await producer.end(commit=True) == Code.TRANSACTION_ABORTABLE


async def test_a_transaction_goes_on_through_another_agent(start: StartAgent) -> None:
    one, two = await start("a"), await start("b", port=2)
    await create(one)
    producer = Txn(one)
    await producer.init()
    await producer.send(b"a")
    producer.agent = two
    await two.services.replica.barrier()
    assert (await producer.send(b"b")).base_offset == 1
    assert await producer.end(commit=True) == 0
    await one.services.replica.barrier()
    for agent in (one, two):
        assert shown(await fetch(agent, 0, **COMMITTED)) == [(0, b"a"), (1, b"b")]
    assert one.services.replica.state.hash == two.services.replica.state.hash


async def test_reading_waits_for_the_end_of_a_transaction(agent: Agent) -> None:
    await create(agent)
    producer = Txn(agent)
    await producer.init()
    await producer.send(b"a")
    waiting = asyncio.create_task(fetch(agent, 0, wait_ms=60_000, **COMMITTED))
    await asyncio.sleep(0)
    assert not waiting.done()
    await producer.end(commit=True)
    assert shown(await waiting) == [(0, b"a")]


@pytest.mark.parametrize(
    ("versions", "epoch"),
    [({**V1, "end": 5}, 1), ({**V2, "add": 3, "end": 4}, 0)],
    ids=["v1, ended as v2", "v2, ended as v1"],
)
async def test_versions_of_both_protocols_in_one_transaction(
    agent: Agent, versions: dict[str, int], epoch: int
) -> None:
    """The version of each request counts: the epoch rises where an end of v2 says so, and nothing is torn."""
    await create(agent)
    producer = Txn(agent, versions=versions)
    await producer.init()
    assert await producer.add(0, 1) == [0, 0]
    assert (await producer.send(b"a")).error_code == 0
    assert (await producer.send(b"b", index=1)).error_code == 0
    assert await producer.end(commit=True) == 0
    assert agent.services.replica.state.transactions["x"].epoch == epoch
    assert shown(await fetch(agent, 0, **COMMITTED)) == [(0, b"a")]
    assert shown(await fetch(agent, 0, index=1, **COMMITTED)) == [(0, b"b")]


@pytest.mark.parametrize("versions", [V1, V2], ids=["v1", "v2"])
async def test_an_abort_while_a_batch_is_on_its_way(agent: Agent, versions: dict[str, int]) -> None:
    """Whichever comes first in the log: the batch is aborted with the transaction, or refused."""
    await create(agent)
    producer = Txn(agent, versions=versions)
    await producer.init()
    if versions is V1:
        await producer.add(0, 1)
    await producer.send(b"first")
    old = producer.pair
    late = asyncio.create_task(producer.send(b"late", index=1, pair=old))
    await asyncio.sleep(0)
    assert await producer.end(commit=False) == 0
    refused = Code.TRANSACTION_ABORTABLE if versions is V1 else Code.INVALID_PRODUCER_EPOCH
    assert (await late).error_code in (Code.NONE, refused)
    for index in range(2):
        partition = partition_of(agent, index=index)
        assert partition.last_stable == partition.high_watermark, "nothing hangs"
        assert shown(await fetch(agent, 0, index=index, **COMMITTED)) == []
