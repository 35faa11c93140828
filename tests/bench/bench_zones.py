"""What is read from the bucket at the tail: three agents with nine consumers, three zones with twelve.

Producers write through agents of every zone, consumers read all partitions in their own. The goal is the
design's: each chunk is read from the bucket at most once per zone that did not write it. Beside it the same
three agents and nine consumers where another zone writes, with peer reads and without.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Sequence

from confluent_kafka import Consumer, Producer, TopicPartition

from tests.bench.figure import Figure
from tests.equipment.zoned import Zoned, bucket_reads, reads
from tests.torture.run import create_topic

PARTITIONS = 36
RECORD = bytes(1_000)
RATE = 400  # records a second of each producer
SECONDS = 15.0
SETTLE_S = 3.0
END_SECONDS_MAX = 60


class Reader(threading.Thread):
    """Reads its partitions at the tail."""

    def __init__(self, bootstrap: str, topic: str, zone: str, partitions: Sequence[int]) -> None:
        super().__init__(daemon=True)
        self.count = 0
        self.halt = threading.Event()
        settings = {"bootstrap.servers": bootstrap, "group.id": "bench", "fetch.wait.max.ms": 500}
        self._consumer = Consumer(
            {**settings, "client.rack": zone, "client.id": f"reader,floe_zone={zone}", "log_level": 0}
        )
        self._consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])

    def run(self) -> None:
        while not self.halt.is_set():
            self.count += sum(m.error() is None for m in self._consumer.consume(1_000, 0.1))
        self._consumer.close()


def write(bootstrap: str, topic: str, zone: str, counts: list[int]) -> None:
    """RATE records a second for SECONDS, over all partitions."""
    client = f"writer,floe_zone={zone}"
    producer = Producer(
        {"bootstrap.servers": bootstrap, "client.id": client, "linger.ms": 20, "log_level": 0}
    )
    begun, sent = time.monotonic(), 0
    while time.monotonic() - begun < SECONDS:
        while sent < (time.monotonic() - begun) * RATE:
            producer.produce(topic, RECORD, partition=sent % PARTITIONS)
            sent += 1
        producer.poll(0.01)
    assert producer.flush(END_SECONDS_MAX) == 0
    counts.append(sent)


def measure(
    zones: Sequence[str], consumers_per_zone: int, *, written_in: Sequence[str] = (), peers: bool = True
) -> tuple[float, float, float]:
    """GETs per MiB consumed; GETs per chunk and zone that did not write it; MiB consumed.

    All zones write and read, but with `written_in` those write, and the others read.
    """
    writing = list(written_in) or sorted(set(zones))
    names = sorted(set(zones) - set(written_in))
    with Zoned(zones, settings={"peers": {"enabled": peers}}) as cluster:
        create_topic(cluster.bootstrap, "tail", PARTITIONS)
        readers = [
            Reader(cluster.bootstrap, "tail", zone, range(share, PARTITIONS, consumers_per_zone))
            for zone in names
            for share in range(consumers_per_zone)
        ]
        for reader in readers:
            reader.start()
        time.sleep(SETTLE_S)
        before = [reads(agent) for agent in cluster.agents]
        counts: list[int] = []
        writers = [
            threading.Thread(target=write, args=(cluster.bootstrap, "tail", z, counts)) for z in writing
        ]
        for writer in writers:
            writer.start()
        for writer in writers:
            writer.join()
        deadline = time.monotonic() + END_SECONDS_MAX
        while sum(reader.count for reader in readers) < sum(counts) * len(names):
            assert time.monotonic() < deadline, "the consumers do not reach the end"
            time.sleep(0.1)
        after = [reads(agent) for agent in cluster.agents]
        for reader in readers:
            reader.halt.set()
        for reader in readers:
            reader.join()
    pairs = list(zip(before, after, strict=True))
    gets = sum(bucket_reads(new) - bucket_reads(old) for old, new in pairs)
    chunks = sum(new["chunks"] - old["chunks"] for old, new in pairs)
    mib = sum(new["fetched"] - old["fetched"] for old, new in pairs) / 2**20
    elsewhere = len(names) if written_in else max(1, len(names) - 1)
    return gets / mib, gets / (chunks * elsewhere), mib


def figures() -> Iterable[Figure]:
    """One zone, one that another writes for, three."""
    per_mib, _, _ = measure(("", "", ""), 9)
    yield Figure("GETs at the tail, 3 agents without zones, 9 consumers", per_mib, "GETs/MiB", better="less")
    near = ("w", "r", "r", "r")
    per_mib, per_chunk, _ = measure(near, 9, written_in=["w"])
    alone, _, _ = measure(near, 9, written_in=["w"], peers=False)
    title = "GETs at the tail, 3 agents of a zone, 9 consumers, written in another zone"
    yield Figure(title, per_mib, "GETs/MiB", peer="without peer reads", peer_value=alone, better="less")
    yield Figure(f"{title}, per chunk", per_chunk, "GETs", goal=1, better="less")
    per_mib, per_chunk, _ = measure(("a", "a", "b", "b", "c", "c"), 4)
    title = "GETs at the tail, 3 zones, 2 agents in each, 12 consumers"
    yield Figure(title, per_mib, "GETs/MiB", better="less")
    yield Figure(
        f"{title}, per chunk and zone that did not write it", per_chunk, "GETs", goal=1, better="less"
    )
