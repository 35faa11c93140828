"""A load of raw Kafka frames: what a client costs besides the agent is next to nothing."""

from __future__ import annotations

import asyncio
import os
import socket
import struct
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agent.net.wire.api import BY_NAME
from agent.net.wire.frame import encode_request_header, frame_request, parse_response_header
from agent.net.wire.generated import alter_client_quotas as acq
from agent.net.wire.generated import create_topics as ct
from agent.net.wire.generated import fetch as f
from agent.net.wire.generated import produce as p
from objectstore.batch import NewRecord, build
from tests.equipment.forms import note

PRODUCE_VERSION, FETCH_VERSION, CREATE_VERSION = 9, 12, 7
RECORD_BYTES = 1_000
NOW = int(time.time() * 1000)  # older records would go by retention while they are measured


def batch_of(records: int) -> bytes:
    """A batch of 1 kB records that do not compress."""
    return build([NewRecord(NOW, None, os.urandom(RECORD_BYTES - 30)) for _ in range(records)])


def produce_frame(topic: str, batch: bytes, partitions: Sequence[int]) -> bytes:
    """A Produce request with this batch for each partition."""
    data = [p.PartitionProduceData(index, memoryview(batch)) for index in partitions]
    request = p.ProduceRequest(
        acks=-1, timeout_ms=30_000, topic_data=[p.TopicProduceData(topic, partition_data=data)]
    )
    return frame_of("Produce", request, PRODUCE_VERSION)


def fetch_frame(
    topic: str, offsets: Sequence[int], partition_bytes_max: int, bytes_max: int, *, committed: bool = False
) -> bytes:
    """A Fetch of partitions 0, 1, … from these offsets; `committed`: of committed records only."""
    partitions = [
        f.FetchPartition(index, fetch_offset=offset, partition_max_bytes=partition_bytes_max)
        for index, offset in enumerate(offsets)
    ]
    request = f.FetchRequest(
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=bytes_max,
        isolation_level=int(committed),
        topics=[f.FetchTopic(topic=topic, partitions=partitions)],
    )
    return frame_of("Fetch", request, FETCH_VERSION)


def frame_of(name: str, request: Any, version: int) -> bytes:
    """A request as it goes over the wire."""
    api = BY_NAME[name]
    header = encode_request_header(api, version, 1, "bench")
    return frame_request(header, api.codec().encode_request(request, version))


def decoded(name: str, version: int, payload: bytes) -> Any:
    """An answer, without its header."""
    _, start = parse_response_header(BY_NAME[name], version, payload)
    answer = BY_NAME[name].codec().decode_response(memoryview(payload)[start:], version)
    note(name, answer)
    return answer


class Wire:
    """One connection; answers come in the order of the requests."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, bootstrap: str) -> Wire:
        """Connect."""
        host, port = bootstrap.rsplit(":", 1)
        return cls(*await asyncio.open_connection(host, int(port), limit=1 << 24))

    async def send(self, frame: bytes) -> None:
        """Send a request."""
        self._writer.write(frame)
        await self._writer.drain()

    async def receive(self) -> bytes:
        """The next answer's payload."""
        (size,) = struct.unpack(">i", await self._reader.readexactly(4))
        return await self._reader.readexactly(size)

    async def call(self, name: str, request: Any, version: int) -> Any:
        """One request and its decoded answer."""
        await self.send(frame_of(name, request, version))
        return decoded(name, version, await self.receive())

    async def post(self, name: str, request: Any, version: int) -> None:
        """Send one request; its answer is still to be received."""
        await self.send(frame_of(name, request, version))

    async def pipeline(self, *calls: tuple[str, Any, int]) -> list[Any]:
        """Send all requests at once, then give their answers; a Produce with acks=0 has none."""
        await self.send(b"".join(frame_of(*each) for each in calls))
        answers = []
        for name, request, version in calls:
            if not (name == "Produce" and request.acks == 0):
                answers.append(decoded(name, version, await self.receive()))
        return answers

    async def close(self) -> None:
        """Hang up."""
        self._writer.close()
        await self._writer.wait_closed()


async def create_topic(bootstrap: str, topic: str, partitions: int) -> None:
    """Create a topic."""
    wire = await Wire.open(bootstrap)
    wanted = ct.CreatableTopic(name=topic, num_partitions=partitions, replication_factor=-1)
    request = ct.CreateTopicsRequest(topics=[wanted], timeout_ms=10_000)
    answer = await wire.call("CreateTopics", request, CREATE_VERSION)
    assert answer.topics[0].error_code == 0, answer
    await wire.close()


async def set_quota(bootstrap: str, client_id: str, quota: str, value: float | None) -> None:
    """Set a quota of a client id, or remove it."""
    op = acq.OpData(quota, value or 0.0, value is None)
    entry = acq.EntryData([acq.EntityData("client-id", client_id)], [op])
    wire = await Wire.open(bootstrap)
    told = await wire.call("AlterClientQuotas", acq.AlterClientQuotasRequest([entry]), 1)
    await wire.close()
    assert told.entries[0].error_code == 0, told


async def produce_all(bootstrap: str, frame: bytes, requests: int, window: int) -> None:
    """Send the frame so often on one connection, `window` unanswered at most."""
    wire = await Wire.open(bootstrap)
    unanswered: deque[None] = deque()
    for _ in range(requests):
        await wire.send(frame)
        unanswered.append(None)
        if len(unanswered) == window:
            check(await wire.receive())
            unanswered.popleft()
    for _ in unanswered:
        check(await wire.receive())
    await wire.close()


def check(payload: bytes) -> None:
    """A Produce answer without errors."""
    codes = codes_of(payload)
    assert not any(codes), codes


def codes_of(payload: bytes) -> list[int]:
    """A Produce answer's codes, of each partition."""
    _, start = parse_response_header(BY_NAME["Produce"], PRODUCE_VERSION, payload)
    answer = p.decode_response(memoryview(payload)[start:], PRODUCE_VERSION)
    return [part.error_code for topic in answer.responses for part in topic.partition_responses]


def fetch_all(
    bootstrap: str,
    topic: str,
    ends: Sequence[int],
    partition_bytes_max: int,
    bytes_max: int,
    *,
    committed: bool = False,
) -> int:
    """Read every partition to its end as a consumer would; returns the record bytes received.

    A blocking socket into one buffer: asyncio's streams copy so much that they would be what is measured.
    """
    host, port = bootstrap.rsplit(":", 1)
    offsets, received = [0] * len(ends), 0
    buffer = memoryview(bytearray(2 * bytes_max))
    with socket.create_connection((host, int(port))) as wire:
        while any(offset < end for offset, end in zip(offsets, ends, strict=True)):
            frame = fetch_frame(topic, offsets, partition_bytes_max, bytes_max, committed=committed)
            wire.sendall(frame)
            read_into(wire, buffer[:4])
            payload = buffer[: int.from_bytes(buffer[:4], "big")]
            read_into(wire, payload)
            _, start = parse_response_header(BY_NAME["Fetch"], FETCH_VERSION, payload)
            answer = f.decode_response(payload[start:], FETCH_VERSION)
            for part in answer.responses[0].partitions:
                assert part.error_code == 0, part.error_code
                received += len(part.records or b"")
                offsets[part.partition_index] = end_of(part.records, offsets[part.partition_index])
    return received


def read_into(wire: socket.socket, view: memoryview) -> None:
    """Fill the view from the socket."""
    done = 0
    while done < len(view):
        count = wire.recv_into(view[done:])
        assert count, "the agent hung up"
        done += count


def end_of(records: Any, offset: int) -> int:
    """The offset after the last whole batch."""
    view, position = memoryview(records or b""), 0
    while position < len(view):
        base, length = struct.unpack_from(">qi", view, position)
        offset = base + struct.unpack_from(">i", view, position + 23)[0] + 1
        position += 12 + length
    return offset


def cpu_seconds(pid: int) -> float:
    """User and system time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
