"""One of three agents loses only the bucket, or only etcd: its partitions go on through the others.

Before agents stepped aside nothing could be written to its partitions until the link was whole again. The
longest pause of aiokafka's sends is printed.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer

from tests.equipment.proxy import Proxy
from tests.torture.cluster import Cluster, Member
from tests.torture.run import create_topic, unexplained
from tests.torture.verdict import judge
from tests.torture.workload import Writer, read_all

pytestmark = [pytest.mark.services, pytest.mark.timeout(240)]

TOPIC, OTHER = "grey", "grey-aiokafka"
PARTITIONS = tuple(range(6))
ENOUGH = 20  # acknowledged records of each partition and client
SECONDS_MAX = 60  # then something is stuck: the link stays cut for as long


class Aio(threading.Thread):
    """An aiokafka producer that sends to every partition in turn; when each record was acknowledged."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(name="aiokafka", daemon=True)
        self.acknowledged: dict[int, list[float]] = {each: [] for each in PARTITIONS}
        self.failures: list[str] = []
        self._servers = bootstrap
        self._halt = threading.Event()

    def run(self) -> None:
        asyncio.run(self._produce())

    async def _produce(self) -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=self._servers, enable_idempotence=True, metadata_max_age_ms=1_000
        )
        await producer.start()
        await asyncio.gather(*(self._send(producer, partition) for partition in PARTITIONS))
        await producer.stop()

    async def _send(self, producer: Any, partition: int) -> None:
        while not self._halt.is_set():
            try:
                await producer.send_and_wait(OTHER, b"x", partition=partition)
            except Exception as error:  # whatever reaches an application is a finding
                self.failures.append(repr(error))
            else:
                self.acknowledged[partition].append(time.monotonic())
            await asyncio.sleep(0.02)

    def stop(self) -> None:
        """Send no more."""
        self._halt.set()
        self.join(SECONDS_MAX)
        assert not self.is_alive(), "aiokafka is stuck"


@pytest.mark.parametrize("link", ["store", "etcd"])
def test_the_partitions_of_an_agent_without_a_link_go_on_and_it_comes_back(link: str) -> None:
    with Cluster(3) as cluster:
        create_topic(cluster.bootstrap, TOPIC, len(PARTITIONS))
        create_topic(cluster.bootstrap, OTHER, len(PARTITIONS))
        writer, aio = Writer("w", cluster.bootstrap, TOPIC, PARTITIONS, rate=200), Aio(cluster.bootstrap)
        writer.start()
        aio.start()
        sick, well = cluster.members[0], cluster.members[1]
        _until(lambda: _all_acknowledged(writer, 0) and _all_of(aio, 0), "it begins")
        cut: Proxy = getattr(sick, link)
        cluster.links.do(lambda: setattr(cut.requests, "cut", True))
        at, before = time.monotonic(), len(writer.sent)
        _until(lambda: sick.agent.name not in _named(well), "the others know")
        told = time.monotonic() - at
        _until(lambda: _all_acknowledged(writer, before + 400), "confluent-kafka goes on meanwhile")
        after = time.monotonic()
        _until(lambda: _all_of(aio, after), "aiokafka goes on meanwhile")
        cluster.links.do(cut.heal)
        _until(lambda: all(len(_named(each)) == 3 for each in (well, sick)), "it comes back by itself")
        writer.stop()
        aio.stop()
        pause = max(b - a for each in aio.acknowledged.values() for a, b in pairwise(each))
        verdict = judge(writer.sent, read_all(cluster.bootstrap, TOPIC, PARTITIONS), [])
        verdict.findings += unexplained([writer])
        print(f"\ntold after {told:.1f} s, aiokafka's longest pause {pause:.1f} s; {verdict.report()}")
        assert verdict.findings == [], verdict.report()
        assert not aio.failures
        assert [each.agent.ended_by_itself for each in cluster.members] == [None] * 3


def _all_acknowledged(writer: Writer, since: int) -> bool:
    sent = [each.partition for each in writer.sent[since:] if each.outcome == "ok"]
    return all(sent.count(partition) >= ENOUGH for partition in PARTITIONS)


def _all_of(aio: Aio, since: float) -> bool:
    return all(sum(at > since for at in each) >= ENOUGH for each in aio.acknowledged.values())


def _named(member: Member) -> list[str]:
    """Whom it sends clients to: who is cut from etcd is soon unwell, then fenced and gone."""
    try:
        return [each["name"] for each in member.status()["brokers"] if not each["unwell"]]
    except OSError:  # it does not answer now
        return []


def _until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while not condition():
        assert time.monotonic() < deadline, f"not within {SECONDS_MAX} s: {what}"
        time.sleep(0.1)
