"""Many readers of one topic: what a gigabyte out of one agent costs at the tail, and how fast it comes.

The readers are processes of their own, which look at an answer's numbers and have the kernel throw its
records away (MSG_TRUNC): else they would be what is measured. Each asks for all partitions, as consumers of
as many groups do, without their commits and heartbeats. *At the tail* somebody writes at a fixed rate
meanwhile, and the same writing without readers is taken off; *from memory* everybody reads what is there.
"""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from struct import Struct
from tempfile import TemporaryDirectory

from agent.net.wire.generated import fetch as f
from deploy.services.floe import FloeAgent
from tests.bench.agents import patient
from tests.bench.bench_produce import embedded
from tests.bench.figure import Figure
from tests.bench.load import (
    Wire,
    batch_of,
    codes_of,
    cpu_seconds,
    create_topic,
    frame_of,
    produce_all,
    produce_frame,
    read_into,
)

TAIL, MEMORY = "readers-tail", "readers-memory"
READERS, PROCESSES, PARTITIONS = 50, 2, 16
PARTITION_BYTES_MAX, BYTES_MAX, WAIT_MS = 1 << 20, 50 << 20, 500  # the Java consumer's defaults
BATCH_RECORDS = 16
BATCH_BYTES = len(batch_of(BATCH_RECORDS))
WRITTEN_MB_S, WRITTEN_S = 8.0, 20.0
STORED_REQUESTS = 400
"""Of a batch for each partition: 105 MB, which fit the tail's cache."""
LED_S = 2.0  # until a new topic's partitions are served
CPU_GOAL_S, OUT_GOAL_MB_S = 0.5, 1_200.0
VERSION = 11  # whose answers have everything at fixed places
TOPIC_AT = 22
"""Before it: size, correlation id, throttle time, code, session, number of topics."""
PARTITION = Struct(">ihqqqiii")
"""Index, code, high watermark, last stable, log start, no transactions, no replica, bytes of records."""
TRASH_BYTES = 1 << 20


def asked(topic: str, offsets: list[int]) -> bytes:
    """A Fetch from these offsets."""
    wanted = [
        f.FetchPartition(index, fetch_offset=at, partition_max_bytes=PARTITION_BYTES_MAX)
        for index, at in enumerate(offsets)
    ]
    topics = [f.FetchTopic(topic, partitions=wanted)]
    request = f.FetchRequest(max_wait_ms=WAIT_MS, min_bytes=1, max_bytes=BYTES_MAX, topics=topics)
    return frame_of("Fetch", request, VERSION)


def read(bootstrap: str, topic: str, end: int) -> None:
    """One reader, until it has every partition to `end`."""
    host, port = bootstrap.rsplit(":", 1)
    offsets = [0] * PARTITIONS
    head, row = memoryview(bytearray(TOPIC_AT + 6 + len(topic))), memoryview(bytearray(PARTITION.size))
    trash = memoryview(bytearray(TRASH_BYTES))
    with socket.create_connection((host, int(port))) as wire:
        while min(offsets) < end:
            wire.sendall(asked(topic, offsets))
            read_into(wire, head)
            for _ in range(PARTITIONS):
                read_into(wire, row)
                index, code, *_, size = PARTITION.unpack(row)
                assert code == 0, code
                assert size % BATCH_BYTES == 0, size
                offsets[index] += size // BATCH_BYTES * BATCH_RECORDS
                while size > 0:
                    gone = wire.recv_into(trash, min(size, TRASH_BYTES), socket.MSG_TRUNC)
                    assert gone, "the agent hung up"
                    size -= gone


def reading(bootstrap: str, topic: str, end: int, readers: int) -> list[subprocess.Popen[bytes]]:
    """So many readers, in PROCESSES."""
    shares = [readers // PROCESSES + (number < readers % PROCESSES) for number in range(PROCESSES)]
    told = [sys.executable, "-m", "tests.bench.bench_readers", bootstrap, topic, str(end)]
    return [subprocess.Popen([*told, str(share)]) for share in shares if share]


async def written(bootstrap: str, topic: str) -> int:
    """Write at the rate, for WRITTEN_S; where each partition ends."""
    frame = produce_frame(topic, batch_of(BATCH_RECORDS), range(PARTITIONS))
    pause_s = PARTITIONS * BATCH_BYTES / WRITTEN_MB_S / 1e6
    loop, wire, stored = asyncio.get_running_loop(), await Wire.open(bootstrap), 0
    begun = loop.time()
    for number in range(int(WRITTEN_S / pause_s)):
        await asyncio.sleep(max(0.0, begun + number * pause_s - loop.time()))
        await wire.send(frame)
        stored += not any(codes_of(await wire.receive()))
    await wire.close()
    return stored * BATCH_RECORDS


def at_the_tail(agent: FloeAgent, readers: int) -> tuple[float, float, float]:
    """CPU seconds of the agent, seconds, bytes read, while the topic is written and so many read its tail."""
    topic = f"{TAIL}-{readers}"
    asyncio.run(create_topic(agent.bootstrap, topic, PARTITIONS))
    time.sleep(LED_S)
    requests = int(WRITTEN_S / (PARTITIONS * BATCH_BYTES / WRITTEN_MB_S / 1e6))
    running = reading(agent.bootstrap, topic, requests * BATCH_RECORDS, readers)
    time.sleep(LED_S)
    cpu, begun = cpu_seconds(agent.pid), time.perf_counter()
    end = asyncio.run(written(agent.bootstrap, topic))
    assert end == requests * BATCH_RECORDS, "the writer was refused"
    for process in running:
        assert process.wait() == 0, "a reader failed"
    seconds = time.perf_counter() - begun
    return cpu_seconds(agent.pid) - cpu, seconds, readers * PARTITIONS * requests * BATCH_BYTES


def tailing(agent: FloeAgent) -> Iterable[Figure]:
    """READERS at the tail, beside the writing alone."""
    alone, _, _ = at_the_tail(agent, 0)
    spent, seconds, size = at_the_tail(agent, READERS)
    title = f"{READERS} readers at the tail of one topic, {WRITTEN_MB_S:g} MB/s written"
    cost = (spent - alone) / size * 1e9
    yield Figure(f"{title}: agent CPU", cost, "CPU-s/GB out", goal=CPU_GOAL_S, better="less")
    yield Figure(f"{title}: read", size / seconds / 1e6, "MB/s")


def from_memory(agent: FloeAgent) -> Iterable[Figure]:
    """READERS of what the agent has in memory, as fast as they can."""
    asyncio.run(create_topic(agent.bootstrap, MEMORY, PARTITIONS))
    time.sleep(LED_S)
    frame = produce_frame(MEMORY, batch_of(BATCH_RECORDS), range(PARTITIONS))
    asyncio.run(produce_all(agent.bootstrap, frame, STORED_REQUESTS, 5))
    cpu, begun = cpu_seconds(agent.pid), time.perf_counter()
    for process in reading(agent.bootstrap, MEMORY, STORED_REQUESTS * BATCH_RECORDS, READERS):
        assert process.wait() == 0, "a reader failed"
    cpu, seconds = cpu_seconds(agent.pid) - cpu, time.perf_counter() - begun
    size = READERS * PARTITIONS * STORED_REQUESTS * BATCH_BYTES
    title = f"{READERS} readers of one topic, from memory"
    yield Figure(f"{title}: read", size / seconds / 1e6, "MB/s", goal=OUT_GOAL_MB_S)
    yield Figure(f"{title}: agent CPU", cpu / size * 1e9, "CPU-s/GB out", goal=CPU_GOAL_S, better="less")


def figures() -> Iterable[Figure]:
    """Both, of one agent on SQLite and a folder."""
    with TemporaryDirectory() as folder, FloeAgent("agent", patient(embedded(folder)), Path(folder)) as agent:
        yield from tailing(agent)
        yield from from_memory(agent)


def main(arguments: list[str]) -> None:
    """Without arguments the bench; else readers: of which agent and topic, to which offset, how many."""
    if not arguments:
        for figure in figures():
            print(figure.line(), flush=True)
        return
    bootstrap, topic, end, count = arguments
    failed = list[BaseException]()

    def one() -> None:
        try:
            read(bootstrap, topic, int(end))
        except BaseException as error:
            failed.append(error)

    readers = [threading.Thread(target=one) for _ in range(int(count))]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
    if failed:
        raise failed[0]


if __name__ == "__main__":
    main(sys.argv[1:])
