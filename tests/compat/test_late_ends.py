"""KAFKA-17754 with real v1 clients: EndTxn is held, given up, sent again, and arrives a transaction late.

And requests that are held until their transaction has been aborted for its timeout.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiokafka
import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from agent.net.wire.generated.describe_transactions import DescribeTransactionsRequest
from agent.net.wire.generated.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from deploy.services.floe import FloeAgent
from deploy.services.ports import free_port
from tests.compat.raw import call
from tests.compat.test_transactions_embedded import SIXTY, committed, position
from tests.equipment.proxy import Action, Proxy, kafka_frames

ADD_OFFSETS, END_TXN, TXN_OFFSETS = 25, 26, 28
ROUNDS = 3
WAIT_S_MAX = 60.0
GIVES_UP_MS = 1500
TOPIC = "t"


class Link:
    """The proxy between a client and an agent, which advertises it; holds the next request of an API."""

    def __init__(self, proxy: Proxy) -> None:
        self.proxy = proxy
        self.hold_next: int | None = None
        self.held = asyncio.Event()
        proxy.requests.rule = self._rule

    @property
    def bootstrap(self) -> str:
        """For clients."""
        return self.proxy.address

    def _rule(self, frame: bytes) -> Action:
        if int.from_bytes(frame[4:6], "big") == self.hold_next:
            self.hold_next = None
            self.held.set()
            return Action.HOLD
        return Action.PASS


@pytest.fixture
async def link(tmp_path: Path) -> AsyncIterator[Link]:
    """An agent on the embedded default behind a proxy."""
    port = free_port()
    async with Proxy("127.0.0.1", port, kafka_frames) as proxy:
        listener = {
            "host": "127.0.0.1",
            "port": port,
            "advertised_host": "127.0.0.1",
            "advertised_port": proxy.port,
        }
        settings: dict[str, Any] = {
            "listeners": [listener],
            "log": {"url": f"sqlite://{tmp_path}/log.db"},
            "store": {"url": f"file://{tmp_path}/bucket"},
            "tables": {"enabled": False},
        }
        agent = FloeAgent("late", settings, tmp_path / "agent")
        await asyncio.to_thread(agent.start)
        try:
            admin = AdminClient({"bootstrap.servers": proxy.address})
            made = admin.create_topics([NewTopic(TOPIC, 2)])[TOPIC]
            await asyncio.to_thread(made.result, WAIT_S_MAX)
            yield Link(proxy)
        finally:
            await asyncio.to_thread(agent.stop)


class RdKafka:
    """librdkafka's transactional producer, step by step."""

    def __init__(self, bootstrap: str) -> None:
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "transactional.id": "late",
                "socket.timeout.ms": GIVES_UP_MS,
                "transaction.timeout.ms": 60_000,
            }
        )

    async def start(self) -> None:
        """InitProducerId."""
        await asyncio.to_thread(self._producer.init_transactions, WAIT_S_MAX)

    async def begin(self) -> None:
        """Begin a transaction."""
        self._producer.begin_transaction()

    async def send(self, value: bytes, partition: int) -> None:
        """One record, acknowledged."""
        self._producer.produce(TOPIC, value, partition=partition)
        assert await asyncio.to_thread(self._producer.flush, WAIT_S_MAX) == 0

    async def end(self, *, commit: bool) -> None:
        """Commit or abort."""
        call = self._producer.commit_transaction if commit else self._producer.abort_transaction
        await asyncio.to_thread(call, WAIT_S_MAX)

    async def stop(self) -> None:
        """Nothing is left to do."""


class AioKafka:
    """aiokafka's."""

    def __init__(self, bootstrap: str) -> None:
        self._producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=bootstrap, transactional_id="late", request_timeout_ms=GIVES_UP_MS
        )

    async def start(self) -> None:
        """InitProducerId."""
        await self._producer.start()

    async def begin(self) -> None:
        """Begin a transaction."""
        await self._producer.begin_transaction()

    async def send(self, value: bytes, partition: int) -> None:
        """One record, acknowledged."""
        await self._producer.send_and_wait(TOPIC, value, partition=partition)

    async def end(self, *, commit: bool) -> None:
        """Commit or abort."""
        await (self._producer.commit_transaction() if commit else self._producer.abort_transaction())

    async def stop(self) -> None:
        """Leave."""
        await self._producer.stop()


@pytest.mark.services
@pytest.mark.parametrize("kind", [RdKafka, AioKafka])
async def test_a_held_end_does_not_end_the_next_transaction(
    link: Link, kind: type[RdKafka] | type[AioKafka]
) -> None:
    producer = kind(link.bootstrap)
    await producer.start()
    for number in range(ROUNDS):
        await producer.begin()
        for partition in range(2):
            await producer.send(b"good %d" % number, partition)
        link.hold_next = END_TXN
        await producer.end(commit=True)
        assert link.proxy.requests.held == 1, "the first try is held, and the client went on"
        await producer.begin()
        await producer.send(b"bad %d" % number, 0)
        link.proxy.requests.release()
        await producer.send(b"bad %d" % number, 1)
        seen = await asyncio.to_thread(committed, link.bootstrap, TOPIC)
        assert not [value for _, value in seen if value.startswith(b"bad")], "nobody has committed it"
        await producer.end(commit=False)
    await producer.stop()
    found = await asyncio.to_thread(committed, link.bootstrap, TOPIC)
    assert found == sorted((index, b"good %d" % number) for number in range(ROUNDS) for index in range(2))


async def _abort(bootstrap: str, name: str) -> None:
    """What an agent does when the transaction's time is over, at once: `kafka-transactions.sh abort`."""
    (told,) = (
        await call(bootstrap, "DescribeTransactions", DescribeTransactionsRequest([name]), 0)
    ).transaction_states
    assert told.transaction_state == "Ongoing"
    marker = WritableTxnMarker(
        told.producer_id, told.producer_epoch, False, [WritableTxnMarkerTopic(TOPIC, [0])], 0
    )
    answer = await call(bootstrap, "WriteTxnMarkers", WriteTxnMarkersRequest([marker]), 1)
    assert answer.markers[0].topics[0].partitions[0].error_code == 0


def _transaction(producer: Producer, group: object, value: bytes, offset: int) -> int:
    """One with a record and a position; 0, or the code of an error after which it could be aborted."""
    producer.begin_transaction()
    producer.produce(TOPIC, value, partition=0)
    producer.flush(WAIT_S_MAX)
    try:
        producer.send_offsets_to_transaction([TopicPartition(TOPIC, 0, offset)], group, WAIT_S_MAX)
        producer.commit_transaction(WAIT_S_MAX)
    except KafkaException as error:
        why = error.args[0]
        assert why.txn_requires_abort(), why
        producer.abort_transaction(WAIT_S_MAX)
        return int(why.code())
    return 0


@pytest.mark.services
@pytest.mark.parametrize(
    ("api", "code"),
    [(ADD_OFFSETS, KafkaError.INVALID_PRODUCER_ID_MAPPING), (TXN_OFFSETS, KafkaError.ILLEGAL_GENERATION)],
    ids=["AddOffsetsToTxn", "TxnOffsetCommit"],
)
async def test_librdkafka_goes_on_after_a_timeout(link: Link, api: int, code: int) -> None:
    """KIP-588: what comes after it is abortable, and the abort gets the producer its next pair."""
    producer = Producer({"bootstrap.servers": link.bootstrap, "transactional.id": "slow"})
    reader = Consumer({"bootstrap.servers": link.bootstrap, "group.id": "slow"})
    group = reader.consumer_group_metadata()
    await asyncio.to_thread(producer.init_transactions, WAIT_S_MAX)
    link.hold_next = api
    late = asyncio.create_task(asyncio.to_thread(_transaction, producer, group, b"late", 1))
    async with asyncio.timeout(WAIT_S_MAX):
        await link.held.wait()
    await _abort(link.bootstrap, "slow")
    link.proxy.requests.release()
    assert await late == code
    assert await asyncio.to_thread(_transaction, producer, group, b"next", 2) == 0
    await asyncio.to_thread(reader.close)
    assert await asyncio.to_thread(committed, link.bootstrap, TOPIC) == [(0, b"next")]
    assert await asyncio.to_thread(position, link.bootstrap, TOPIC, "slow") == 2


@pytest.mark.services
async def test_aiokafka_loses_no_connection_in_sixty_transactions(link: Link) -> None:
    """Read, process, write without a fault: after the first transaction it opens no other connection."""
    producer = aiokafka.AIOKafkaProducer(bootstrap_servers=link.bootstrap, transactional_id="sixty")
    await producer.start()
    part, opened = aiokafka.TopicPartition(TOPIC, 0), 0
    for number in range(SIXTY):
        async with producer.transaction():
            await producer.send(TOPIC, b"%d" % number, partition=0)
            await producer.send_offsets_to_transaction({part: number + 1}, "sixty")
        opened = opened or link.proxy.opened
    assert link.proxy.opened == opened
    await producer.stop()
    assert await asyncio.to_thread(position, link.bootstrap, TOPIC, "sixty") == SIXTY
