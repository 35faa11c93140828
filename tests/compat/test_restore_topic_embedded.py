"""`floe restore topic`: a topic as it was at a point, committed by then, whenever the command dies."""

from __future__ import annotations

import itertools
import json
import signal
import subprocess
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from tests.compat.conftest import Embedded
from tests.unit.agent.cli.conftest import CLEAN, ROOT, inside

PARTITIONS = 2
FIRST_MS = 1_700_000_000_000
KEPT_CONFIGS = {"retention.ms": "123456789012", "compression.type": "zstd", "floe.table.enabled": "false"}
_numbers = itertools.count(1)
KILLED = """
import os, signal, sys
from agent.cli import main
from agent.cli.restoring import writing

writing.BATCH_BYTES, left, write = 100, [3], writing.Writer.flush

async def flush(self):
    await write(self)
    left[0] -= 1
    if not left[0]:
        os.kill(os.getpid(), signal.SIGKILL)

writing.Writer.flush = flush
main(sys.argv[1:])
"""

Seen = tuple[Any, ...]
"""Partition, key, value, headers, timestamp."""


class Story(NamedTuple):
    """A topic: an aborted transaction, one that ends behind the cut, and what had committed below it."""

    topic: str
    cuts: dict[int, int]
    then: list[Seen]
    whole: list[Seen]

    @property
    def at(self) -> str:
        """The cut as the command is told."""
        return ",".join(f"{partition}:{offset}" for partition, offset in self.cuts.items())


def floe(agent: Embedded, *words: str, status: int = 0) -> str:
    """A command that asks this agent; what it prints."""
    ran = inside(*words, FLOE_BOOTSTRAP=agent.bootstrap, FLOE_HTTP=agent.http)
    assert ran.status == status, (ran.out, ran.err)
    return ran.out or ran.err


def restored(agent: Embedded, topic: str, new: str, *more: str, status: int = 0) -> Any:
    """What the command says, as JSON."""
    return json.loads(floe(agent, "restore", "topic", topic, "--as", new, *more, "-o", "json", status=status))


def read(agent: Embedded, topic: str) -> list[Seen]:
    """All that committed readers get, by partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": agent.bootstrap,
            "group.id": "g",
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
        }
    )
    consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
    found: list[Seen] = []
    ended: set[int] = set()
    while len(ended) < PARTITIONS:
        (message,) = consumer.consume(1, 60)
        error, partition = message.error(), message.partition()
        assert partition is not None
        if error is None:
            headers = tuple(message.headers() or ())
            stamp = message.timestamp()[1]
            found.append((partition, message.key(), message.value(), headers, stamp))
        else:
            assert error.code() == KafkaError._PARTITION_EOF, error
            ended.add(partition)
    consumer.close()
    return sorted(found, key=lambda each: each[0])


def end_of(agent: Embedded, topic: str) -> dict[int, int]:
    """Where the topic's partitions end, whatever is open."""
    consumer = Consumer(
        {"bootstrap.servers": agent.bootstrap, "group.id": "g", "isolation.level": "read_uncommitted"}
    )
    ends = {n: consumer.get_watermark_offsets(TopicPartition(topic, n), 60)[1] for n in range(PARTITIONS)}
    consumer.close()
    return ends


def write(producer: Producer, topic: str, numbers: Sequence[int]) -> None:
    """Records of these numbers, by turns to the partitions: tombstones, keys of none, headers among them."""
    for number in numbers:
        producer.produce(
            topic,
            None if number % 7 == 3 else b"value %d" % number,
            key=None if number % 7 == 5 else b"key %d" % number,
            partition=number % PARTITIONS,
            timestamp=FIRST_MS + number,
            headers=[("n", b"%d" % number), ("none", None)] if number % 3 == 0 else [],
        )
    assert producer.flush(180) == 0


def transactional(agent: Embedded, name: str) -> Producer:
    producer = Producer({"bootstrap.servers": agent.bootstrap, "transactional.id": name})
    producer.init_transactions(60)
    producer.begin_transaction()
    return producer


@pytest.fixture
def story(embedded: Embedded) -> Story:
    topic = f"restored-{next(_numbers)}"
    configs = [word for name, value in KEPT_CONFIGS.items() for word in ("--config", f"{name}={value}")]
    floe(embedded, "topic", "create", topic, "--partitions", str(PARTITIONS), *configs)
    plain = Producer({"bootstrap.servers": embedded.bootstrap, "compression.type": "zstd"})
    write(plain, topic, range(20))
    done, gone = transactional(embedded, f"{topic}-a"), transactional(embedded, f"{topic}-b")
    late = transactional(embedded, f"{topic}-c")
    write(done, topic, range(20, 30))
    write(gone, topic, range(30, 40))
    write(late, topic, range(40, 50))
    gone.abort_transaction(60)
    done.commit_transaction(60)
    write(plain, topic, range(50, 60))
    late_too = end_of(embedded, topic)
    late.commit_transaction(60)
    write(plain, topic, range(60, 70))
    whole = read(embedded, topic)
    then = [
        each for each in whole if not _numbered(each, range(40, 50)) and not _numbered(each, range(60, 70))
    ]
    assert (len(whole), len(then)) == (60, 40)
    return Story(topic, late_too, then, whole)


def _numbered(one: Seen, numbers: range) -> bool:
    return one[4] - FIRST_MS in numbers


def test_what_had_committed_by_then_is_there_and_nothing_else(embedded: Embedded, story: Story) -> None:
    new = f"{story.topic}-then"
    dry = restored(embedded, story.topic, new, "--at", story.at, "--dry-run")
    assert (dry["equal"], dry["whole"]) == (None, False)
    assert new not in floe(embedded, "topic", "list")
    told = restored(embedded, story.topic, new, "--at", story.at)
    assert read(embedded, new) == story.then
    assert (told["equal"], told["whole"]) == (True, True)
    for row, planned in zip(told["partitions"], dry["partitions"], strict=True):
        assert row["cut"] == story.cuts[row["partition"]]
        assert (row["records"], row["digest"]) == (planned["records"], planned["digest"])
        assert row["transactions_left_out"] == 2
        first, *further = row["offsets"]
        assert first == {"from": 0, "to": first["to"], "became": 0}, "offsets are kept up to what is left out"
        assert [each["became"] for each in further] == [
            sum(one["to"] - one["from"] for one in row["offsets"][:count])
            for count in range(1, len(row["offsets"]))
        ]
    configs = json.loads(floe(embedded, "topic", "describe", new, "-o", "json"))["configs"]
    assert configs == KEPT_CONFIGS


def test_a_deleted_topic_and_all_of_one_up_to_a_time(embedded: Embedded, story: Story) -> None:
    new = f"{story.topic}-all"
    floe(embedded, "topic", "delete", story.topic)
    told = restored(embedded, story.topic, new)
    assert told["deleted"]
    assert read(embedded, new) == story.whole
    timed = f"{story.topic}-timed"
    restored(embedded, told["topic_id"], timed, "--at", "2023-11-14T22:13:20.011Z")
    assert read(embedded, timed) == [each for each in story.whole if each[4] <= FIRST_MS + 11]


def test_a_run_that_is_killed_leaves_a_marked_topic_and_is_gone_on_with(
    embedded: Embedded, story: Story
) -> None:
    new = f"{story.topic}-killed"
    words = ["restore", "topic", story.topic, "--as", new, "--bootstrap", embedded.bootstrap]
    command = [sys.executable, "-c", KILLED, *words, "--http", embedded.http]
    died = subprocess.run(command, cwd=ROOT, env=CLEAN, capture_output=True, check=False, timeout=60)
    assert died.returncode == -signal.SIGKILL, died.stderr
    assert 0 < len(read(embedded, new)) < len(story.whole)
    assert "floe.restoring" in floe(embedded, "topic", "describe", new)
    other = floe(embedded, "restore", "topic", story.topic, "--as", new, "--at", story.at, status=5)
    assert "up to another point" in other
    write(Producer({"bootstrap.servers": embedded.bootstrap}), story.topic, range(100, 110))
    assert restored(embedded, story.topic, new)["equal"], "up to the end that there was"
    assert read(embedded, new) == story.whole
    assert "floe.restoring" not in floe(embedded, "topic", "describe", new)
    assert "exists" in floe(embedded, "restore", "topic", story.topic, "--as", new, status=5)


def test_a_record_that_only_a_former_limit_took_comes_too(embedded: Embedded) -> None:
    topic, large, limit = f"large-{next(_numbers)}", 9 << 20, "max.message.bytes"
    words = ("--partitions", str(PARTITIONS), "--config", "floe.table.enabled=false")
    floe(embedded, "topic", "create", topic, *words, "--config", f"{limit}={20 << 20}")
    client = {"bootstrap.servers": embedded.bootstrap, "message.max.bytes": 20 << 20}
    producer = Producer(client)
    producer.produce(topic, bytes(large), partition=1)
    assert producer.flush(180) == 0
    floe(embedded, "topic", "config", topic, "--set", f"{limit}={1 << 20}")
    new = f"{topic}-then"
    assert restored(embedded, topic, new)["equal"]
    ((partition, _, value, *_),) = read(embedded, new)
    assert (partition, len(value)) == (1, large)
    configs = json.loads(floe(embedded, "topic", "describe", new, "-o", "json"))["configs"]
    assert configs[limit] == str(1 << 20), "as the source's is"


def test_what_somebody_else_wrote_there_is_found(embedded: Embedded, story: Story) -> None:
    new = f"{story.topic}-shared"
    words = ["restore", "topic", story.topic, "--as", new, "--bootstrap", embedded.bootstrap]
    command = [sys.executable, "-c", KILLED, *words, "--http", embedded.http]
    subprocess.run(command, cwd=ROOT, env=CLEAN, capture_output=True, check=False, timeout=60)
    write(Producer({"bootstrap.servers": embedded.bootstrap}), new, range(100, 102))
    told = restored(embedded, story.topic, new, status=1)
    assert (told["equal"], told["whole"]) == (False, False)
    assert "floe.restoring" in floe(embedded, "topic", "describe", new)


def test_points_that_are_none_are_refused(embedded: Embedded, story: Story) -> None:
    for at, status, said in (
        ("0:1", 5, "no offset"),
        ("0:99999,1:0", 5, "has the offsets 0 to"),
        ("0:1,0:2", 2, "twice"),
        ("yesterday", 2, "is none of"),
    ):
        told = floe(embedded, "restore", "topic", story.topic, "--as", "x", "--at", at, status=status)
        assert said in told
