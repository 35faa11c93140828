"""Queues that one cluster copies to another, exactly once, while all goes wrong at both ends.

Who copies reads the committed records of every key of the first cluster, and produces into a second one
(second.py), in transactions: the copies, and where the next one goes on, which is a record of the topic of
positions there, so both are there or neither. Two processes do so under one transactional id. Whoever begins
fences the one before, and reads the positions when that can write no more. They die, stand still until they
are fenced, and take over from each other; agents of both clusters die and lose log and store.

The judge asks neither of them: what a fresh consumer of the first cluster reads in the end, committed, and
what another one reads in the second. Each record has to be there once, as it was, those of a key in order.
"""

from __future__ import annotations

import asyncio
import zlib
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from tests.checker.findings import Finding
from tests.sim.clients import POLL_MS, RETRY_S, Surroundings, committed, name, stopped
from tests.sim.loop import NODE
from tests.sim.producers import ERRORS, VERSIONS, Producing
from tests.sim.second import TROUBLES, Second
from tests.sim.transactors import ABORTED_OF, OPERATION_S_MAX

if TYPE_CHECKING:
    from tests.sim.world import World

FIRST = 60
"""Number of the second cluster's first agent."""
QUEUE, QUEUE_PARTITIONS, POSITIONS = "queue", 2, "positions"
COPIERS = ("q0", "q1")
ID = "queue-copier"
BATCH_MAX = 12
PAUSE_S, FENCED_S, TROUBLED_S, BETWEEN_S = 0.1, 2.0, (0.3, 4.0), 2.0
TAKEN_OVER_S = 6.0
"""After how long on average a process gives up its place, and takes it again."""
TIMEOUT_MS = 3_000
DRAINED_S_MAX = 120.0
OF_COPIERS = ("kill-copier", "pause-copier")
Copy = tuple[str, int, str]
"""Key, offset and value in the first cluster."""


def index_of(key: str) -> int:
    """The partition of the queue that a key's copies are in."""
    return zlib.crc32(key.encode()) % QUEUE_PARTITIONS


class Queues:
    """The second cluster of a run, and who copies to it; nothing where the plan has none."""

    def __init__(self, world: World) -> None:
        self._world, self.on = world, world.plan.queues and not world.plan.sick
        if self.on:
            self.second = Second.empty(world, FIRST)

    def cast(self) -> list[str]:
        """Its clients."""
        return [*COPIERS, "quarrel"] if self.on else []

    def life(self, client: str, around: Surroundings) -> Any:
        """Of one of these; None of any other."""
        if client in COPIERS:
            return QueueCopier(self._world, around, self.second.around(around))
        return Quarrel(self, around) if client == "quarrel" else None

    async def begin(self) -> None:
        """Start the agents, and make the topics."""
        if not self.on:
            return
        for agent in self.second.agents:
            agent.start()
        for agent in self.second.agents:
            assert agent.started is not None, "it was started above"
            await agent.started
        await self._world._node("setup-second", self._create())

    async def _create(self) -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=self.second.agents[0].bootstrap)
        await admin.start()
        await admin.create_topics([NewTopic(QUEUE, QUEUE_PARTITIONS, 1), NewTopic(POSITIONS, 1, 1)])
        await admin.close()

    # The end.

    async def judged(self, around: Surroundings, read: Mapping[str, set[int]]) -> list[Finding]:
        """What is in the second cluster against what is in the first one (`read`: its offsets by key)."""
        if not self.on:
            return []
        due = _values(around)
        if not await self.second.healed():
            return self.second.findings
        there = self.second.around(around)
        try:
            async with asyncio.timeout(DRAINED_S_MAX):
                copier = QueueCopier(self._world, around, there)
                while not await copier.drained(read):  # noqa: ASYNC110 - tries again until it is done
                    await asyncio.sleep(RETRY_S)
                found = [
                    copy
                    for key in [TopicPartition(QUEUE, n) for n in range(QUEUE_PARTITIONS)]
                    for copy in map(_copy_of, await _everything(there, key))
                ]
        except TimeoutError:
            told = f"the queue is not copied to its end within {DRAINED_S_MAX:.0f} s"
            return [*self.second.findings, Finding("stuck", QUEUE, told, ())]
        counts = self._world.seen.counts
        counts["queue runs"] += 1
        counts["queue records copied"] += len(found)
        return [*self.second.findings, *judged(due, found)]


def judged(due: Mapping[str, Mapping[int, str]], found: Sequence[Copy]) -> list[Finding]:
    """Compare: by key what there was, by offset, and the copies in the order in which they are there."""
    findings: list[Finding] = []
    copies: defaultdict[str, list[int]] = defaultdict(list)
    for key, offset, value in found:
        copies[key].append(offset)
        if due.get(key, {}).get(offset) != value:
            told = f"{key}.{offset} is {value!r}, it was {due.get(key, {}).get(offset)!r}"
            findings.append(Finding("queue-foreign", key, told, ()))
    for key in sorted(due.keys() | copies.keys()):
        there = copies[key]
        lost = sorted(due.get(key, {}).keys() - set(there))
        doubled = [each for each, times in sorted(Counter(there).items()) if times > 1]
        if lost:
            findings.append(Finding("queue-lost", key, f"not copied: {lost}", ()))
        if doubled:
            findings.append(Finding("queue-doubled", key, f"copied more than once: {doubled}", ()))
        elif there != sorted(there):
            findings.append(Finding("queue-order", key, f"copied in the order {there}", ()))
    return findings


def _values(around: Surroundings) -> Mapping[str, Mapping[int, str]]:
    """What the final reads of the first cluster found, which have just ended."""
    process = around.recorder.operations[-1].process
    found: defaultdict[str, dict[int, str]] = defaultdict(dict)
    for op in (each for each in around.recorder.operations if each.process == process):
        for poll in op.polls:
            for key, records in poll.records.items():
                found[key].update({offset: str(value) for offset, value in records})
    return found


def _copy_of(record: Any) -> Copy:
    place, _, value = record.value.decode().partition(" ")
    key, _, offset = place.rpartition(".")
    return key, int(offset), value


async def _everything(around: Surroundings, key: TopicPartition) -> list[Any]:
    """All committed records of a partition. Raises one of ERRORS."""
    consumer = committed(around)
    found: list[Any] = []
    try:
        await consumer.start()
        consumer.assign([key])
        await consumer.seek_to_beginning(key)
        ends = await consumer.end_offsets([key])
        while await consumer.position(key) < ends[key]:
            for some in (await consumer.getmany(timeout_ms=POLL_MS)).values():
                found += some
    finally:
        await stopped(consumer)
    return found


class QueueCopier:
    """One process that copies. `there`: what it has around it in the second cluster.

    `fences` and `positions_first` are broken by controls.
    """

    fences, positions_first = True, False

    def __init__(self, world: World, around: Surroundings, there: Surroundings) -> None:
        self._world, self._around, self._there = world, around, there
        self._positions: dict[str, int] = {}

    async def live(self) -> None:
        """Until told to stop: it takes the place over, loses it, and takes it again."""
        random = self._around.loop.random
        while not self._around.stopping.is_set():
            try:
                await self._once(None, random.expovariate(1 / TAKEN_OVER_S))
                self._world.seen.counts["queue given up"] += 1
            except ERRORS as error:
                self._world.seen.counts[f"queue copier {type(error).__name__}"] += 1
            await asyncio.sleep(random.expovariate(1 / FENCED_S))

    async def drained(self, read: Mapping[str, set[int]]) -> bool:
        """Copy to the end of all that was read; whether it came there."""
        try:
            return await self._once(read, float("inf"))
        except ERRORS:
            return False

    async def _once(self, read: Mapping[str, set[int]] | None, for_s: float) -> bool:
        """One producer's time: until told to stop, for so long, or to the end of what was `read`."""
        loop = self._around.loop
        until = loop.time() + for_s
        named = ID if self.fences else f"{ID}-{NODE.get()}-{loop.random.getrandbits(32)}"
        version = "v1" if self._world.plan.seed % 2 else "v2"
        producer = VERSIONS[version](self._there, named, TIMEOUT_MS)
        consumer = committed(self._around)
        try:
            async with asyncio.timeout(OPERATION_S_MAX):
                await producer.start()
                # Whoever was before can write no more: only now its positions are known.
                self._positions = _newest(await _everything(self._there, TopicPartition(POSITIONS, 0)))
                await consumer.start()
            self._world.seen.counts["queue taken over"] += 1
            while loop.time() < until and (read is not None or not self._around.stopping.is_set()):
                if read is not None and self._has(read):
                    return True
                self._assign(consumer)
                await asyncio.sleep(loop.random.expovariate(1 / PAUSE_S) if read is None else 0)
                await self._copy(producer, consumer)
        finally:
            await producer.stop()
            await stopped(consumer)
        return False

    def _has(self, read: Mapping[str, set[int]]) -> bool:
        return all(self._positions.get(key, 0) > max(offsets) for key, offsets in read.items() if offsets)

    def _assign(self, consumer: Any) -> None:
        """All keys that there are by now, each from where it is to go on."""
        keys = list(self._around.keys.every)
        if len(keys) != len(consumer.assignment()):
            consumer.assign(keys)
            for key in keys:
                consumer.seek(key, self._positions.get(name(key), 0))

    async def _copy(self, producer: Producing, consumer: Any) -> None:
        async with asyncio.timeout(OPERATION_S_MAX):
            records = await consumer.getmany(timeout_ms=POLL_MS, max_records=BATCH_MAX)
        if not records:
            return
        commit = self._around.loop.random.random() > ABORTED_OF
        following = {name(key): records[key][-1].offset + 1 for key in sorted(records)}
        async with asyncio.timeout(OPERATION_S_MAX):
            await producer.begin()
            if self.positions_first:
                await self._send_positions(producer, following)
                await producer.end(commit=True)
                await producer.begin()
            for key in sorted(records):
                copies = [f"{name(key)}.{each.offset} {each.value.decode()}" for each in records[key]]
                await producer.send(TopicPartition(QUEUE, index_of(name(key))), *copies)
            if not self.positions_first:
                await self._send_positions(producer, following)
            await producer.end(commit=commit)
        if commit:
            self._positions |= following
            return
        self._world.seen.counts["queue aborted"] += 1
        for key in sorted(records):
            consumer.seek(key, records[key][0].offset)

    async def _send_positions(self, producer: Producing, following: Mapping[str, int]) -> None:
        await producer.send(TopicPartition(POSITIONS, 0), *(f"{key} {at}" for key, at in following.items()))


def _newest(records: Sequence[Any]) -> dict[str, int]:
    """By key the last position that is committed."""
    told = (each.value.decode().partition(" ") for each in records)
    return {key: int(at) for key, _, at in told}


class Quarrel:
    """Does one thing after the other to the second cluster and to who copies, and puts it right again."""

    def __init__(self, queues: Queues, around: Surroundings) -> None:
        self._queues, self._around = queues, around

    async def live(self) -> None:
        """Until told to stop."""
        queues, random = self._queues, self._around.loop.random
        world, second = queues._world, queues.second
        while not self._around.stopping.is_set():
            await asyncio.sleep(random.expovariate(1 / BETWEEN_S))
            if self._around.stopping.is_set():
                return
            kind = random.choice((*TROUBLES, *OF_COPIERS, *OF_COPIERS))
            number = random.choice((0, 1, 0, 1, 2))
            world.trace(f"quarrel {kind} {number}")
            world.seen.counts[f"quarrel {kind}"] += 1
            if kind in OF_COPIERS:
                await self._copier(kind, COPIERS[number % len(COPIERS)])
                continue
            second.trouble(kind, number, begins=True)
            await asyncio.sleep(random.uniform(*TROUBLED_S))
            second.trouble(kind, number, begins=False)
            second.restarted()

    async def _copier(self, kind: str, client: str) -> None:
        world, random = self._queues._world, self._around.loop.random
        node = next(each for each in world.clients if each.name == client)
        if kind == "kill-copier":
            world.crash_client(node)
            return
        identity = node.identity
        world.loop.pause(identity)
        await asyncio.sleep(random.uniform(1.0, 6.0))
        world.loop.resume(identity)
