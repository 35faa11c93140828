"""Transactional producers of the simulation behind one shape: aiokafka's (v1) and our own client of v2.

Both are impatient, as Jepsen's are: what takes too long is given up, and whoever gives up is replaced under
the same transactional id. What was sent may still be under way then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, Protocol

from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.errors import KafkaError

from coordination.kafka_codes import Code
from tests.equipment.transactional_client import Connection, TransactionalClient
from tests.sim.clients import SHORT, Surroundings, partition_known, stopped
from tests.sim.loop import NODE
from tests.sim.onlooker import Onlooker

REQUEST_S = 3.0
BACKOFF_S = 0.05
COPIED_OF = 0.15
"""How many requests of our own client the network delivers twice, the second time late."""
COPY_LATE_S_MAX = 4.0
RETRIABLE = frozenset(
    {
        Code.COORDINATOR_NOT_AVAILABLE, Code.COORDINATOR_LOAD_IN_PROGRESS, Code.NOT_COORDINATOR,
        Code.NOT_LEADER_OR_FOLLOWER, Code.NOT_ENOUGH_REPLICAS, Code.REQUEST_TIMED_OUT,
        Code.CONCURRENT_TRANSACTIONS, Code.UNKNOWN_TOPIC_OR_PARTITION, Code.NETWORK_EXCEPTION,
    }
)  # fmt: skip


class Refusal(Exception):
    """The broker's answer is final for this producer."""


ERRORS = (KafkaError, OSError, TimeoutError, EOFError, Refusal)
"""What ends a client's life."""


class Producing(Protocol):
    """One transactional producer. Everything raises one of ERRORS."""

    async def start(self) -> None:
        """InitProducerId."""

    async def begin(self) -> None:
        """Begin a transaction."""

    async def send(self, key: TopicPartition, *values: str) -> int | None:
        """Records of one key, acknowledged; the first one's offset where the client is told."""

    async def positions(self, offsets: Mapping[TopicPartition, int], group: str) -> None:
        """Commit positions with the transaction."""

    async def end(self, *, commit: bool) -> None:
        """Commit or abort."""

    async def stop(self) -> None:
        """Leave, whatever state it is in."""


class V1:
    """aiokafka's producer."""

    def __init__(self, around: Surroundings, name: str, timeout_ms: int) -> None:
        self._around, self._name = around, name
        self._producer: Any = AIOKafkaProducer(
            bootstrap_servers=around.bootstrap,
            transactional_id=name,
            transaction_timeout_ms=timeout_ms,
            client_id=NODE.get(),
            **SHORT,
        )

    async def start(self) -> None:
        """See Producing."""
        await self._producer.start()

    async def begin(self) -> None:
        """See Producing."""
        self._around.sent.pop(self._name, None)
        await self._producer.begin_transaction()

    async def send(self, key: TopicPartition, *values: str) -> int | None:
        """See Producing."""
        await partition_known(self._producer, key)
        sent = [
            await self._producer.send(
                key.topic,
                value.encode(),
                key=value.encode(),
                partition=key.partition,
                timestamp_ms=self._around.timestamp(),
            )
            for value in values
        ]
        told = await asyncio.gather(*sent)
        return told[0].offset if told[0].offset >= 0 else None

    async def positions(self, offsets: Mapping[TopicPartition, int], group: str) -> None:
        """See Producing."""
        await self._producer.send_offsets_to_transaction(offsets, group)
        self._around.sent[self._name] = {(key.topic, key.partition): at for key, at in offsets.items()}

    async def end(self, *, commit: bool) -> None:
        """See Producing."""
        await (self._producer.commit_transaction() if commit else self._producer.abort_transaction())

    async def stop(self) -> None:
        """See Producing."""
        await stopped(self._producer)


class _Copied(TransactionalClient):
    """The network delivers some of its requests again, by another connection, long after."""

    around: Surroundings

    async def call(self, name: str, request: Any, version: int | None = None) -> Any:
        """See TransactionalClient."""
        number = self.versions[name] if version is None else version
        random = self.around.loop.random
        if name != "InitProducerId" and random.random() < COPIED_OF:
            late = random.uniform(0, COPY_LATE_S_MAX)
            self.around.loop.create_task(
                self._again(random.choice(self.around.bootstrap), late, name, request, number)
            )
        return await super().call(name, request, version)

    async def _again(self, bootstrap: str, late_s: float, name: str, request: Any, version: int) -> None:
        await asyncio.sleep(late_s)
        with suppress(OSError, EOFError, TimeoutError):
            async with asyncio.timeout(REQUEST_S):
                connection = await Connection.open(bootstrap)
                await connection.call(name, request, version)
                await connection.close()


class V2:
    """Our own client, which asks any agent, and goes on by another one when it is not answered.

    As clients do, it has a connection of its own to the group's coordinator, which alone takes positions. So
    the transaction is often ended by another agent than the one that tells the positions afterwards.
    """

    def __init__(self, around: Surroundings, name: str, timeout_ms: int) -> None:
        self._around = around
        self._timeout_ms = timeout_ms
        self._client = _Copied(self._somebody(), name)
        self._client.around = around
        self._coordinator: tuple[str, Connection | None] = (self._somebody(), None)
        """Who took positions last, and the connection to it."""
        self._onlooker = Onlooker(around)
        self._touched, self._group = False, ""

    async def start(self) -> None:
        """See Producing."""
        await self._until_answered(lambda: self._client.init(self._timeout_ms))

    async def begin(self) -> None:
        """See Producing."""
        self._touched, self._group = False, ""

    async def send(self, key: TopicPartition, *values: str) -> int | None:
        """See Producing."""
        self._touched = True
        encoded = [value.encode() for value in values]
        offset = -1

        async def send() -> int:
            nonlocal offset
            code, offset = await self._client.send(key.topic, *encoded, index=key.partition)
            return code

        await self._until_answered(send)
        return offset if offset >= 0 else None

    async def positions(
        self, offsets: Mapping[TopicPartition, int], group: str, member: tuple[int, str] = (-1, "")
    ) -> None:
        """See Producing. `member`: generation and id of a member of the group."""
        self._touched = True
        by_place = {(key.topic, key.partition): offset for key, offset in offsets.items()}
        client = self._client
        others = client.bootstrap, client.connection
        client.bootstrap, client.connection = self._coordinator
        try:
            await self._until_answered(lambda: client.positions(group, by_place, member))
        finally:
            self._coordinator = client.bootstrap, client.connection
            client.bootstrap, client.connection = others
        self._group = group

    async def end(self, *, commit: bool) -> None:
        """See Producing. Nothing is asked about a transaction in which nothing was done."""
        if self._touched:
            await self._until_answered(lambda: self._client.end(commit=commit))
        if self._group and commit:
            self._onlooker.committed(self._group, self._coordinator[0])

    async def stop(self) -> None:
        """See Producing. Connections stay open: what is under way on them still arrives."""

    def _somebody(self) -> str:
        return self._around.loop.random.choice(self._around.bootstrap)

    async def _until_answered(self, ask: Callable[[], Awaitable[int]]) -> None:
        """Ask until somebody decides. The caller bounds it. Raises Refusal."""
        while True:
            try:
                async with asyncio.timeout(REQUEST_S):
                    code = await ask()
            except (OSError, EOFError, TimeoutError):
                code = Code.NETWORK_EXCEPTION
            if not code:
                return
            if Code(code) not in RETRIABLE:
                raise Refusal(Code(code).name)
            self._client.bootstrap, self._client.connection = self._somebody(), None
            await asyncio.sleep(BACKOFF_S)


VERSIONS: Mapping[str, Callable[[Surroundings, str, int], Producing]] = {"v1": V1, "v2": V2}
