"""A topic whose bad records are set aside, their replay, and what must have become of each (docs/schemas.md).

Writers send good and bad records together, in idempotent batches and in transactions of both versions;
somebody changes the topic's policy meanwhile; a replayer, which is the command line's own code, brings
records back and is killed at any moment. At the end both topics are read. Of a batch or transaction that was
acknowledged each good record is in the topic once, each bad one in the quarantine once; of one that failed,
nothing is; of one whose outcome is open, everything or nothing. A record of the quarantine is in the topic
once, repaired, with the header that names its place, unless its repair leaves it out.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import KafkaError

from agent.cli import replaying
from agent.cli.failures import Failure
from agent.cli.replaying import HEADER, Replaying
from agent.cli.requests import Bounds
from agent.net.wire.generated.create_topics import CreatableTopic, CreatableTopicConfig
from coordination.commands import AlterTopicConfigs, BindSchema
from coordination.state.quarantine_names import name_of
from coordination.state.state import HANDLERS, State
from coordination.state.types import At, ChunkCommitted
from coordination.topic_configs import OBSERVE, QUARANTINE, REJECT
from schema.proto.quarantine_pb2 import Record
from tests.checker.findings import Finding
from tests.sim.bindings import ANSWER_S_MAX, ERRORS, make_topic
from tests.sim.bound_messages import MESSAGES
from tests.sim.clients import RETRY_S, SHORT, Surroundings, partition_known, stopped
from tests.sim.loop import NODE
from tests.sim.producers import ERRORS as PRODUCER_ERRORS
from tests.sim.producers import VERSIONS, Producing

GATED = "gated"
ASIDE = name_of(GATED)
PARTITIONS = 2
RULES = "floe.value.rules"
POLICIES = (QUARANTINE, QUARANTINE, QUARANTINE, REJECT, OBSERVE)
BATCH_MAX, BATCHES_MAX = 4, 3
BAD_OF, ABORTED_OF, LEFT_OUT = 0.4, 0.15, 7
"""Records of every seventh number are left out by their repair."""
WRITTEN_S, POLICY_S, REPLAYED_S, KILLED_S = 0.15, 1.5, 0.5, 1.0
"""On average between two batches, two policies, two replays; and until a replay is killed."""
OPERATION_S_MAX, FINAL_S_MAX = 12.0, 200.0
TRANSACTION_MS = 5_000
REPLAY_BATCH = 3


def good(number: int) -> str:
    """A message of MESSAGES[0] with a name."""
    text = f"g{number}"
    return f"\x12{chr(len(text))}{text}"


def bad(number: int) -> str:
    """No message: its first field is longer than what there is."""
    return f"bad {number}"


def is_bad(value: str) -> bool:
    """Whether it belongs into the quarantine."""
    return value.startswith("bad ")


def repaired(kept: Record) -> bytes | None:
    """What the replayer makes of a record."""
    number = int(kept.value.decode().removeprefix("bad "))
    return good(number).encode() if number % LEFT_OUT else None


@dataclass(slots=True, eq=False)
class Sent:
    """A batch or a transaction. `outcome`: ok, fail (nothing of it is there), info (nobody knows)."""

    what: str
    values: list[str] = field(default_factory=list)
    outcome: str = "info"


@dataclass(slots=True)
class Found:
    """What readers of committed records get in the end."""

    topic: Counter[str] = field(default_factory=Counter)
    aside: Counter[str] = field(default_factory=Counter)
    replayed: defaultdict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    """By place in the quarantine, the values that the topic has of it."""
    places: dict[str, Record] = field(default_factory=dict)


class Gate:
    """What was sent, and what is known of where it had to go."""

    def __init__(self) -> None:
        self.sent: list[Sent] = []
        self.findings: list[Finding] = []
        self.made = False
        """Whether the topic is there and bound: who asks for it before makes one that has no quarantine."""
        self._numbers = 0

    def drawn(self, random: Any) -> list[str]:
        """Values of a batch."""
        values = []
        for _ in range(random.randint(1, BATCH_MAX)):
            self._numbers += 1
            values.append((bad if random.random() < BAD_OF else good)(self._numbers))
        return values

    @contextmanager
    def watches(self) -> Iterator[None]:
        """Every batch of the quarantine that is appended meanwhile: a policy must have asked for it."""
        commit = HANDLERS["commit_chunk"]

        def committed(state: State, message: Any, at: At) -> Any:
            result = commit(state, message, at)
            if isinstance(result, ChunkCommitted) and ASIDE in state.topics:
                self._appended(state, message, result)
            return result

        HANDLERS["commit_chunk"] = committed
        try:
            yield
        finally:
            HANDLERS["commit_chunk"] = commit

    def _appended(self, state: State, message: Any, result: ChunkCommitted) -> None:
        handles = {each.handle for each in state.topics[ASIDE].partitions}
        places = zip(message.partition, result.errors, result.base_offsets, strict=True)
        taken = [base for handle, error, base in places if handle in handles and not error]
        policy = state.topics[GATED].configs.get(RULES) if GATED in state.topics else None
        if taken and policy != QUARANTINE:
            detail = f"at {taken} of {ASIDE}, while the policy is {policy}"
            self._found("aside-unasked", detail)

    def _found(self, anomaly: str, detail: str) -> None:
        if all(each.detail != detail for each in self.findings):  # each agent applies it
            self.findings.append(Finding(anomaly, GATED, detail[:2000], ()))

    def judged(self, found: Found) -> Iterator[Finding]:
        """What is not as it has to be."""
        for each in self.sent:
            yield from (Finding(anomaly, GATED, detail, ()) for anomaly, detail in _of(each, found))
        yield from self.findings
        for place, kept in found.places.items():
            due = repaired(kept)
            got = found.replayed.pop(place, [])
            if len(got) > (due is not None):
                yield Finding("replay-doubled", GATED, f"{place}, {kept.value!r}, came back as {got}", ())
            elif due is not None and got != [due.decode()]:
                yield Finding("replay-lost", GATED, f"{place}, {kept.value!r}, came back as {got}", ())
        if found.replayed:
            yield Finding("replay-doubled", GATED, f"from nowhere: {dict(found.replayed)}", ())


def _of(sent: Sent, found: Found) -> Iterator[tuple[str, str]]:
    """What is wrong with one batch or transaction."""
    counts = []
    for value in sent.values:
        here, other = (found.aside, found.topic) if is_bad(value) else (found.topic, found.aside)
        if other[value]:
            yield "aside-misplaced", f"{value!r} of {sent}"
        counts.append(here[value])
        if here[value] > 1:
            yield "aside-doubled", f"{value!r} is there {here[value]} times, of {sent}"
    if sent.outcome == "ok" and 0 in counts:
        yield "aside-lost", f"{sent}: {counts}"
    elif sent.outcome == "fail" and any(counts):
        yield "aside-aborted", f"{sent}: {counts}"
    elif any(counts) and not all(counts):
        yield "aside-torn", f"{sent}: {counts}"


class Gatekeeper:
    """One process: it makes the topic, writes to it by several producers, changes its policy."""

    def __init__(self, around: Surroundings, gate: Gate) -> None:
        self._around = around
        self._gate = gate

    async def live(self) -> None:
        """Until told to stop."""
        configs = [CreatableTopicConfig(RULES, QUARANTINE)]
        await make_topic(self._around, CreatableTopic(GATED, PARTITIONS, 1, configs=configs))
        bound = BindSchema(topic=GATED, descriptor_set=MESSAGES[0].descriptor_set, message=MESSAGES[0].name)
        while not await self._proposed(bound):  # noqa: ASYNC110 - tries again until it is done
            await asyncio.sleep(RETRY_S)
        self._gate.made = True
        async with asyncio.TaskGroup() as group:
            group.create_task(self._write())
            for version in VERSIONS:
                group.create_task(self._transact(version))
            group.create_task(self._change())

    async def _proposed(self, command: Any) -> bool:
        try:
            async with asyncio.timeout(ANSWER_S_MAX):
                await self._around.propose(command)
        except ERRORS:
            return False
        return True

    async def _change(self) -> None:
        random = self._around.loop.random
        while not self._around.stopping.is_set():
            await asyncio.sleep(random.expovariate(1 / POLICY_S))
            change = AlterTopicConfigs.Change(name=RULES, value=random.choice(POLICIES))
            if await self._proposed(AlterTopicConfigs(topic=GATED, changes=[change])):
                self._around.counts["policies of rules"] += 1

    async def _write(self) -> None:
        """Batches of an idempotent producer; one that fails is followed by another one."""
        random = self._around.loop.random
        while not self._around.stopping.is_set():
            producer: Any = AIOKafkaProducer(
                bootstrap_servers=self._around.bootstrap,
                enable_idempotence=True,
                client_id=NODE.get(),
                **SHORT,
            )
            try:
                await producer.start()
                while not self._around.stopping.is_set():
                    await asyncio.sleep(random.expovariate(1 / WRITTEN_S))
                    await self._batch(producer)
            except (KafkaError, OSError, TimeoutError):
                await asyncio.sleep(RETRY_S)
            finally:
                await stopped(producer)

    async def _batch(self, producer: Any) -> None:
        random = self._around.loop.random
        sent = Sent("batch", self._gate.drawn(random))
        self._gate.sent.append(sent)
        batch = producer.create_batch()
        for value in sent.values:
            batch.append(key=None, value=value.encode(), timestamp=self._around.timestamp())
        where = TopicPartition(GATED, random.randrange(PARTITIONS))
        await partition_known(producer, where)
        under_way = await producer.send_batch(batch, GATED, partition=where.partition)
        await under_way
        sent.outcome = "ok"
        self._around.counts["records past a gate"] += len(sent.values)

    async def _transact(self, version: str) -> None:
        random, name = self._around.loop.random, f"gate-{version}"
        while not self._around.stopping.is_set():
            producer = VERSIONS[version](self._around, name, TRANSACTION_MS)
            try:
                async with asyncio.timeout(OPERATION_S_MAX):
                    await producer.start()
                while not self._around.stopping.is_set():
                    await asyncio.sleep(random.expovariate(1 / WRITTEN_S))
                    async with asyncio.timeout(OPERATION_S_MAX):
                        await self._transaction(producer, version)
            except PRODUCER_ERRORS:
                await asyncio.sleep(RETRY_S)
            finally:
                await producer.stop()

    async def _transaction(self, producer: Producing, version: str) -> None:
        random = self._around.loop.random
        sent = Sent(f"transaction of {version}", outcome="fail")
        self._gate.sent.append(sent)
        commit = random.random() >= ABORTED_OF
        await producer.begin()
        for _ in range(random.randint(1, BATCHES_MAX)):
            values = self._gate.drawn(random)
            sent.values += values
            await producer.send(TopicPartition(GATED, random.randrange(PARTITIONS)), *values)
        sent.outcome = "info" if commit else "fail"
        await producer.end(commit=commit)
        if commit:
            sent.outcome = "ok"
            self._around.counts["records past a gate"] += len(sent.values)


class Replayer:
    """`floe quarantine replay`, again and again, killed at any moment."""

    def __init__(self, around: Surroundings, gate: Gate) -> None:
        self._around = around
        self._gate = gate

    async def live(self) -> None:
        """Until told to stop."""
        random = self._around.loop.random
        while not self._gate.made:  # noqa: ASYNC110 - polls a client
            await asyncio.sleep(RETRY_S)
        while not self._around.stopping.is_set():
            work = asyncio.ensure_future(replay(self._around))
            await asyncio.wait([work], timeout=random.expovariate(1 / KILLED_S))
            if not work.done() and not self._around.stopping.is_set():
                self._around.counts["replays killed"] += 1
                self._around.crash()
                await asyncio.get_running_loop().create_future()
            await work
            await asyncio.sleep(random.expovariate(1 / REPLAYED_S))


async def replay(around: Surroundings) -> bool:
    """One run of the command; whether it came to its end."""
    try:
        bounds = await _bounds(around)
        given = Replaying(GATED, PARTITIONS, repaired, REPLAY_BATCH, 1 << 40)
        done = await replaying.replay(",".join(around.bootstrap), given, bounds, lambda _: None)
    except (Failure, KafkaError, OSError, TimeoutError):
        return False
    around.counts["records replayed"] += done.written
    return True


def _reader(around: Surroundings) -> Any:
    return AIOKafkaConsumer(
        bootstrap_servers=around.bootstrap,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
        **SHORT,
    )


async def _bounds(around: Surroundings) -> list[Bounds]:
    """Of the quarantine's partitions, as the command asks for them."""
    consumer, places = _reader(around), [TopicPartition(ASIDE, at) for at in range(PARTITIONS)]
    try:
        await consumer.start()
        starts = await consumer.beginning_offsets(places)
        ends = await consumer.end_offsets(places)
        return [Bounds(at.partition, 0, starts[at], ends[at]) for at in places]
    finally:
        await stopped(consumer)


async def settled(around: Surroundings, gate: Gate) -> list[Finding]:
    """Replay to the end when nothing is wrong any more, read everything, and judge it."""
    if not gate.made:
        return []
    try:
        async with asyncio.timeout(FINAL_S_MAX):
            while not await replay(around):  # noqa: ASYNC110 - likewise
                await asyncio.sleep(RETRY_S)
            while (found := await _read(around)) is None:  # noqa: ASYNC110 - likewise
                await asyncio.sleep(RETRY_S)
    except TimeoutError:
        return [Finding("stuck", GATED, f"it is not replayed and read within {FINAL_S_MAX:.0f} s", ())]
    around.counts["records set aside"] += found.aside.total()
    around.counts["records that came back"] += sum(map(len, found.replayed.values()))
    return list(gate.judged(found))


async def _read(around: Surroundings) -> Found | None:
    """Both topics from the start to the end; None where that is interrupted."""
    consumer, found = _reader(around), Found()
    places = [TopicPartition(topic, at) for topic in (GATED, ASIDE) for at in range(PARTITIONS)]
    try:
        await consumer.start()
        consumer.assign(places)
        ends: Mapping[TopicPartition, int] = await consumer.end_offsets(places)
        await consumer.seek_to_beginning(*places)
        while any([await consumer.position(at) < ends[at] for at in places]):
            polled: Mapping[TopicPartition, Sequence[Any]] = await consumer.getmany(timeout_ms=200)
            for where, records in polled.items():
                for each in records:
                    _note(found, where, each)
    except (KafkaError, OSError, TimeoutError):
        return None
    finally:
        await stopped(consumer)
    return found


def _note(found: Found, where: TopicPartition, record: Any) -> None:
    origin = dict(record.headers).get(HEADER)
    if where.topic == ASIDE:
        kept = Record.FromString(record.value)
        found.aside[kept.value.decode()] += 1
        found.places[f"{ASIDE}/{where.partition}/{record.offset}"] = kept
    elif origin is not None:
        found.replayed[origin.decode()].append(record.value.decode())
    else:
        found.topic[record.value.decode()] += 1
