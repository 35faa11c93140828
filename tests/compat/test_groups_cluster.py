"""Real clients whose group coordinator is killed: nobody rebalances, nothing is read twice or left out."""

from __future__ import annotations

import asyncio
import itertools
import json
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from deploy.services import Etcd, Minio
from deploy.services.floe import FloeAgent
from deploy.services.kafka import TOOLS, java_command
from tests.compat.cluster import Cluster, status
from tests.compat.raw import set_broker_config
from tests.equipment.group_members import Crowd, coordinator_of

pytestmark = pytest.mark.services

PARTITIONS, BEFORE, AFTER = 4, 400, 400
SETTINGS = {  # so that tests wait less: members come often, and nobody waits for more of them
    "group.initial.rebalance.delay.ms": "500",
    "group.consumer.min.heartbeat.interval.ms": "500",
    "group.consumer.heartbeat.interval.ms": "500",
}
RDKAFKA: dict[str, dict[str, Any]] = {
    "classic": {
        "session.timeout.ms": 20_000,
        "heartbeat.interval.ms": 300,
        "partition.assignment.strategy": "cooperative-sticky",
    },
    "consumer": {"group.protocol": "consumer"},
}
JAVA: dict[str, tuple[str, ...]] = {
    "classic": ("--session-timeout", "20000"),
    "consumer": ("--group-protocol", "consumer"),
}
TTL_S = 6
WAIT_S_MAX = 90.0
_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def failing(etcd: Etcd, minio: Minio, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two agents that may be killed; who is killed is started again by its test."""
    folder = tmp_path_factory.mktemp("failing")
    with Cluster(etcd, minio, directory=folder, lease_ttl_s=TTL_S) as running:
        for name, value in SETTINGS.items():
            assert asyncio.run(set_broker_config(running.agents[0].bootstrap, name, value)) == 0
        yield running


def fresh_topic(cluster: Cluster) -> str:
    """A topic of the test's own."""
    name = f"groups-{next(_numbers)}"
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic(name, PARTITIONS)])[name].result(20)
    return name


def fill(cluster: Cluster, topic: str, first: int, count: int) -> None:
    """Numbered records, over all partitions."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True})
    for number in range(first, first + count):
        producer.produce(topic, str(number).encode(), partition=number % PARTITIONS)
    assert producer.flush(180) == 0


def coordinating(cluster: Cluster, group: str) -> FloeAgent:
    """The agent that coordinates the group now."""
    found = asyncio.run(coordinator_of(cluster.bootstrap.split(","), group))
    return next(agent for agent in cluster.agents if agent.bootstrap == found)


def brokers(cluster: Cluster) -> int:
    """How many agents the first one that answers knows."""
    for agent in cluster.agents:
        try:
            return int(status(agent)["replica"]["brokers"])
        except OSError:
            continue
    return 0


def described(cluster: Cluster, group: str) -> tuple[str, int]:
    """State and number of members of the group."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    found = admin.describe_consumer_groups([group], request_timeout=20)[group].result(30)
    return found.state.name, len(found.members)


class Reader:
    """A librdkafka consumer that commits what it has read, and counts its assignments."""

    def __init__(self, cluster: Cluster, group: str, topic: str, **more: Any) -> None:
        self.assignments = 0
        self.seen: list[int] = []
        self.consumer = Consumer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                **more,
            }
        )
        self.consumer.subscribe([topic], on_assign=self._assigned)

    def _assigned(self, *_: object) -> None:
        self.assignments += 1

    def read(self) -> None:
        """One round: read, then commit."""
        for message in self.consumer.consume(50, 0.2):
            if message.error() is None:
                self.seen.append(int(message.value()))
        if self.seen:
            self._commit()

    def _commit(self) -> None:
        try:
            self.consumer.commit(asynchronous=False)
        except KafkaException as error:
            if not error.args[0].retriable() and error.args[0].name() not in ("_NO_OFFSET", "_WAIT_COORD"):
                raise


def drain(readers: list[Reader], until: int) -> list[int]:
    """Read until so many records came in all."""
    end = time.monotonic() + WAIT_S_MAX
    while sum(len(reader.seen) for reader in readers) < until:
        assert time.monotonic() < end, Counter(len(reader.seen) for reader in readers)
        for reader in readers:
            reader.read()
    return [number for reader in readers for number in reader.seen]


@pytest.mark.parametrize("protocol", RDKAFKA)
def test_librdkafka_carries_on_when_its_coordinator_is_killed(failing: Cluster, protocol: str) -> None:
    wait(lambda: brokers(failing) == 2, "both agents are back")
    topic, group = fresh_topic(failing), f"rd-{next(_numbers)}"
    fill(failing, topic, 0, BEFORE)
    readers = [Reader(failing, group, topic, **RDKAFKA[protocol]) for _ in range(2)]
    drain(readers, BEFORE)
    deadline = time.monotonic() + WAIT_S_MAX
    while described(failing, group) != ("STABLE", 2):
        assert time.monotonic() < deadline
        drain(readers, BEFORE)
        for reader in readers:
            reader.read()
    for reader in readers:
        reader.seen.clear()
    assignments = [reader.assignments for reader in readers]
    victim = coordinating(failing, group)
    victim.kill()
    try:
        fill(failing, topic, BEFORE, AFTER)
        seen = drain(readers, AFTER)
        for reader in readers:
            reader.read()
        assert sorted(seen) == list(range(BEFORE, BEFORE + AFTER)), "read once, all of it"
        assert [reader.assignments for reader in readers] == assignments, "nobody had to rebalance"
        assert described(failing, group) == ("STABLE", 2)
        committed = readers[0].consumer.committed(_all(topic), timeout=30)
        assert [each.offset for each in committed] == [(BEFORE + AFTER) // PARTITIONS] * PARTITIONS
    finally:
        victim.start()
        for reader in readers:
            reader.consumer.close()


def _all(topic: str) -> list[Any]:
    return [TopicPartition(topic, number) for number in range(PARTITIONS)]


async def test_raw_members_keep_their_generation(failing: Cluster) -> None:
    """What the protocol allows: the same member ids, the same generation, positions and commits as before."""
    await asyncio.to_thread(wait, lambda: brokers(failing) == 2, "both agents are back")
    topic, group = fresh_topic(failing), f"raw-{next(_numbers)}"
    crowd = Crowd(failing.bootstrap, group, {topic: PARTITIONS}, session_ms=20_000)
    members = [crowd.add() for _ in range(3)]
    try:
        await crowd.settled()
        before = [(member.member_id, member.generation, member.joins) for member in members]
        number = members[0].assignment[0]
        assert await members[0].commit({number: 7}) == 0
        where = await coordinator_of(failing.bootstrap.split(","), group)
        victim = next(agent for agent in failing.agents if agent.bootstrap == where)
        await asyncio.to_thread(victim.kill)
        try:
            async with asyncio.timeout(WAIT_S_MAX):
                offset = 7
                while offset == 7:
                    try:
                        offset += await members[0].commit({number: 8}) == 0
                    except (OSError, asyncio.IncompleteReadError):
                        await members[0].reconnect()
                    await asyncio.sleep(0.05)
            assert await members[0].committed() == {number: 8}
            after = [(member.member_id, member.generation, member.joins) for member in members]
            assert after == before
            assert crowd.shared()
            assert not any(member.refused for member in members)
        finally:
            await asyncio.to_thread(victim.start)
    finally:
        await crowd.stop()


class JavaMember:
    """Kafka's VerifiableConsumer: tells its assignments, what it reads and what it commits, as JSON lines."""

    def __init__(self, cluster: Cluster, group: str, topic: str, folder: Path, *more: str) -> None:
        self.log = folder / f"{group}-{next(_numbers)}.log"
        command = java_command(
            TOOLS["verifiable-consumer"],
            "--bootstrap-server", cluster.bootstrap, "--group-id", group, "--topic", topic,
            "--reset-policy", "earliest", "--verbose", *more,
        )  # fmt: skip
        with self.log.open("wb") as out:
            self.process = subprocess.Popen(command, stdout=out, stderr=subprocess.DEVNULL)

    def events(self, *names: str) -> list[dict[str, Any]]:
        """The events of these names so far, in order."""
        lines = (line for line in self.log.read_text().splitlines() if line.startswith("{"))
        found = []
        for line in lines:
            try:
                event = json.loads(line)
            except ValueError:
                continue  # half written
            if event["name"] in names:
                found.append(event)
        return found

    def owned(self) -> set[int]:
        """The partitions that it has now; in the consumer protocol it is told only of what changes."""
        held: set[int] = set()
        for event in self.events("partitions_assigned", "partitions_revoked"):
            numbers = {each["partition"] for each in event["partitions"]}
            held = held | numbers if event["name"] == "partitions_assigned" else held - numbers
        return held

    def stop(self) -> None:
        """End it."""
        self.process.terminate()
        self.process.wait(30)


def wait(true: Any, why: str) -> None:
    """Wait for something that must come."""
    end = time.monotonic() + WAIT_S_MAX
    while not true():
        assert time.monotonic() < end, why
        time.sleep(0.1)


@pytest.mark.parametrize("protocol", JAVA)
def test_java_carries_on_when_its_coordinator_is_killed(
    failing: Cluster, protocol: str, tmp_path: Path
) -> None:
    topic, group = fresh_topic(failing), f"java-{next(_numbers)}"
    wait(lambda: brokers(failing) == 2, "both agents are back")
    fill(failing, topic, 0, BEFORE)
    members = [JavaMember(failing, group, topic, tmp_path, *JAVA[protocol]) for _ in range(2)]
    try:
        _java_story(failing, topic, group, members)
    finally:
        for member in members:
            member.stop()


def _java_story(failing: Cluster, topic: str, group: str, members: list[JavaMember]) -> None:
    def read() -> list[tuple[int, int]]:
        return [(event["partition"], event["offset"]) for m in members for event in m.events("record_data")]

    wait(lambda: len(set(read())) == BEFORE, "everything is read")
    wait(lambda: [len(m.owned()) for m in members] == [PARTITIONS // 2] * 2, "both have a share")
    moves = [len(m.events("partitions_assigned", "partitions_revoked")) for m in members]
    victim = coordinating(failing, group)
    victim.kill()
    try:
        before = len(read())
        fill(failing, topic, BEFORE, AFTER)
        wait(lambda: len(set(read())) == BEFORE + AFTER, "everything is read after the kill")
        assert len(read()) == before + AFTER, "nothing is read twice"
        after = [len(m.events("partitions_assigned", "partitions_revoked")) for m in members]
        assert after == moves, "nobody had to rebalance"
        admin = AdminClient({"bootstrap.servers": failing.bootstrap})
        ends = [(BEFORE + AFTER) // PARTITIONS] * PARTITIONS

        def committed() -> list[int]:
            asked = [ConsumerGroupTopicPartitions(group, _all(topic))]
            found = admin.list_consumer_group_offsets(asked)[group].result(30)
            return [each.offset for each in found.topic_partitions]

        wait(lambda: committed() == ends, "and committed")
    finally:
        victim.start()
