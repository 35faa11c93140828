"""A topic with a damaged chunk, and an agent's settings under which nobody reads it from memory."""

from __future__ import annotations

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.compat.conftest import Embedded

TOPIC = "damaged"
SETTINGS = ("fetch.cache_bytes_max=1024", "fetch.cold_cache_bytes_max=1024", "merging.enabled=false")


def fill(agent: Embedded) -> None:
    """Two partitions of three records, a chunk each; that of offset 1 of partition 0 is damaged."""
    admin = AdminClient({"bootstrap.servers": agent.bootstrap})
    admin.create_topics([NewTopic(TOPIC, 2)])[TOPIC].result(10)
    producer = Producer({"bootstrap.servers": agent.bootstrap, "linger.ms": 0})
    for number in range(3):
        for partition in (0, 1):
            producer.produce(TOPIC, f"{partition}-{number}".encode() * 500, partition=partition)
            assert producer.flush(180) == 0
    (path,) = [path for path in agent.data.rglob("*.chunk") if b"0-10-1" in path.read_bytes()]
    content = bytearray(path.read_bytes())
    content[content.index(b"0-10-1")] ^= 1
    path.write_bytes(content)
