"""A small transactional producer of our own over raw connections: v2 (KIP-890), which no Python client has.

And v1, with every connection in the test's hands. Codes are answered, not raised; pairs move as a client's.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Self

from agent.net.wire.api import BY_NAME
from agent.net.wire.frame import encode_request_header, frame_request, parse_response_header
from agent.net.wire.generated.add_offsets_to_txn import AddOffsetsToTxnRequest
from agent.net.wire.generated.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from agent.net.wire.generated.api_versions import ApiVersionsRequest
from agent.net.wire.generated.end_txn import EndTxnRequest
from agent.net.wire.generated.init_producer_id import InitProducerIdRequest
from agent.net.wire.generated.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from agent.net.wire.generated.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from agent.version import VERSION
from objectstore.batch import NewRecord, build
from tests.equipment.forms import note

V1 = {"Produce": 11, "AddPartitionsToTxn": 3, "AddOffsetsToTxn": 3, "TxnOffsetCommit": 3, "EndTxn": 4}
V2 = {"Produce": 12, "TxnOffsetCommit": 5, "EndTxn": 5}
INIT_VERSION, API_VERSIONS_VERSION = 4, 3


class Connection:
    """One connection that counts its requests from 1 on, as most clients do."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._numbers = itertools.count(1)

    @classmethod
    async def open(cls, bootstrap: str, software: str = "floe-tests") -> Connection:
        """Connect and ask for ApiVersions, which the fence of transactions v1 counts from."""
        host, port = bootstrap.split(",", maxsplit=1)[0].rsplit(":", 1)
        made = cls(*await asyncio.open_connection(host, int(port), limit=1 << 24))
        await made.call("ApiVersions", ApiVersionsRequest(software, VERSION), API_VERSIONS_VERSION)
        return made

    async def call(self, name: str, request: Any, version: int) -> Any:
        """One request and its decoded answer. Raises IncompleteReadError when the connection is closed."""
        await self.send(name, request, version)
        return await self.receive(name, version)

    async def receive(self, name: str, version: int) -> Any:
        """The next answer, which is one to a request of that kind. Raises as `call` does."""
        size = int.from_bytes(await self._reader.readexactly(4), "big")
        payload = await self._reader.readexactly(size)
        api = BY_NAME[name]
        _, start = parse_response_header(api, version, payload)
        answer = api.codec().decode_response(memoryview(payload)[start:], version)
        note(name, answer)
        return answer

    async def send(self, name: str, request: Any, version: int) -> None:
        """One request, whose answer nobody waits for yet."""
        api = BY_NAME[name]
        header = encode_request_header(api, version, next(self._numbers), "floe-tests")
        self._writer.write(frame_request(header, api.codec().encode_request(request, version)))
        await self._writer.drain()

    async def closed(self) -> bool:
        """Whether the broker closes it without an answer."""
        return not await self._reader.read(1)

    async def close(self) -> None:
        """Hang up."""
        self._writer.close()
        with suppress(OSError):
            await self._writer.wait_closed()


@dataclass
class TransactionalClient:
    """One producer. `versions`: V1 or V2, request by request. `stamp_ms`: of its records, Unix ms."""

    bootstrap: str
    name: str
    versions: dict[str, int] = field(default_factory=lambda: dict(V2))
    pair: tuple[int, int] = (-1, -1)
    stamp_ms: int = 1_700_000_000_000
    sequences: dict[tuple[str, int], int] = field(default_factory=dict)
    connection: Connection | None = None
    opened: list[Connection] = field(default_factory=list)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for each in self.opened:
            await each.close()

    async def reconnect(self) -> Connection:
        """Go on by another connection; the old one stays open to the end."""
        self.connection = await Connection.open(self.bootstrap)
        self.opened.append(self.connection)
        return self.connection

    async def call(self, name: str, request: Any, version: int | None = None) -> Any:
        """A request of this producer's, on the connection that it uses now."""
        connection = self.connection or await self.reconnect()
        return await connection.call(name, request, self.versions[name] if version is None else version)

    async def init(self, timeout_ms: int = 60_000, given: tuple[int, int] = (-1, -1)) -> int:
        """InitProducerId; its code."""
        request = InitProducerIdRequest(self.name, timeout_ms, *given)
        answer = await self.call("InitProducerId", request, INIT_VERSION)
        if not answer.error_code:
            self.pair, self.sequences = (answer.producer_id, answer.producer_epoch), {}
        return int(answer.error_code)

    async def add(self, topic: str, *indexes: int) -> int:
        """AddPartitionsToTxn; the code of the first partition that is named."""
        topics = [AddPartitionsToTxnTopic(topic, list(indexes))]
        request = AddPartitionsToTxnRequest([], self.name, *self.pair, topics)
        answer = await self.call("AddPartitionsToTxn", request)
        rows = answer.results_by_topic_v3_and_below[0].results_by_partition
        codes = {row.partition_index: int(row.partition_error_code) for row in rows}
        return codes[indexes[0]]

    async def add_group(self, group: str) -> int:
        """AddOffsetsToTxn; its code."""
        request = AddOffsetsToTxnRequest(self.name, *self.pair, group)
        return int((await self.call("AddOffsetsToTxn", request)).error_code)

    async def send(self, topic: str, *values: bytes, index: int = 0) -> tuple[int, int]:
        """Produce one batch: (code, base offset)."""
        sequence = self.sequences.get((topic, index), 0)
        raw = build(
            [NewRecord(self.stamp_ms, None, value) for value in values],
            producer_id=self.pair[0],
            producer_epoch=self.pair[1],
            base_sequence=sequence,
            transactional=True,
        )
        data = TopicProduceData(topic, partition_data=[PartitionProduceData(index, memoryview(raw))])
        answer = await self.call("Produce", ProduceRequest(self.name, -1, 30_000, [data]))
        row = answer.responses[0].partition_responses[0]
        if not row.error_code:
            self.sequences[topic, index] = sequence + len(values)
        return int(row.error_code), int(row.base_offset)

    async def offsets(self, group: str, topic: str, offset: int, index: int = 0) -> int:
        """TxnOffsetCommit of one position; its code."""
        return await self.positions(group, {(topic, index): offset})

    async def positions(
        self, group: str, offsets: Mapping[tuple[str, int], int], member: tuple[int, str] = (-1, "")
    ) -> int:
        """TxnOffsetCommit of positions by topic and index, by a member's generation and id or by nobody.

        The first code that is an error.
        """
        answer = await self.call("TxnOffsetCommit", self.positioning(group, offsets, member))
        codes = [int(row.error_code) for topic in answer.topics for row in topic.partitions]
        return next((code for code in codes if code), 0)

    def positioning(
        self, group: str, offsets: Mapping[tuple[str, int], int], member: tuple[int, str] = (-1, "")
    ) -> TxnOffsetCommitRequest:
        """TxnOffsetCommit as it would be sent now."""
        rows = [
            TxnOffsetCommitRequestTopic(topic, [TxnOffsetCommitRequestPartition(index, offset)])
            for (topic, index), offset in offsets.items()
        ]
        return TxnOffsetCommitRequest(self.name, group, *self.pair, *member, topics=rows)

    def ending(self, *, commit: bool) -> EndTxnRequest:
        """EndTxn as it would be sent now."""
        return EndTxnRequest(self.name, *self.pair, commit)

    async def end(self, *, commit: bool) -> int:
        """EndTxn; its code. In v2 the pair that it answers with is taken over."""
        answer = await self.call("EndTxn", self.ending(commit=commit))
        if not answer.error_code and self.versions["EndTxn"] >= V2["EndTxn"]:
            self.pair, self.sequences = (answer.producer_id, answer.producer_epoch), {}
        return int(answer.error_code)
