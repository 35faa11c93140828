"""Read, process, write with confluent-kafka, a transaction at a time: one agent, three agents, Apache Kafka.

librdkafka speaks transactions v1: AddPartitionsToTxn, AddOffsetsToTxn, TxnOffsetCommit and EndTxn by its two
coordinators' connections. Each transaction reads one record, writes one, and commits the position with it.
"""

from __future__ import annotations

import itertools
import statistics
import time
import urllib.request
from collections.abc import Iterable, Sequence
from contextlib import ExitStack

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from deploy.services import Etcd, Minio
from deploy.services.floe import FloeAgent
from deploy.services.kafka import VERSION, Kafka
from tests.bench.agents import on_services
from tests.bench.figure import Figure, interleaved

TRANSACTIONS, UNCOUNTED = (
    60,
    5,
)  # of each round; what is connected to and looked up with the first is not counted
WAIT_S = 60.0
VALUE = bytes(1000)
RATIO_MAX = 1.5
_numbers = itertools.count(1)


def transaction_ms(bootstrap: str) -> float:
    """The median of one transaction after the other. Raises RuntimeError for any trouble that is told."""
    name = f"rpw-{next(_numbers)}"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for made in admin.create_topics([NewTopic(f"{name}-{end}", 1) for end in ("in", "out")]).values():
        made.result(WAIT_S)
    troubles: list[KafkaError] = []
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "transactional.id": name,
            "linger.ms": 0,
            "error_cb": troubles.append,
        }
    )
    _fill(bootstrap, f"{name}-in")
    reader = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": name,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
        }
    )
    reader.assign([TopicPartition(f"{name}-in", 0, 0)])
    producer.init_transactions(WAIT_S)
    taken = [_once(producer, reader, f"{name}-out") for _ in range(UNCOUNTED + TRANSACTIONS)]
    reader.close()
    if troubles:
        raise RuntimeError(f"librdkafka was told {troubles} by {bootstrap}")
    return statistics.median(taken[UNCOUNTED:]) * 1000


def _fill(bootstrap: str, topic: str) -> None:
    """What is to be read."""
    producer = Producer({"bootstrap.servers": bootstrap})
    for _ in range(UNCOUNTED + TRANSACTIONS):
        producer.produce(topic, VALUE)
    left = producer.flush(WAIT_S)
    if left:
        raise RuntimeError(f"{left} records were not written within {WAIT_S} s")


def _once(producer: Producer, reader: Consumer, topic: str) -> float:
    """One transaction; the seconds from what was read to the answered commit."""
    message = reader.poll(WAIT_S)
    if message is None or message.error() is not None:
        raise RuntimeError(f"nothing to read within {WAIT_S} s: {message and message.error()}")
    started = time.perf_counter()
    producer.begin_transaction()
    producer.produce(topic, message.value())
    places = reader.position(reader.assignment())
    producer.send_offsets_to_transaction(places, reader.consumer_group_metadata(), WAIT_S)
    producer.commit_transaction(WAIT_S)
    producer.poll(0)
    return time.perf_counter() - started


def _stale(agents: Sequence[FloeAgent]) -> float:
    """Connections that the fence of transactions v1 has closed."""
    total = 0.0
    for agent in agents:
        with urllib.request.urlopen(f"{agent.http}/metrics", timeout=10) as answer:
            lines = answer.read().decode().splitlines()
        total += sum(float(x.split()[1]) for x in lines if x.startswith("floe_transactions_stale_total"))
    return total


def figures() -> Iterable[Figure]:
    """One and three agents beside Kafka, in turns."""
    with ExitStack() as stack:
        kafka = stack.enter_context(Kafka())
        etcd, minio = stack.enter_context(Etcd()), stack.enter_context(Minio())
        clusters: list[list[FloeAgent]] = []
        for count in (1, 3):
            # Each cluster has a log and a bucket of its own.
            own = etcd if count == 1 else stack.enter_context(Etcd())
            settings = on_services(own, minio, minio.make_bucket(f"rpw-{count}"))
            clusters.append(
                [stack.enter_context(FloeAgent(f"a{count}{number}", settings)) for number in range(count)]
            )
        one, three, theirs = interleaved(
            [
                lambda: transaction_ms(clusters[0][0].bootstrap),
                lambda: transaction_ms(",".join(each.bootstrap for each in clusters[1])),
                lambda: transaction_ms(kafka.bootstrap),
            ]
        )
        peer = f"Apache Kafka {VERSION}"
        for name, value in (("one agent", one), ("three agents", three)):
            yield Figure(f"read, process, write, {name}", value, "ms", peer, theirs, RATIO_MAX, "less")
        closed = sum(_stale(agents) for agents in clusters)
        yield Figure(
            "connections closed by the fence meanwhile", closed, "connections", goal=0, better="less"
        )


if __name__ == "__main__":
    for figure in figures():
        print(figure.line())
