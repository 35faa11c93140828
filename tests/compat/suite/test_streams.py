"""Kafka Streams: a count with a state store, restarted, killed and restored; at least once, exactly once."""

from __future__ import annotations

import itertools
import shutil
import struct
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

from tests.compat.suite.broker import Broker
from tests.compat.suite.clients import STREAMS
from tests.compat.suite.conftest import Saw
from tests.compat.suite.workers import WordCount

pytestmark = [pytest.mark.client(STREAMS), pytest.mark.timeout(600)]

WAIT_S_MAX = 120
WORDS = ("log", "slice", "chunk", "offset", "table")
PARTITIONS = 2

Counts = dict[str, int]


@pytest.fixture
def wordcount(broker: Broker, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[WordCount]:
    """The program and its two topics; its names are fixed, so the topics are made anew."""
    guarantee = getattr(request, "param", "at_least_once")
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    names = [WordCount.input, WordCount.output]
    for done in admin.create_topics([NewTopic(name, PARTITIONS, 1) for name in names]).values():
        done.result(WAIT_S_MAX)
    program = WordCount(tmp_path, broker.bootstrap, broker.fresh("app"), guarantee)
    yield program
    program.kill()
    for done in admin.delete_topics(names).values():
        done.result(WAIT_S_MAX)


class Follower:
    """Reads a topic of counts from its start; `counts`: the newest of each word, `seen`: records read."""

    def __init__(self, bootstrap: str, topic: str, isolation: str = "read_committed") -> None:
        self.counts: Counts = {}
        self.seen = 0
        settings = {"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False}
        settings["isolation.level"] = isolation
        self._consumer = Consumer({**settings, "auto.offset.reset": "error"})
        self._places = [TopicPartition(topic, part, 0) for part in range(PARTITIONS)]
        self._consumer.assign(self._places)

    def until(self, reached: Callable[[Counts], bool]) -> Counts:
        """Read on until the counts are so."""
        end = time.monotonic() + WAIT_S_MAX
        while not reached(self.counts):
            assert time.monotonic() < end, f"only {self.counts}"
            for message in self._consumer.consume(500, 0.2):
                assert message.error() is None, message.error()
                assert message.value() is not None
                self.seen += 1
                self.counts[message.key().decode()] = struct.unpack(">q", message.value())[0]
        return self.counts

    def reaches(self, expected: Counts) -> None:
        """Read on until the counts are these."""
        self.until(lambda counts: counts == expected)

    def to_the_end(self) -> Counts:
        """Read all that there is at this moment."""
        ends = {each: self._consumer.get_watermark_offsets(each, WAIT_S_MAX)[1] for each in self._places}
        return self.until(
            lambda _: all(
                place.offset >= ends[place] for place in self._consumer.position([*ends]) if ends[place]
            )
        )

    def close(self) -> None:
        """Stop reading."""
        self._consumer.close()


def lines(count: int, seed: int) -> list[str]:
    """Lines of words, the same for a seed in every run."""
    choose = itertools.cycle(WORDS[seed:] + WORDS)
    return [" ".join(next(choose) for _ in range(3 + index % 4)) for index in range(count)]


def send(broker: Broker, values: Sequence[str]) -> Counter[str]:
    """Produce the lines; the words in them."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True})
    for index, value in enumerate(values):
        producer.produce(WordCount.input, value.encode(), partition=index % PARTITIONS)
    assert producer.flush(WAIT_S_MAX) == 0
    return Counter(word for value in values for word in value.split())


def configs(broker: Broker, topic: str, *names: str) -> dict[str, str]:
    """Effective configs of a topic."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    resource = ConfigResource(ResourceType.TOPIC, topic)
    found = admin.describe_configs([resource])[resource].result(WAIT_S_MAX)
    return {name: found[name].value for name in names}


def test_a_count_goes_on_over_restarts(wordcount: WordCount, broker: Broker, saw: Saw) -> None:
    """A count with changelog and repartition topics is stopped, loses its disk and restores; it is exact when
    closed in order, and counts no record too few when it is killed."""
    follower = Follower(broker.bootstrap, WordCount.output)
    wordcount.start()
    expected = send(broker, lines(200, 0))
    follower.reaches(expected)
    saw("changelog", configs(broker, wordcount.changelog, "cleanup.policy"))
    saw("repartition", configs(broker, wordcount.repartition, "cleanup.policy", "retention.ms"))

    wordcount.stop()
    shutil.rmtree(wordcount.store)
    uncommitted = send(broker, lines(100, 1))  # as far as anybody here knows
    expected += uncommitted
    wordcount.start()
    follower.reaches(expected)

    killed = send(broker, lines(300, 2))
    expected += killed
    uncommitted += killed
    wordcount.kill()
    shutil.rmtree(wordcount.store)
    expected += send(broker, ["last"] * 10)
    wordcount.start()

    def all_there(counts: Counts) -> bool:
        return all(counts.get(word, 0) >= expected[word] for word in expected)

    follower.until(all_there)
    wordcount.stop()  # it may still have counted again what the kill repeats
    counts = follower.to_the_end()
    follower.close()
    # Each of the two hops may repeat: a word is sent on again, and what was sent on before is counted again.
    # With Apache Kafka and a kill 0.08 and 0.12 s later it was 1.2 and 2.0 times as many as were under way.
    most = {word: expected[word] + 2 * uncommitted[word] for word in expected}
    assert all(counts[word] <= most[word] for word in expected), f"{counts} of {expected}, at most {most}"
    changelog = Follower(broker.bootstrap, wordcount.changelog)
    assert changelog.to_the_end() == counts
    changelog.close()


@pytest.mark.parametrize("wordcount", ["exactly_once_v2"], indirect=True)
def test_a_count_is_exact_over_a_kill(wordcount: WordCount, broker: Broker) -> None:
    """With processing.guarantee=exactly_once_v2 every count is exact, though the program is killed and loses
    its disk in the middle of its work."""
    follower = Follower(broker.bootstrap, WordCount.output)
    wordcount.start()
    expected = send(broker, lines(200, 0))
    follower.reaches(expected)
    expected += send(broker, lines(400, 1))
    wordcount.kill()
    shutil.rmtree(wordcount.store)
    expected += send(broker, ["last"] * 10)
    wordcount.start()
    follower.reaches(expected)
    follower.close()
    wordcount.stop()


@pytest.mark.compat_only
def test_a_store_is_restored_from_a_compacted_changelog(wordcount: WordCount, broker: Broker) -> None:
    """The broker compacts the changelog; a program that lost its disk restores every count from the rest."""
    follower = Follower(broker.bootstrap, WordCount.output)
    wordcount.start()
    expected: Counter[str] = Counter()
    for seed in range(4):
        expected += send(broker, lines(200, seed))
        follower.reaches(expected)
        time.sleep(1.5)  # past topic.segment.ms, so that Kafka too has segments to compact
    wordcount.stop()
    end = time.monotonic() + WAIT_S_MAX
    while True:
        changelog = Follower(broker.bootstrap, wordcount.changelog)
        changelog.reaches(expected)
        changelog.close()
        if changelog.seen < sum(expected.values()) // 2:
            break
        assert time.monotonic() < end, f"{changelog.seen} records are left: the changelog was not compacted"
        time.sleep(1)
    shutil.rmtree(wordcount.store)
    wordcount.start()
    expected += send(broker, lines(50, 1))
    follower.reaches(expected)
    follower.close()
