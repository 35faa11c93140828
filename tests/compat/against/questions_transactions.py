"""Questions about transactions: each step that a client may get wrong, in old and new codes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from agent.net.wire.generated import find_coordinator as fc
from agent.net.wire.generated import init_producer_id as ip
from agent.net.wire.generated import list_offsets as lo
from agent.net.wire.generated import list_transactions as lt
from coordination.kafka_codes import Code
from tests.compat.against.side import LEADER_S_MAX, NOW, Answers, Question, Side, code
from tests.equipment.transactional_client import V1, V2, TransactionalClient

AGAIN = (
    Code.CONCURRENT_TRANSACTIONS,  # Kafka's markers come a moment after its answer
    Code.COORDINATOR_LOAD_IN_PROGRESS,
    Code.COORDINATOR_NOT_AVAILABLE,
    Code.NOT_COORDINATOR,
)
PAUSE_S = 0.05
TRIES_MAX = 200
GROUP = "positions"
Ask = Callable[[], Awaitable[int | tuple[int, int] | None]]  # a code, with a batch's offset; None: no answer
TIMES = {"latest": -1, "earliest": -2, "newest": -3, "its time": NOW, "later": NOW + 1}


async def settled(ask: Ask) -> str:
    """The code, once it is none of those that every client tries again after; with the offset of a batch."""
    number, offset, tries = 0, None, 0
    while tries < TRIES_MAX:
        found = await ask()
        if found is None:
            return "no answer"
        number, offset = found if isinstance(found, tuple) else (found, None)
        if number not in AGAIN:
            break
        tries += 1
        await asyncio.sleep(PAUSE_S)
    return code(number) if offset is None else f"{code(number)} at {offset}"


async def taken(found: Answers, steps: Mapping[str, Ask]) -> None:
    """Take one step after the other, and note what each was told."""
    for name, step in steps.items():
        found[name] = await settled(step)


def client(side: Side, name: str, **versions: int) -> TransactionalClient:
    """A producer with a transactional id of this side: of v1, or of v2 when its EndTxn is."""
    base = V2 if versions.get("EndTxn") == V2["EndTxn"] else V1
    return TransactionalClient(side.bootstrap, f"{side.prefix}{name}", versions={**base, **versions})


async def coordinated(side: Side) -> None:
    """Kafka makes its inner topics when somebody first asks for a coordinator."""
    for key, kind in ((GROUP, 0), (side.prefix, 1)):
        request = fc.FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])
        async with asyncio.timeout(LEADER_S_MAX):
            while True:
                answer = await side.ask("FindCoordinator", request, 4)
                if answer is not None and answer.coordinators[0].error_code == Code.NONE:
                    break
                await asyncio.sleep(PAUSE_S)


async def order_in_v1(side: Side) -> Answers:
    """One producer of v1 and what it may do in which order."""
    await coordinated(side)
    topic = await side.topic("v1", 2, retention_ms="-1")
    found: Answers = {}
    async with client(side, "order") as x:
        steps: dict[str, Ask] = {
            "init": x.init,
            "commit of nothing": lambda: x.end(commit=True),
            "abort of nothing": lambda: x.end(commit=False),
            "add": lambda: x.add(topic, 0),
            "add again": lambda: x.add(topic, 0, 1),
            "send": lambda: x.send(topic, b"a"),
            "commit": lambda: x.end(commit=True),
            "commit again": lambda: x.end(commit=True),
            "abort after commit": lambda: x.end(commit=False),
            "add 2": lambda: x.add(topic, 0),
            "send 2": lambda: x.send(topic, b"b"),
            "abort": lambda: x.end(commit=False),
            "abort again": lambda: x.end(commit=False),
            "commit after abort": lambda: x.end(commit=True),
            "add an unknown topic": lambda: x.add("not-there", 0),
            "add an unknown partition": lambda: x.add(topic, 0, 7),
            "positions of a group": lambda: x.offsets(GROUP, topic, 1),
            "add the group": lambda: x.add_group(GROUP),
            "positions": lambda: x.offsets(GROUP, topic, 1),
            "add no group": lambda: x.add_group(""),
            "commit positions": lambda: x.end(commit=True),
        }
        await taken(found, steps)
    return found


async def order_in_v2(side: Side) -> Answers:
    """One producer of v2: the table of KIP-890, and what it does without asking before."""
    await coordinated(side)
    topic = await side.topic("v2", 2, retention_ms="-1")
    found: Answers = {}
    async with client(side, "order-v2", **V2) as x:

        async def retried(*, commit: bool) -> int:
            current, x.pair = x.pair, old
            try:
                return int((await x.call("EndTxn", x.ending(commit=commit))).error_code)
            finally:
                x.pair = current

        found["init"] = await settled(x.init)
        found["commit of nothing"] = await settled(lambda: x.end(commit=True))
        found["abort of nothing"] = await settled(lambda: x.end(commit=False))
        for commit in (True, False):
            old, name = x.pair, "commit" if commit else "abort"
            found[f"send before {name}"] = await settled(lambda: x.send(topic, b"a"))
            found[f"positions before {name}"] = await settled(lambda: x.offsets(GROUP, topic, 1))
            found[name] = await settled(lambda commit=commit: x.end(commit=commit))
            found[f"epoch after {name}"] = str(x.pair[1] - old[1])
            found[f"{name} retried"] = await settled(lambda commit=commit: retried(commit=commit))
            found[f"the other retried after {name}"] = await settled(
                lambda commit=commit: retried(commit=not commit)
            )
            found[f"commit of nothing after {name}"] = await settled(lambda: x.end(commit=True))
            x.pair, current = old, x.pair
            found[f"send with the epoch before {name}"] = await settled(lambda: x.send(topic, b"late"))
            x.pair, x.sequences = current, {}
    return found


async def strangers(side: Side) -> Answers:
    """Ids that nobody knows, a producer that was fenced, versions that know fewer codes."""
    await coordinated(side)
    topic = await side.topic("strangers", 1, retention_ms="-1")
    found: Answers = {}
    async with client(side, "unknown") as nobody:
        nobody.pair = (987_654_321, 0)
        found["unknown add"] = await settled(lambda: nobody.add(topic, 0))
        found["unknown add group"] = await settled(lambda: nobody.add_group(GROUP))
        found["unknown end"] = await settled(lambda: nobody.end(commit=True))
    newest = {"AddPartitionsToTxn": 3, "AddOffsetsToTxn": 4, "TxnOffsetCommit": 4, "EndTxn": 4}
    older = {"AddPartitionsToTxn": 1, "AddOffsetsToTxn": 1, "TxnOffsetCommit": 3, "EndTxn": 1}
    for name, versions in (("newer", newest), ("older", older)):
        async with client(side, f"fenced-{name}", **versions) as x, client(side, f"fenced-{name}") as other:
            await settled(x.init)
            await settled(other.init)
            found[f"fenced add, {name}"] = await settled(lambda x=x: x.add(topic, 0))
            found[f"fenced add group, {name}"] = await settled(lambda x=x: x.add_group(GROUP))
            found[f"fenced commit, {name}"] = await settled(lambda x=x: x.end(commit=True))
            found[f"fenced init, {name}"] = await settled(lambda x=x: x.init(given=x.pair))
            found[f"foreign producer id, {name}"] = await settled(lambda x=x: x.init(given=(5, 0)))
    return found


async def not_added(side: Side) -> Answers:
    """Batches and positions of what was not added, by version."""
    await coordinated(side)
    topic = await side.topic("not-added", 1, retention_ms="-1")
    found: Answers = {}
    for version in (10, 11):
        async with client(side, f"not-added-{version}", Produce=version) as x:
            await settled(x.init)
            found[f"Produce {version}"] = await settled(lambda x=x: x.send(topic, b"a"))
    for version in (3, 4):
        async with client(side, f"positions-{version}", TxnOffsetCommit=version) as x:
            await settled(x.init)
            found[f"TxnOffsetCommit {version}"] = await settled(lambda x=x: x.offsets(GROUP, topic, 1))
    return found


async def offsets_by_time(side: Side) -> Answers:
    """What a marker, which has a timestamp too, is to ListOffsets; with either isolation, open and ended."""
    await coordinated(side)
    topic = await side.topic("by-time", 1, retention_ms="-1")
    found: Answers = {}

    async def asked(name: str) -> None:
        for isolation, kind in ((0, "uncommitted"), (1, "committed")):
            for what, timestamp in TIMES.items():
                part = lo.ListOffsetsPartition(0, -1, timestamp)
                request = lo.ListOffsetsRequest(-1, isolation, [lo.ListOffsetsTopic(topic, [part])])
                row = (await side.ask("ListOffsets", request, 9)).topics[0].partitions[0]
                found[f"{name}: {what} {kind}"] = f"{code(row.error_code)} at {row.offset}"

    async with client(side, "by-time", **V2) as x:
        await settled(x.init)
        await settled(lambda: x.send(topic, b"a", b"b"))
        await asked("open")
        await settled(lambda: x.end(commit=True))
        await settled(lambda: x.send(topic, b"c"))
        await settled(lambda: x.end(commit=False))
        await asked("ended")
    return found


async def bounds(side: Side) -> Answers:
    """Timeouts and ids at the edges of what is allowed."""
    await coordinated(side)
    found: Answers = {}
    for name, transactional_id, timeout_ms in (
        ("timeout 0", "edge", 0),
        ("timeout -1", "edge", -1),
        ("the longest timeout", "edge", 900_000),
        ("too long a timeout", "edge", 900_001),
        ("no id", "", 1000),
        ("an id of 30,000 letters", "x" * 30_000, 1000),
        ("an id of a megabyte", "x" * 1_000_000, 1000),
    ):
        request = ip.InitProducerIdRequest(transactional_id and side.prefix + transactional_id, timeout_ms)
        answer = await side.ask("InitProducerId", request, 4)
        while answer is not None and answer.error_code in AGAIN:
            await asyncio.sleep(PAUSE_S)
            answer = await side.ask("InitProducerId", request, 4)
        found[name] = "no answer" if answer is None else code(answer.error_code)
    for name, listing in (
        ("an unknown state", lt.ListTransactionsRequest(state_filters=["Strange", "Ongoing", "Dead"])),
        ("a broken pattern", lt.ListTransactionsRequest(transactional_id_pattern="(")),
    ):
        answer = await side.ask("ListTransactions", listing, 2)
        found[name] = f"{code(answer.error_code)}, unknown {answer.unknown_state_filters}"
    return found


QUESTIONS: dict[str, Question] = {
    "Transactions.v1": order_in_v1,
    "Transactions.v2": order_in_v2,
    "Transactions.fenced": strangers,
    "Transactions.added": not_added,
    "Transactions.bounds": bounds,
    "Transactions.ListOffsets": offsets_by_time,
}
