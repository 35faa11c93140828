"""Read, process, write, while the agents are killed in turn: each record comes out exactly once."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from deploy.services import Etcd, Minio
from tests.compat.cluster import Cluster

pytestmark = pytest.mark.services

PARTITIONS, RECORDS, AT_ONCE = 2, 300, 10
WAIT_S_MAX = 120.0
SOURCE, TARGET, GROUP = "source", "target", "processors"


@pytest.fixture
def failing(etcd: Etcd, minio: Minio, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two agents that may be killed and started again."""
    folder = tmp_path_factory.mktemp("transactions")
    with Cluster(etcd, minio, directory=folder, lease_ttl_s=6) as running:
        yield running


class Processor(threading.Thread):
    """librdkafka as its documentation has it: abort and go back where asked to, else try again."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(daemon=True)
        self._servers = bootstrap
        self.committed = 0
        self.aborted = 0
        self.failure: BaseException | None = None

    def run(self) -> None:
        """Until everything is committed."""
        try:
            self._run()
        except BaseException as error:
            self.failure = error

    def _run(self) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self._servers,
                "transactional.id": "processor",
                "transaction.timeout.ms": 20_000,
                # as docs/transactions.md has it: both agents may be out of its reach for a moment
                "metadata.recovery.strategy": "none",
            }
        )
        consumer = Consumer(
            {
                "bootstrap.servers": self._servers,
                "group.id": GROUP,
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
            }
        )
        producer.init_transactions(WAIT_S_MAX)
        consumer.subscribe([SOURCE])
        while self.committed < RECORDS:
            messages = [each for each in consumer.consume(AT_ONCE, 0.5) if each.error() is None]
            if messages:
                self._process(producer, consumer, messages)
        consumer.close()

    def _process(self, producer: Producer, consumer: Consumer, messages: list[Message]) -> None:
        firsts: dict[int, int] = {}
        nexts: dict[int, int] = {}
        for each in messages:
            firsts.setdefault(each.partition(), each.offset())
            nexts[each.partition()] = each.offset() + 1
        try:
            producer.begin_transaction()
            for each in messages:
                producer.produce(TARGET, each.value(), partition=each.partition())
            positions = [TopicPartition(SOURCE, index, offset) for index, offset in nexts.items()]
            metadata = consumer.consumer_group_metadata()
            _until_done(lambda: producer.send_offsets_to_transaction(positions, metadata, 10))
            _until_done(lambda: producer.commit_transaction(10))
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
            _until_done(lambda: producer.abort_transaction(10))
            self.aborted += 1
            for index, offset in firsts.items():
                consumer.seek(TopicPartition(SOURCE, index, offset))
            return
        self.committed += len(messages)


def _until_done(call: Callable[[], None]) -> None:
    """Call again what may be called again."""
    end = time.monotonic() + WAIT_S_MAX
    while True:
        try:
            call()
        except KafkaException as error:
            if not error.args[0].retriable() or time.monotonic() > end:
                raise
        else:
            return


def _fill(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for made in admin.create_topics([NewTopic(name, PARTITIONS) for name in (SOURCE, TARGET)]).values():
        made.result(WAIT_S_MAX)
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for number in range(RECORDS):
        producer.produce(SOURCE, b"%d" % number, partition=number % PARTITIONS)
    assert producer.flush(WAIT_S_MAX) == 0


def _committed(bootstrap: str) -> Counter[int]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(TARGET, index, 0) for index in range(PARTITIONS)])
    found: Counter[int] = Counter()
    ended = 0
    while ended < PARTITIONS:
        message = consumer.poll(WAIT_S_MAX)
        assert message is not None, f"nothing came for {WAIT_S_MAX} s"
        if message.error() is not None:
            ended += 1
        else:
            found[int(message.value())] += 1
    consumer.close()
    return found


def _reaches(processor: Processor, count: int) -> None:
    end = time.monotonic() + WAIT_S_MAX
    while processor.committed < count and processor.is_alive():
        assert time.monotonic() < end, f"{processor.committed} of {count} after {WAIT_S_MAX} s"
        time.sleep(0.05)


def test_every_record_comes_out_once_though_agents_are_killed(failing: Cluster) -> None:
    _fill(failing.bootstrap)
    processor = Processor(failing.bootstrap)
    processor.start()
    for number, agent in enumerate(failing.agents):
        _reaches(processor, RECORDS * (number + 1) // 4)
        agent.kill()
        time.sleep(1)
        agent.start()
    processor.join(WAIT_S_MAX)
    assert processor.failure is None, processor.failure
    assert not processor.is_alive(), f"{processor.committed} records committed"
    found = _committed(failing.bootstrap)
    assert sorted(found) == list(range(RECORDS)), "none is lost"
    assert set(found.values()) == {1}, "none is doubled"
