"""Questions about transactions that should not be: two producers of one id, requests of both protocols in one
transaction, what is empty, very wide or very long."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

from agent.net.wire.generated import add_offsets_to_txn as ao
from agent.net.wire.generated import add_partitions_to_txn as ap
from agent.net.wire.generated import create_partitions as cp
from agent.net.wire.generated import create_topics as ct
from agent.net.wire.generated import delete_topics as dl
from agent.net.wire.generated import describe_transactions as dt
from agent.net.wire.generated import end_txn as et
from agent.net.wire.generated import find_coordinator as fc
from agent.net.wire.generated import init_producer_id as ip
from agent.net.wire.generated import list_offsets as lo
from agent.net.wire.generated import txn_offset_commit as to
from tests.compat.against.questions_transactions import (
    AGAIN,
    PAUSE_S,
    Ask,
    client,
    coordinated,
    settled,
    taken,
)
from tests.compat.against.side import Answers, Question, Side, code
from tests.compat.raw import call
from tests.equipment.transactional_client import V1, V2, TransactionalClient

GROUP = "positions"
WIDE, NAMED = 300, 10_000  # partitions that are there, and that are named
WIDEST_MS_MAX = 300_000  # that Kafka may take to make them, and for a transaction over them
MEGABYTE = "x" * 1_000_000
ORDERS: dict[str, list[tuple[str, int]]] = {
    "v1 that produces 12": [("Produce", 12), ("EndTxn", 4)],
    "v1 that ends with 5": [("AddPartitionsToTxn", 3), ("Produce", 11), ("EndTxn", 5)],
    "v1 that produces both": [("AddPartitionsToTxn", 3), ("Produce", 11), ("Produce", 12), ("EndTxn", 4)],
    "v2 that adds": [("AddPartitionsToTxn", 3), ("Produce", 12), ("EndTxn", 5)],
    "v2 that produces 11": [("Produce", 11), ("Produce", 12), ("Produce", 11), ("EndTxn", 5)],
    "v1 positions by 5": [("TxnOffsetCommit", 5), ("EndTxn", 4)],
    "v2 positions by 3": [("TxnOffsetCommit", 3), ("TxnOffsetCommit", 5), ("EndTxn", 5)],
    "v2 that adds a group": [("AddOffsetsToTxn", 4), ("TxnOffsetCommit", 4), ("EndTxn", 5)],
    "v2 that ends with 4": [("Produce", 12), ("EndTxn", 4), ("Produce", 12), ("EndTxn", 5)],
    "v1 that ends twice": [("AddPartitionsToTxn", 3), ("Produce", 11), ("EndTxn", 4), ("EndTxn", 5)],
}


async def two_owners(side: Side) -> Answers:
    """Two live producers of one id: each takes it from the other, in the middle of a transaction."""
    await coordinated(side)
    found: Answers = {}
    for name, versions in (("v1", V1), ("v2", V1 | V2)):
        topic = await side.topic(f"two-{name}", 1, retention_ms="-1")
        async with client(side, f"two-{name}", **versions) as x, client(side, f"two-{name}", **versions) as y:
            await settled(x.init)
            await taken(found, _takes_over(f"{name}, turn 1", x, y, topic))
            await taken(found, _takes_over(f"{name}, turn 2", y, x, topic))
            found[f"{name}: the end"] = await _end(side, topic)
    return found


def _takes_over(name: str, old: TransactionalClient, new: TransactionalClient, topic: str) -> dict[str, Ask]:
    adds = old.versions["EndTxn"] < V2["EndTxn"]
    steps: dict[str, Ask] = {"first adds": lambda: old.add(topic, 0)} if adds else {}
    steps |= {
        "first sends": lambda: old.send(topic, b"lost"),
        "second begins": new.init,
        "first sends on": lambda: old.send(topic, b"lost"),
        "first adds on": lambda: old.add(topic, 0),
        "first adds a group": lambda: old.add_group(GROUP),
        "first commits positions": lambda: old.offsets(GROUP, topic, 1),
    }
    if adds:
        steps["second adds"] = lambda: new.add(topic, 0)
    steps |= {
        "second sends": lambda: new.send(topic, b"kept"),
        "first commits": lambda: old.end(commit=True),
        "first aborts": lambda: old.end(commit=False),
        "second commits": lambda: new.end(commit=True),
    }
    return {f"{name}: {step}": ask for step, ask in steps.items()}


async def _end(side: Side, topic: str, least: int = 0) -> str:
    """Where committed reads end, once they reach all of it and `least`: Kafka's markers take a moment."""
    part = lo.ListOffsetsPartition(0, -1, -1)
    while True:
        ends = []
        for isolation in (0, 1):
            request = lo.ListOffsetsRequest(-1, isolation, [lo.ListOffsetsTopic(topic, [part])])
            ends.append((await side.ask("ListOffsets", request, 9)).topics[0].partitions[0].offset)
        if ends[0] == ends[1] >= least:
            return str(ends[0])
        await asyncio.sleep(PAUSE_S)


async def empty(side: Side) -> Answers:
    """Transactions of nothing: partitions and groups that were added and never written."""
    await coordinated(side)
    found: Answers = {}
    topic = await side.topic("empty", 1, retention_ms="-1")
    async with client(side, "empty") as x:
        await taken(
            found,
            {
                "init": x.init,
                "commit without a pair": lambda: _end_of_nobody(x, commit=True),
                "abort without a pair": lambda: _end_of_nobody(x, commit=False),
                "add no partition": lambda: _add_nothing(x),
                "commit of no partition": lambda: x.end(commit=True),
                "add": lambda: x.add(topic, 0),
                "commit of a partition without records": lambda: x.end(commit=True),
            },
        )
        found["its end"] = await _end(side, topic, 1)
        for commit in (True, False):
            found[f"after a commit, an end without a pair ({commit})"] = await settled(
                lambda commit=commit: _end_of_nobody(x, commit=commit)
            )
        await taken(
            found,
            {
                "add once more": lambda: x.add(topic, 0),
                "abort of a partition without records": lambda: x.end(commit=False),
                "add a group": lambda: x.add_group(GROUP),
                "commit of a group without positions": lambda: x.end(commit=True),
            },
        )
        found["its end after both"] = await _end(side, topic, 2)
    async with client(side, "empty-v2", **V2) as x:
        await taken(found, {"v2: init": x.init, "v2: positions": lambda: x.offsets(GROUP, topic, 1)})
        before = x.pair[1]
        await taken(found, {"v2: commit of positions alone": lambda: x.end(commit=True)})
        await taken(found, {"v2: abort of nothing": lambda: x.end(commit=False)})
        found["v2: epochs"] = str(x.pair[1] - before)
    return found


async def _end_of_nobody(x: TransactionalClient, *, commit: bool) -> int:
    answer = await x.call("EndTxn", et.EndTxnRequest(x.name, -1, -1, commit))
    return int(answer.error_code)


async def _add_nothing(x: TransactionalClient) -> int:
    request = ap.AddPartitionsToTxnRequest([], x.name, *x.pair, [])
    return len((await x.call("AddPartitionsToTxn", request)).results_by_topic_v3_and_below)


async def mixed(side: Side) -> Answers:
    """Requests of transactions v2 by a producer that speaks v1, and the reverse, in one transaction."""
    await coordinated(side)
    found: Answers = {}
    topic = await side.topic("mixed", 3, retention_ms="-1")
    for order, requests in ORDERS.items():
        async with client(side, f"mixed-{order.replace(' ', '-')}", **V1) as x:
            await settled(x.init)
            for number, (name, version) in enumerate(requests):
                x.versions[name] = version
                calls: dict[str, Ask] = {
                    "Produce": lambda x=x: _code(x.send(topic, b"a")),
                    "AddPartitionsToTxn": lambda x=x: x.add(topic, 0),
                    "AddOffsetsToTxn": lambda x=x: x.add_group(GROUP),
                    "TxnOffsetCommit": lambda x=x: x.offsets(GROUP, topic, 1),
                    "EndTxn": lambda x=x: x.end(commit=True),
                }
                found[f"{order}: {number} {name} {version}"] = await settled(calls[name])
                await _end(side, topic) if name == "EndTxn" else None  # Kafka's markers take a moment
    return found


async def _code(sent: Awaitable[tuple[int, int]]) -> int:
    return (await sent)[0]


async def batched(side: Side) -> Answers:
    """AddPartitionsToTxn 4 and 5, which brokers send to each other and some clients too."""
    await coordinated(side)
    found: Answers = {}
    topic = await side.topic("batched", 2, retention_ms="-1")
    async with client(side, "batched-one", **V1) as x, client(side, "batched-two", **V1) as y:
        for producer in (x, y):
            await settled(producer.init)
        await settled(lambda: x.add(topic, 0))

        async def ask(name: str, version: int, *asked: tuple[str, tuple[int, int], bool, int]) -> None:
            rows = [
                ap.AddPartitionsToTxnTransaction(
                    transactional_id, *pair, verify, [ap.AddPartitionsToTxnTopic(topic, [index])]
                )
                for transactional_id, pair, verify, index in asked
            ]
            answer = await side.ask("AddPartitionsToTxn", ap.AddPartitionsToTxnRequest(rows), version)
            each = [
                f"{row.transactional_id.removeprefix(side.prefix)}: {code(part.partition_error_code)}"
                for row in answer.results_by_transaction
                for each in row.topic_results
                for part in each.results_by_partition
            ]
            found[f"{name}, {version}"] = f"{code(answer.error_code)} {sorted(each)}"

        for version in (4, 5):
            await ask("verify what was added", version, (x.name, x.pair, True, 0))
            await ask("verify what was not", version, (x.name, x.pair, True, 1))
            await ask("verify without a transaction", version, (y.name, y.pair, True, 0))
            await ask("verify a stranger", version, (f"{side.prefix}nobody", (5, 0), True, 0))
            await ask("verify another's pair", version, (x.name, y.pair, True, 0))
            await ask("verify an old epoch", version, (x.name, (x.pair[0], x.pair[1] - 1), True, 0))
            await ask("both in one", version, (x.name, x.pair, True, 0), (y.name, y.pair, True, 0))
    return found


async def wide(side: Side) -> Answers:
    """A transaction of many partitions; and one that names ten thousand, of which most are not there."""
    await coordinated(side)
    found: Answers = {}
    topic = await side.topic("wide", WIDE, retention_ms="-1")
    async with client(side, "wide") as x:

        async def all_added() -> int:
            return max((await _codes(x, topic, WIDE)).keys())

        steps: dict[str, Ask] = {"init": x.init}
        for commit in (True, False):
            name = "commit" if commit else "abort"
            steps |= {
                f"add all before {name}": all_added,
                f"send before {name}": lambda: x.send(topic, b"a", index=WIDE - 1),
                name: lambda commit=commit: x.end(commit=commit),
                f"{name} again": lambda commit=commit: x.end(commit=commit),
            }
        await taken(found, steps)
        codes = await _codes(x, topic, NAMED)
        found["ten thousand named"] = str({code(number): count for number, count in sorted(codes.items())})
    return found


async def _codes(x: TransactionalClient, topic: str, count: int) -> Counter[int]:
    """How often AddPartitionsToTxn of so many partitions gives each code."""
    request = ap.AddPartitionsToTxnRequest(
        [], x.name, *x.pair, [ap.AddPartitionsToTxnTopic(topic, list(range(count)))]
    )
    (answer,) = (await x.call("AddPartitionsToTxn", request)).results_by_topic_v3_and_below
    return Counter(int(row.partition_error_code) for row in answer.results_by_partition)


async def widest(side: Side) -> Answers:
    """One transaction over ten thousand partitions that are all there, a few of which get a record."""
    await coordinated(side)
    found: Answers = {}
    topic = f"{side.prefix}widest"
    await _make_widest(side, topic)
    async with client(side, "widest") as x:
        found["init"] = await settled(lambda: x.init(WIDEST_MS_MAX))
        for commit in (True, False):
            name = "commit" if commit else "abort"
            codes = await _all_added(x, topic)
            found[f"add before {name}"] = str({code(number): count for number, count in codes.items()})
            for index in (0, NAMED // 2, NAMED - 1):
                sent = await settled(lambda index=index: x.send(topic, b"a", index=index))
                found[f"send to {index} before {name}"] = sent
            found[f"committed ends before {name}"] = str(await _ends_of_all(side, topic, 1))
            found[name] = await settled(lambda commit=commit: x.end(commit=commit))
            found[f"{name} again"] = await settled(lambda commit=commit: x.end(commit=commit))
            ended = await _ends_of_all(side, topic, 1, 1 if commit else 2)
            found[f"committed ends after {name}"] = str(ended)
            assert ended == await _ends_of_all(side, topic, 0), "nothing is left open"
    await call(
        side.bootstrap,
        "DeleteTopics",
        dl.DeleteTopicsRequest([dl.DeleteTopicState(topic)], [], WIDEST_MS_MAX),
        6,
    )
    return found


async def _make_widest(side: Side, topic: str) -> None:
    """In two requests: Kafka takes 10,000 records of metadata in one, the topic's own among them."""
    wanted = ct.CreatableTopic(topic, NAMED // 2, 1, configs=[ct.CreatableTopicConfig("retention.ms", "-1")])
    made = await call(side.bootstrap, "CreateTopics", ct.CreateTopicsRequest([wanted], WIDEST_MS_MAX), 7)
    more = cp.CreatePartitionsRequest([cp.CreatePartitionsTopic(topic, NAMED, None)], WIDEST_MS_MAX)
    grown = await call(side.bootstrap, "CreatePartitions", more, 3)
    codes = (made.topics[0].error_code, grown.results[0].error_code)
    assert codes == (0, 0), [code(number) for number in codes]
    await _ends_of_all(side, topic, 0)


async def _all_added(x: TransactionalClient, topic: str) -> Counter[int]:
    """The codes of all partitions, once the transaction before is over everywhere."""
    while True:
        codes = await _codes(x, topic, NAMED)
        if not set(codes) & set(AGAIN):
            return codes
        await asyncio.sleep(PAUSE_S)


async def _ends_of_all(side: Side, topic: str, isolation: int, least: int = 0) -> dict[int, int]:
    """How many partitions end at which offset, once all have a leader and end at `least`."""
    parts = [lo.ListOffsetsPartition(index, -1, -1) for index in range(NAMED)]
    request = lo.ListOffsetsRequest(-1, isolation, [lo.ListOffsetsTopic(topic, parts)], WIDEST_MS_MAX)
    while True:
        answer = await call(side.bootstrap, "ListOffsets", request, 9)
        rows = answer.topics[0].partitions
        if not any(row.error_code for row in rows) and min(row.offset for row in rows) >= least:
            return dict(sorted(Counter(int(row.offset) for row in rows).items()))
        await asyncio.sleep(PAUSE_S)


Sent = tuple[str, Any, int, Callable[[Any], int]]  # API, request, version, where the answer has its code


def _long(topic: str) -> list[Sent]:
    added = [ap.AddPartitionsToTxnTopic(topic, [0])]
    whole = ap.AddPartitionsToTxnTransaction(MEGABYTE, 5, 0, False, added)
    rows = [to.TxnOffsetCommitRequestTopic(topic, [to.TxnOffsetCommitRequestPartition(0, 1)])]
    find = fc.FindCoordinatorRequest(key_type=1, coordinator_keys=[MEGABYTE])
    add = ap.AddPartitionsToTxnRequest([], MEGABYTE, 5, 0, added)
    add_group = ao.AddOffsetsToTxnRequest(MEGABYTE, 5, 0, GROUP)
    commit = to.TxnOffsetCommitRequest(MEGABYTE, GROUP, 5, 0, topics=rows)
    describe = dt.DescribeTransactionsRequest([MEGABYTE])
    return [
        ("FindCoordinator", find, 4, lambda a: int(a.coordinators[0].error_code)),
        ("InitProducerId", ip.InitProducerIdRequest(MEGABYTE, 1000), 4, lambda a: int(a.error_code)),
        ("AddPartitionsToTxn", add, 3, lambda a: _first(a.results_by_topic_v3_and_below)),
        (
            "AddPartitionsToTxn",
            ap.AddPartitionsToTxnRequest([whole]),
            4,
            lambda a: _first(a.results_by_transaction[0].topic_results),
        ),
        ("AddOffsetsToTxn", add_group, 3, lambda a: int(a.error_code)),
        ("TxnOffsetCommit", commit, 3, lambda a: int(a.topics[0].partitions[0].error_code)),
        ("EndTxn", et.EndTxnRequest(MEGABYTE, 5, 0, True), 3, lambda a: int(a.error_code)),
        ("DescribeTransactions", describe, 0, lambda a: int(a.transaction_states[0].error_code)),
    ]


def _first(results: list[ap.AddPartitionsToTxnTopicResult]) -> int:
    return int(results[0].results_by_partition[0].partition_error_code)


async def long_ids(side: Side) -> Answers:
    """A transactional id of a megabyte in every request that takes one."""
    await coordinated(side)
    found: Answers = {}
    for name, request, version, read in _long(await side.topic("long", 1, retention_ms="-1")):

        async def ask(
            name: str = name,
            request: Any = request,
            version: int = version,
            read: Callable[[Any], int] = read,
        ) -> int | None:
            answer = await side.ask(name, request, version)
            return None if answer is None else read(answer)

        found[f"{name} {version}"] = await settled(ask)
    return found


QUESTIONS: dict[str, Question] = {
    "Transactions.two": two_owners,
    "Transactions.empty": empty,
    "Transactions.mixed": mixed,
    "Transactions.batched": batched,
    "Transactions.wide": wide,
    "Transactions.widest": widest,
    "Transactions.long": long_ids,
}
