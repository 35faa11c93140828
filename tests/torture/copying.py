"""What copies of a cluster are tried with: clients that remember what they were told, `floe copy`, the judge.

The last complete round of the command says which offsets the copy has. What was acknowledged below those is
to be found at its offset, once, with its timestamp, key and headers; a transaction whole or not at all.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError

from deploy.services.service import Service

TOPIC, PARTITIONS = "t", 3
STEADY = TopicPartition("steady", 0)
PLACES = [*(TopicPartition(TOPIC, each) for each in range(PARTITIONS)), STEADY]
GROUP = "g"
STOP_S_MAX = 5.0
WAIT_S_MAX = 120.0
"""For anything to happen; a machine with few processors left makes everything late."""


class Told(NamedTuple):
    """A record as its producer was told of it, or as it was read. `timestamp` in Unix ms."""

    place: TopicPartition
    offset: int
    timestamp: int
    key: bytes
    value: bytes
    headers: tuple[tuple[str, bytes], ...]


async def until(true: Callable[[], object], what: str, failing: Sequence[asyncio.Task[None]] = ()) -> None:
    """Wait; what went wrong in one of the tasks is raised here."""
    async with asyncio.timeout(WAIT_S_MAX):
        while not true():
            for each in failing:
                if each.done():
                    each.result()
                    raise AssertionError(f"a client ended before this: {what}")
            await asyncio.sleep(0.05)


async def ended(client: AIOKafkaProducer | AIOKafkaConsumer) -> None:
    """Close it, also where nobody is there any more whom it would say so to."""
    with suppress(KafkaError, TimeoutError):
        await asyncio.wait_for(client.stop(), STOP_S_MAX)


class Sender:
    """An idempotent producer of one partition: each record is acknowledged before the next."""

    def __init__(self, bootstrap: str, name: str, place: TopicPartition) -> None:
        self._producer = AIOKafkaProducer(
            bootstrap_servers=bootstrap, enable_idempotence=True, request_timeout_ms=int(WAIT_S_MAX * 1000)
        )
        self.name, self.place = name, place
        self.told: list[Told] = []

    async def start(self) -> Sender:
        await self._producer.start()
        return self

    async def stop(self) -> None:
        await ended(self._producer)

    async def send(self) -> None:
        """The next record. Raises KafkaError."""
        number = len(self.told)
        key, value = f"k-{number}".encode(), f"{self.name}-{number}".encode()
        headers = (("number", str(number).encode()),)
        one = Told(self.place, -1, 1_700_000_000_000 + number, key, value, headers)
        self.told.append(one._replace(offset=await self._sent(one)))

    async def again(self) -> int:
        """Send the last record with the sequence that it had, as after a lost answer: the offset told now."""
        self._producer._txn_manager.increment_sequence_number(self.place, -1)
        return await self._sent(self.told[-1])

    async def _sent(self, one: Told) -> int:
        done = await self._producer.send_and_wait(
            one.place.topic, one.value, one.key, one.place.partition, one.timestamp, list(one.headers)
        )
        return int(done.offset)

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            await self.send()
            await asyncio.sleep(0.01)


@dataclass
class Transactions:
    """Transactions of one record on each partition, and one that stays open."""

    bootstrap: str
    done: list[list[Told]] = field(default_factory=list)
    """Those whose commit was acknowledged."""
    open: list[Told] = field(default_factory=list)

    async def run(self) -> None:
        """Until it is cancelled."""
        number = 0
        producer = AIOKafkaProducer(bootstrap_servers=self.bootstrap, transactional_id="x")
        await producer.start()
        try:
            while True:
                await producer.begin_transaction()
                told = await self._records(producer, f"x-{number}")
                await producer.commit_transaction()
                self.done.append(told)
                number += 1
                await asyncio.sleep(0.02)
        finally:
            await ended(producer)

    async def leave_open(self) -> AIOKafkaProducer:
        """Every partition of the topic has records of it."""
        producer = AIOKafkaProducer(bootstrap_servers=self.bootstrap, transactional_id="open")
        await producer.start()
        await producer.begin_transaction()
        self.open = await self._records(producer, "open")
        return producer

    @staticmethod
    async def _records(producer: AIOKafkaProducer, name: str) -> list[Told]:
        told, sent = [], []
        for place in PLACES[:PARTITIONS]:
            value, at = f"{name}-{place.partition}".encode(), 1_600_000_000_000 + place.partition
            told.append(Told(place, -1, at, b"", value, ()))
            sent.append(await producer.send(place.topic, value, None, place.partition, at))
        found = [await each for each in sent]
        return [one._replace(offset=at.offset) for one, at in zip(told, found, strict=True)]


@dataclass
class Group:
    """A consumer in a group. By partition: what it asked to commit, and the last that was acknowledged."""

    bootstrap: str
    asked: dict[TopicPartition, set[int]] = field(default_factory=dict)
    committed: dict[TopicPartition, int] = field(default_factory=dict)

    async def run(self) -> None:
        """Until it is cancelled."""
        consumer = AIOKafkaConsumer(
            TOPIC, bootstrap_servers=self.bootstrap, group_id=GROUP, enable_auto_commit=False,
            auto_offset_reset="earliest",
        )  # fmt: skip
        await consumer.start()
        try:
            while True:
                found = await consumer.getmany(timeout_ms=200, max_records=20)
                positions = {place: records[-1].offset + 1 for place, records in found.items() if records}
                for place, offset in positions.items():
                    self.asked.setdefault(place, set()).add(offset)
                if positions:
                    await consumer.commit(positions)
                    self.committed |= positions
        finally:
            await ended(consumer)


class CopyProcess(Service):
    """`floe copy --follow` as a process of its own."""

    name = "copy"

    def __init__(self, source: Path, target: Path, urls: tuple[str, str]) -> None:
        """`source`, `target`: settings files of the two stores. `urls`: the two prefixes."""
        super().__init__()
        self._words = [
            "copy", "--from", urls[0], "--to", urls[1], "--config", str(source), "--to-config", str(target),
            "--follow", "--every", "0.2", "--keep-deleted", "2", "--output", "json",
        ]  # fmt: skip

    def command(self) -> list[str]:
        return [sys.executable, "-m", "agent", *self._words]

    def ready(self) -> bool:
        """It answers nobody."""
        return True

    def rounds(self) -> list[dict[str, Any]]:
        """All that were complete, of every process of this one."""
        lines = self.log_path.read_text(errors="replace").split("\n")[:-1]  # the last may be half written
        return [json.loads(line) for line in lines if line.startswith("{")]

    def ends(self) -> dict[TopicPartition, int]:
        """By partition: the offset up to which the copy is complete."""
        rounds = self.rounds()
        told = rounds[-1]["partitions"] if rounds else []
        return {TopicPartition(each["topic"], each["partition"]): each["end"] for each in told}


def floe(*words: str) -> subprocess.CompletedProcess[str]:
    """The command, to its end."""
    return subprocess.run(
        [sys.executable, "-m", "agent", *words], capture_output=True, text=True, timeout=300, check=False
    )


def moved(config: Path, log: str, store: Mapping[str, Any]) -> None:
    """The settings of an agent that is to start on another log and bucket, at the same addresses."""
    tree = yaml.safe_load(config.read_text())
    tree["log"]["url"], tree["store"] = log, dict(store)
    config.write_text(yaml.safe_dump(tree))


async def read(bootstrap: str, isolation: str = "read_committed") -> list[Told]:
    """Every record, and that nothing is open: both kinds of readers have the same end."""
    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap,
        isolation_level=isolation,
        enable_auto_commit=False,
        auto_offset_reset="none",  # else one that does not know its place yet goes to the end
    )
    await consumer.start()
    consumer.assign(PLACES)
    for place, begin in (await consumer.beginning_offsets(PLACES)).items():
        consumer.seek(place, begin)
    ends, found = await consumer.end_offsets(PLACES), list[Told]()
    async with asyncio.timeout(WAIT_S_MAX):
        for place in PLACES:
            while await consumer.position(place) < ends[place]:
                for which, records in (await consumer.getmany(timeout_ms=500)).items():
                    found += [
                        Told(
                            which,
                            each.offset,
                            each.timestamp,
                            each.key or b"",
                            each.value or b"",
                            each.headers,
                        )
                        for each in records
                    ]
    await consumer.stop()
    return found


async def positions(bootstrap: str) -> dict[TopicPartition, int]:
    """Of the group."""
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    found = await admin.list_consumer_group_offsets(GROUP)
    await admin.close()
    return {place: each.offset for place, each in found.items()}


def judge(
    found: Sequence[Told],
    ends: Mapping[TopicPartition, int],
    senders: Sequence[Sender],
    done: list[list[Told]],
) -> None:
    """Raises AssertionError. `ends`: of the last complete round."""
    by_value: dict[bytes, list[Told]] = {}
    for each in found:
        by_value.setdefault(each.value, []).append(each)
    doubled = [value for value, each in by_value.items() if len(each) > 1]
    assert not doubled, f"{len(doubled)} records are there twice, such as {doubled[0]!r}"
    for sender in senders:
        due = [each for each in sender.told if each.offset < ends[sender.place]]
        assert len(due) > 5, f"{sender.name}: the copy's last round has {len(due)} records, ends {ends}"
        for each in due:
            assert by_value.get(each.value) == [each], f"told {each}, read {by_value.get(each.value)}"
        mine = [each.value for each in found if each.value.startswith(f"{sender.name}-".encode())]
        numbers = [int(value.rpartition(b"-")[2]) for value in mine]
        assert numbers == list(range(len(numbers))), f"{sender.name}: with gaps or out of order"
    for records in done:
        there = [each for each in records if each.value in by_value]
        assert len(there) in (0, len(records)), f"{records}: torn"
        assert all(by_value[each.value] == [each] for each in there), f"{records}: read as {there}"
