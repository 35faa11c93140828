"""Clients of zones against six agents in three: who leads, who serves, and what is read from the bucket."""

from __future__ import annotations

import asyncio
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest
from aiokafka import AIOKafkaConsumer
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from deploy.services.floe import FloeAgent
from deploy.services.kafka import tool
from deploy.setup.kcat import kcat_command
from tests.compat.suite.node import drive
from tests.equipment.zoned import Zoned, bucket_reads, reads, status

pytestmark = [pytest.mark.services, pytest.mark.timeout(300)]

ZONES = ("a", "a", "b", "b", "c", "c")
PARTITIONS = 12
KAFKAJS_RETRY = {"initialRetryTime": 100, "maxRetryTime": 1000}  # as docs/zones.md advises
QUICK = {"fetch.wait.max.ms": 100, "fetch.error.backoff.ms": 50}


@pytest.fixture(scope="module")
def zoned() -> Iterator[Zoned]:
    # Patience: on a machine that is busy with other tests a hedge would be a second read.
    with Zoned(ZONES, settings={"peers": {"hedge_ms": 10_000, "timeout_ms": 20_000}}) as cluster:
        yield cluster


@pytest.fixture
def topic(zoned: Zoned, request: pytest.FixtureRequest) -> str:
    name = request.node.name.replace("[", "-").strip("]")[:80]
    admin = AdminClient({"bootstrap.servers": zoned.bootstrap})
    admin.create_topics([NewTopic(name, PARTITIONS, 1)])[name].result(30)
    return name


def zones_of(zoned: Zoned) -> dict[int, str]:
    return {status(agent)["node_id"]: zone for agent, zone in zip(zoned.agents, zoned.zones, strict=True)}


def produce(zoned: Zoned, topic: str, zone: str, rounds: int) -> None:
    """One record per partition and round, each round a chunk or two of that zone's agents."""
    settings = {"bootstrap.servers": zoned.bootstrap, "client.id": f"app,floe_zone={zone}", "linger.ms": 5}
    producer = Producer(settings)
    for number in range(rounds):
        for partition in range(PARTITIONS):
            producer.produce(topic, b"%s-%d" % (zone.encode(), number), partition=partition)
        assert producer.flush(180) == 0


def consumer(zoned: Zoned, topic: str, partitions: range, **settings: object) -> Consumer:
    made = Consumer(
        {
            "bootstrap.servers": zoned.bootstrap,
            "group.id": "g",
            "enable.auto.commit": False,
            **QUICK,
            **settings,
        }
    )
    made.assign([TopicPartition(topic, partition, 0) for partition in partitions])
    return made


def read(made: Consumer, count: int) -> int:
    seen, deadline = 0, time.monotonic() + 60
    while seen < count and time.monotonic() < deadline:
        for message in made.consume(1000, 0.2):
            assert message.error() is None, message.error()
            seen += 1
    return seen


def test_metadata_names_leaders_in_the_clients_zone_and_replicas_in_all(zoned: Zoned, topic: str) -> None:
    zones = zones_of(zoned)
    for zone in "abc":
        settings = {"bootstrap.servers": zoned.bootstrap, "client.id": f"x,floe_zone={zone}"}
        described = AdminClient(settings).list_topics(topic, timeout=30).topics[topic].partitions
        assert {zones[part.leader] for part in described.values()} == {zone}
        for part in described.values():
            assert sorted(zones[node] for node in part.replicas) == ["a", "b", "c"]
            assert sorted(part.replicas) == sorted(part.isrs)
    anywhere = AdminClient({"bootstrap.servers": zoned.bootstrap}).list_topics(topic, timeout=30)
    assert len({zones[p.leader] for p in anywhere.topics[topic].partitions.values()}) > 1


def test_kafkas_tools_understand_the_replicas(zoned: Zoned, topic: str) -> None:
    done = tool("topics", "--bootstrap-server", zoned.bootstrap, "--describe", "--topic", topic)
    assert f"PartitionCount: {PARTITIONS}\tReplicationFactor: 3" in done.stdout, done.stdout + done.stderr
    for which in ("--under-replicated-partitions", "--unavailable-partitions", "--under-min-isr-partitions"):
        done = tool("topics", "--bootstrap-server", zoned.bootstrap, "--describe", "--topic", topic, which)
        assert (done.returncode, done.stdout.strip()) == (0, ""), which


def sent(agents: list[FloeAgent]) -> float:
    return sum(reads(agent)["fetched"] for agent in agents)


def test_a_consumer_with_a_rack_reads_in_its_zone(zoned: Zoned, topic: str) -> None:
    """KIP-392: Metadata carries no rack, the first agent asked names the preferred read replica."""
    produce(zoned, topic, "a", 20)
    before = {zone: sent(zoned.of_zone(zone)) for zone in "abc"}
    with closing(consumer(zoned, topic, range(PARTITIONS), **{"client.rack": "b"})) as reader:
        assert read(reader, 20 * PARTITIONS) == 20 * PARTITIONS
    got = {zone: sent(zoned.of_zone(zone)) - before[zone] for zone in "abc"}
    assert got["b"] > 0
    assert got["a"] == got["c"] == 0, "nobody outside its zone sent it records"


def test_javas_consumer_with_a_rack_reads_in_its_zone(zoned: Zoned, topic: str) -> None:
    produce(zoned, topic, "a", 20)
    before = {zone: sent(zoned.of_zone(zone)) for zone in "abc"}
    done = tool(
        "console-consumer",
        *("--bootstrap-server", zoned.bootstrap, "--topic", topic, "--from-beginning"),
        *("--max-messages", str(20 * PARTITIONS), "--timeout-ms", "60000"),
        *("--command-property", "client.rack=c", "--command-property", "group.id=java-racks"),
    )
    assert len(done.stdout.splitlines()) == 20 * PARTITIONS, done.stderr
    got = {zone: sent(zoned.of_zone(zone)) - before[zone] for zone in "abc"}
    assert got["c"] > 0
    assert got["a"] == got["b"] == 0


def kcat(bootstrap: str, topic: str, rack: str, count: int) -> int:
    settings = ("-X", f"client.rack={rack}", "-X", "fetch.wait.max.ms=100")
    what = ("-C", "-t", topic, "-o", "beginning", "-c", str(count), "-q")
    command = [*kcat_command(), "-b", bootstrap, *what, *settings]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=90)
    assert done.returncode == 0, done.stderr
    return len(done.stdout.splitlines())


def kafkajs(bootstrap: str, topic: str, rack: str, count: int) -> int:
    options = {"topic": topic, "rack": rack, "count": count, "group": f"kafkajs-{rack}-{topic}"}
    return len(drive("kafkajs", "consume", bootstrap, **options))


def kafkajs_by_id(bootstrap: str, topic: str, zone: str, count: int) -> int:
    options: dict[str, object] = {"topic": topic, "count": count, "group": f"by-id-{topic}"}
    options |= {"clientId": f"app,floe_zone={zone}", "retry": KAFKAJS_RETRY}
    seen = drive("kafkajs", "consume", bootstrap, **options)
    # At least once: it joins again on the way.
    return len({(each["partition"], each["offset"]) for each in seen})


def aiokafka(bootstrap: str, topic: str, rack: str, count: int) -> int:
    async def run() -> int:
        settings = {"bootstrap_servers": bootstrap, "client_rack": rack}
        reader = AIOKafkaConsumer(topic, auto_offset_reset="earliest", **settings)
        await reader.start()
        try:
            async with asyncio.timeout(90):
                for _ in range(count):
                    await reader.getone()
        finally:
            await reader.stop()
        return count

    return asyncio.run(run())


def rdkafka(bootstrap: str, topic: str, rack: str, count: int) -> int:
    base = {
        "bootstrap.servers": bootstrap,
        "group.id": f"rdkafka-{rack}-{topic}",
        "auto.offset.reset": "earliest",
    }
    with closing(Consumer({**base, **QUICK, "client.rack": rack})) as reader:
        reader.subscribe([topic])
        return read(reader, count)


CLIENTS = (kcat, kafkajs, aiokafka, rdkafka)


@pytest.mark.parametrize("client", CLIENTS)
def test_being_sent_elsewhere_never_fails_or_loops(
    zoned: Zoned, topic: str, client: Callable[[str, str, str, int], int]
) -> None:
    """It reads everything, from its own zone, and from anywhere when no agent is in its zone."""
    produce(zoned, topic, "a", 10)
    before = {zone: sent(zoned.of_zone(zone)) for zone in "abc"}
    assert client(zoned.bootstrap, topic, "b", 10 * PARTITIONS) == 10 * PARTITIONS
    got = {zone: sent(zoned.of_zone(zone)) - before[zone] for zone in "abc"}
    assert got["b"] > 0
    assert got["a"] == got["c"] == 0
    assert client(zoned.bootstrap, topic, "no-such-zone", 10 * PARTITIONS) == 10 * PARTITIONS


@pytest.mark.parametrize("client", [kcat, kafkajs_by_id, aiokafka, rdkafka])
def test_a_consumer_reads_on_while_an_agent_of_its_zone_restarts(
    zoned: Zoned, topic: str, client: Callable[[str, str, str, int], int]
) -> None:
    """The agent says NOT_LEADER_OR_FOLLOWER, leaves, and comes back; no client gives up or reads in circles.

    KafkaJS with a rack does, until the agent is back: it keeps to a read replica that Metadata names no more,
    with any broker (docs/zones.md).
    """
    agent, _ = zoned.of_zone("b")
    before = reads(agent)["fetched"]
    produce(zoned, topic, "a", 5)
    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(client, zoned.bootstrap, topic, "b", 15 * PARTITIONS)
        deadline = time.monotonic() + 60
        while reads(agent)["fetched"] == before:
            assert time.monotonic() < deadline, "it does not read there"
            assert not reading.done(), reading.exception()
            time.sleep(0.05)
        agent.terminate()
        produce(zoned, topic, "a", 5)
        agent.start()
        produce(zoned, topic, "a", 5)
        assert reading.result(170) == 15 * PARTITIONS
    zoned.settle()


def test_each_chunk_is_read_from_the_bucket_at_most_once_per_zone_that_did_not_write_it(
    zoned: Zoned, topic: str
) -> None:
    """12 consumers, 4 in each zone, each with 3 partitions, at the tail; producers in every zone."""
    readers = [
        consumer(
            zoned,
            topic,
            range(3 * share, 3 * share + 3),
            **{"client.rack": zone, "client.id": f"r,floe_zone={zone}"},
        )
        for zone in "abc"
        for share in range(4)
    ]
    before = [reads(agent) for agent in zoned.agents]
    for number in range(10):
        for zone in "abc":
            produce(zoned, topic, zone, 1)
        for reader in readers:
            assert read(reader, 9) == 9, number
    for reader in readers:
        reader.close()
    after = [reads(agent) for agent in zoned.agents]
    chunks = dict.fromkeys("abc", 0.0)
    gets = dict.fromkeys("abc", 0.0)
    for zone, old, new in zip(zoned.zones, before, after, strict=True):
        chunks[zone] += new["chunks"] - old["chunks"]
        gets[zone] += bucket_reads(new) - bucket_reads(old)
    for zone in "abc":
        assert 0 < gets[zone] <= sum(chunks.values()) - chunks[zone], (zone, gets, chunks, before, after)


@pytest.fixture(scope="module")
def split() -> Iterator[Zoned]:
    """One agent to write to, one to read from, one for neither."""
    with Zoned(("", "", ""), roles=("produce", "fetch", "background")) as cluster:
        yield cluster


@pytest.mark.parametrize("client", CLIENTS)
def test_agents_for_one_thing_each_serve_every_client(
    split: Zoned, client: Callable[[str, str, str, int], int]
) -> None:
    """Metadata's leader is for producing: consumers begin there and are sent on.

    aiokafka follows only with a rack of its own: it is served where it is.
    """
    name = f"roles-{client.__name__}"
    admin = AdminClient({"bootstrap.servers": split.bootstrap})
    admin.create_topics([NewTopic(name, PARTITIONS, 1)])[name].result(30)
    before = [reads(agent) for agent in split.agents]
    produce(split, name, "", 10)
    assert client(split.bootstrap, name, "", 10 * PARTITIONS) == 10 * PARTITIONS
    wrote, fetched = (
        [reads(agent)[kind] - old[kind] for agent, old in zip(split.agents, before, strict=True)]
        for kind in ("produced", "fetched")
    )
    assert wrote[0] > 0, "the leaders are all at the agent for producing"
    assert wrote[1] == wrote[2] == 0
    place = 0 if client is aiokafka else 1
    assert fetched[place] > 0
    assert sum(fetched) == fetched[place]
