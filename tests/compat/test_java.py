"""Java's own clients and tools (Apache Kafka 4.3.1) against a cluster: etcd, MinIO, two agents."""

from __future__ import annotations

import itertools
import json
import re
import subprocess

import pytest
from confluent_kafka import Consumer, TopicPartition

from deploy.services.kafka import tool
from objectstore.batch import peek
from tests.compat.cluster import Cluster
from tests.compat.raw import fetch_batches

pytestmark = pytest.mark.services

CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
BEFORE_ALL = "1000000000000"  # ms, the year 2001
AFTER_ALL = "4102444800000"  # ms, the year 2100
_numbers = itertools.count(1)


def run(cluster: Cluster, name: str, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """One of Kafka's tools; its exit status is the caller's to judge."""
    return tool(name, "--bootstrap-server", cluster.bootstrap, *arguments, stdin=stdin)


def ok(cluster: Cluster, name: str, *arguments: str, stdin: str = "") -> str:
    """What the tool prints; it must succeed."""
    done = run(cluster, name, *arguments, stdin=stdin)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def create(cluster: Cluster, partitions: int, *arguments: str) -> str:
    """A fresh topic, made by kafka-topics."""
    topic = f"java-{next(_numbers)}"
    said = ok(cluster, "topics", "--create", "--topic", topic, "--partitions", str(partitions), *arguments)
    assert f"Created topic {topic}." in said
    return topic


def values(cluster: Cluster, topic: str, partitions: int, count: int) -> list[list[bytes]]:
    """The values of each partition in the order of offsets, read by librdkafka; offsets are dense."""
    settings = {"bootstrap.servers": cluster.bootstrap, "group.id": "unused", "check.crcs": True}
    consumer = Consumer({**settings, "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, index, 0) for index in range(partitions)])
    found: list[list[bytes]] = [[] for _ in range(partitions)]
    while sum(map(len, found)) < count:
        messages = consumer.consume(count, 15)
        assert messages, f"only {sum(map(len, found))} of {count} records came"
        for message in messages:
            assert message.error() is None, message.error()
            part = found[message.partition()]
            assert message.offset() == len(part)
            part.append(message.value())
    consumer.close()
    return found


def offsets(cluster: Cluster, topic: str, *arguments: str) -> dict[int, int]:
    """What kafka-get-offsets prints: partition → offset."""
    said = ok(cluster, "get-offsets", "--topic", topic, *arguments)
    rows = [line.rsplit(":", 2) for line in said.splitlines()]
    assert all(name == topic for name, _, _ in rows), said
    return {int(partition): int(offset) for _, partition, offset in rows}


def test_topics_are_created_listed_described_grown_and_deleted(cluster: Cluster) -> None:
    topic = create(cluster, 3, "--config", "retention.ms=60000", "--replication-factor", "1")
    assert topic in ok(cluster, "topics", "--list").split()
    described = ok(cluster, "topics", "--describe", "--topic", topic)
    assert "PartitionCount: 3\tReplicationFactor: 1\tConfigs: retention.ms=60000" in described
    leaders = re.findall(r"Partition: (\d)\tLeader: (\d)\tReplicas: (\d)\tIsr: (\d)", described)
    assert [row[0] for row in leaders] == ["0", "1", "2"]
    assert all(row[1] == row[2] == row[3] for row in leaders)
    ok(cluster, "topics", "--alter", "--topic", topic, "--partitions", "5")
    assert "PartitionCount: 5" in ok(cluster, "topics", "--describe", "--topic", topic)
    ok(cluster, "topics", "--delete", "--topic", topic)
    assert topic not in ok(cluster, "topics", "--list").split()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--create", "--topic", "{known}"), "topic '{known}' exists"),
        (("--create", "--topic", "no/slash"), "no/slash"),
        (("--create", "--topic", "none-of-it", "--config", "no.such.config=1"), "no.such.config"),
        (("--alter", "--topic", "{known}", "--partitions", "1"), "1"),
        (("--delete", "--topic", "not-there"), "not-there"),
        (("--describe", "--topic", "not-there"), "not-there"),
    ],
)
def test_what_kafka_topics_refuses_is_said(cluster: Cluster, arguments: tuple[str, ...], said: str) -> None:
    known = create(cluster, 2)
    done = run(cluster, "topics", *(each.format(known=known) for each in arguments))
    assert done.returncode == 1
    assert said.format(known=known) in done.stdout + done.stderr


def test_configs_of_topics_are_described_altered_and_deleted(cluster: Cluster) -> None:
    topic = create(cluster, 1, "--config", "retention.ms=60000")
    entity = ("--entity-type", "topics", "--entity-name", topic)
    described = ok(cluster, "configs", *entity, "--describe")
    assert "retention.ms=60000" in described
    assert "synonyms={DYNAMIC_TOPIC_CONFIG:retention.ms=60000}" in described
    changes = ("--add-config", "max.message.bytes=2000,cleanup.policy=[compact,delete]")
    ok(cluster, "configs", *entity, "--alter", *changes, "--delete-config", "retention.ms")
    described = ok(cluster, "configs", *entity, "--describe")
    assert "max.message.bytes=2000" in described
    assert "cleanup.policy=compact,delete" in described
    assert "retention.ms" not in described
    every = ok(cluster, "configs", *entity, "--describe", "--all")
    assert "  retention.ms=604800000 " in every
    bad = run(cluster, "configs", *entity, "--alter", "--add-config", "retention.ms=soon")
    assert bad.returncode == 1
    assert "InvalidConfigurationException" in bad.stderr
    assert "retention.ms" in bad.stderr


def test_configs_of_brokers_are_described(cluster: Cluster) -> None:
    said = ok(cluster, "configs", "--entity-type", "brokers", "--describe", "--all")
    for node in (1, 2):
        assert f"All configs for broker {node} are:" in said
    assert "log.retention.hours=168" in said
    assert "message.max.bytes=1048588" in said


@pytest.mark.parametrize(
    ("acks", "codec"),
    [("0", "none"), ("1", "gzip"), ("all", "none"), ("all", "snappy"), ("all", "lz4"), ("all", "zstd")],
)
async def test_the_perf_producers_records_all_arrive(cluster: Cluster, acks: str, codec: str) -> None:
    """Idempotence is on with acks=all, the producer's default."""
    topic, count = create(cluster, 3), 2000
    settings = ("--command-property", f"acks={acks}", f"compression.type={codec}")
    load = ("--num-records", str(count), "--payload-monotonic", "--throughput", "-1")
    said = ok(cluster, "producer-perf-test", "--topic", topic, *load, *settings)
    assert f"{count} records sent" in said
    found = values(cluster, topic, 3, count)
    assert sorted(int(value) for part in found for value in part) == list(range(count))
    for part in found:
        assert part == sorted(part, key=int), "a partition keeps the producer's order"
    assert sum(offsets(cluster, topic).values()) == count
    batches = [batch for index in range(3) for batch in await fetch_batches(cluster.bootstrap, topic, index)]
    assert {peek(batch).attributes & 7 for batch in batches} == {CODECS[codec]}
    assert {peek(batch).producer_id >= 0 for batch in batches} == {acks == "all"}


def test_the_console_writes_and_reads_one_partition(cluster: Cluster) -> None:
    topic = create(cluster, 1)
    reader = ("--reader-property", "parse.key=true", "--reader-property", "key.separator=:")
    null = ("--reader-property", "null.marker=NULL", "--reader-property", "parse.headers=true")
    lines = "h:1,g:x\ta:erste Zeile\nh:2\tb:zweite für alle\nh:3\tc:NULL\n"
    ok(cluster, "console-producer", "--topic", topic, *reader, *null, stdin=lines)
    show = [f"print.{each}=true" for each in ("key", "headers", "offset")]
    wanted = ("--partition", "0", "--offset", "earliest", "--max-messages", "3", "--timeout-ms", "20000")
    properties = [part for each in show for part in ("--formatter-property", each)]
    said = ok(cluster, "console-consumer", "--topic", topic, *wanted, *properties)
    assert said.splitlines() == [
        "Offset:0\th:1,g:x\ta\terste Zeile",
        "Offset:1\th:2\tb\tzweite für alle",
        "Offset:2\th:3\tc\tnull",
    ]
    middle = ("--partition", "0", "--offset", "1", "--max-messages", "1", "--timeout-ms", "20000")
    assert ok(cluster, "console-consumer", "--topic", topic, *middle) == "zweite für alle\n"


def test_offsets_latest_earliest_by_time_and_newest(cluster: Cluster) -> None:
    topic = create(cluster, 3)
    said = ok(
        cluster, "verifiable-producer", "--topic", topic, "--max-messages", "9", "--repeating-keys", "5"
    )
    assert '"sent":9,"acked":9' in said
    rows = [json.loads(line) for line in said.splitlines()]
    sent = [row for row in rows if row["name"] == "producer_send_success"]
    held = {index: [row for row in sent if row["partition"] == index] for index in range(3)}
    filled = {index: rows for index, rows in held.items() if rows}
    ends = {index: len(rows) for index, rows in held.items()}
    assert offsets(cluster, topic) == offsets(cluster, topic, "--time", "latest") == ends
    assert offsets(cluster, topic, "--time", "earliest") == {0: 0, 1: 0, 2: 0}
    assert offsets(cluster, topic, "--time", BEFORE_ALL) == dict.fromkeys(filled, 0)
    # Where nothing matches, the tool leaves the partition out.
    assert offsets(cluster, topic, "--time", AFTER_ALL) == {}
    newest = offsets(cluster, topic, "--time", "max-timestamp")
    assert newest.keys() == filled.keys()
    assert all(0 <= offset < ends[index] for index, offset in newest.items())


def test_log_dirs_count_every_partition_once(cluster: Cluster) -> None:
    topic = create(cluster, 4)
    ok(cluster, "verifiable-producer", "--topic", topic, "--max-messages", "40", "--repeating-keys", "20")
    said = ok(cluster, "log-dirs", "--describe", "--topic-list", topic)
    report = json.loads(said.splitlines()[-1])
    partitions = [p for b in report["brokers"] for d in b["logDirs"] for p in d["partitions"]]
    assert sorted(each["partition"] for each in partitions) == [f"{topic}-{index}" for index in range(4)]
    assert [d["error"] for b in report["brokers"] for d in b["logDirs"]] == [None] * len(cluster.agents)
    assert sum(each["size"] for each in partitions) > 40


def test_a_verifiable_producer_names_the_offset_of_every_record(cluster: Cluster) -> None:
    topic = create(cluster, 2)
    said = ok(cluster, "verifiable-producer", "--topic", topic, "--max-messages", "500", "--throughput", "-1")
    rows = [json.loads(line) for line in said.splitlines()]
    acknowledged = {
        (row["partition"], row["offset"]): row["value"].encode()
        for row in rows
        if row["name"] == "producer_send_success"
    }
    found = values(cluster, topic, 2, 500)
    assert acknowledged == {
        (index, offset): value for index, part in enumerate(found) for offset, value in enumerate(part)
    }
