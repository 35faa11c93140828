"""What the wire costs: decoding and encoding by the message, and the server by the gigabyte.

The server runs in a process of its own, reads 1 MB Produce requests of several pipelining connections,
decodes them, and answers; nothing is stored. Its CPU time comes from its own process clock.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Callable, Iterable

import uvloop

from agent.net.connection import Limits
from agent.net.listening import Listener, RequestContext
from agent.net.server import Server
from agent.net.wire.api import APIS
from agent.net.wire.frame import RequestHeader, encode_request_header, frame_request
from agent.net.wire.generated import fetch, metadata, produce
from agent.net.wire.primitives import Buffer
from tests.bench.figure import ROUNDS, Figure, median

BATCH = memoryview(bytes(16 * 1024))
PARTITIONS = 8
TOPIC_ID = bytes(range(16))
CALLS_S = 0.2  # each measurement repeats its call for this long, seconds
CONNECTIONS, WINDOW, REQUESTS = 4, 5, 300
MB = 1_000_000


def micros(call: Callable[[], object]) -> float:
    """CPU microseconds of one call: the median of several measurements."""

    def measure() -> float:
        count, begun = 0, time.process_time()
        while (spent := time.process_time() - begun) < CALLS_S:
            for _ in range(10):
                call()
            count += 10
        return spent / count * 1e6

    return median(measure)


def produce_request(version: int, topics: int) -> memoryview:
    """A request of eight batches, spread over so many topics."""
    per_topic = PARTITIONS // topics
    data = [
        produce.TopicProduceData(
            f"flights{t}", TOPIC_ID, [produce.PartitionProduceData(n, BATCH) for n in range(per_topic)]
        )
        for t in range(topics)
    ]
    return memoryview(b"".join(produce.encode_request(produce.ProduceRequest(None, -1, 1000, data), version)))


def produce_response() -> produce.ProduceResponse:
    """The answer to eight batches."""
    parts = [produce.PartitionProduceResponse(n, 0, 123_456_789) for n in range(PARTITIONS)]
    return produce.ProduceResponse([produce.TopicProduceResponse("flights", TOPIC_ID, parts)])


def fetch_response() -> fetch.FetchResponse:
    """Eight partitions with 16 KiB each."""
    parts = [fetch.PartitionData(n, 0, 1000, 1000, 0, records=BATCH) for n in range(PARTITIONS)]
    return fetch.FetchResponse(responses=[fetch.FetchableTopicResponse("flights", TOPIC_ID, parts)])


def metadata_response(topics: int, partitions: int) -> metadata.MetadataResponse:
    """Topics with so many partitions each, three replicas."""
    return metadata.MetadataResponse(
        brokers=[metadata.MetadataResponseBroker(n, f"agent-{n}.floe", 9092) for n in range(3)],
        cluster_id="floe",
        controller_id=0,
        topics=[
            metadata.MetadataResponseTopic(
                0,
                f"topic-{t}",
                TOPIC_ID,
                partitions=[
                    metadata.MetadataResponsePartition(0, p, p % 3, 0, [0, 1, 2], [0, 1, 2])
                    for p in range(partitions)
                ],
            )
            for t in range(topics)
        ],
    )


def codecs() -> Iterable[Figure]:
    """Microseconds per message. Goals: what KAFKA's generated codecs were seen to reach in Python."""
    one, many = produce_request(9, 1), produce_request(9, PARTITIONS)
    produced, fetched = produce_response(), fetch_response()
    hundred, ten_thousand = metadata_response(100, 8), metadata_response(100, 100)
    calls: list[tuple[str, float | None, Callable[[], object]]] = [
        ("produce request, 8 x 16 KiB, one topic: decode", 13, lambda: produce.decode_request(one, 9)),
        ("produce request, 8 x 16 KiB, 8 topics: decode", 13, lambda: produce.decode_request(many, 9)),
        ("produce response, 8 partitions: encode", 5, lambda: produce.encode_response(produced, 9)),
        ("fetch response, 8 x 16 KiB: encode", 13, lambda: fetch.encode_response(fetched, 12)),
        ("metadata response, 100 x 8: encode", 2_000, lambda: metadata.encode_response(hundred, 12)),
        ("metadata response, 100 x 100: encode", None, lambda: metadata.encode_response(ten_thousand, 12)),
    ]
    for name, goal, call in calls:
        yield Figure(name, micros(call), "µs", goal=goal, better="less")


async def answer(context: RequestContext, header: RequestHeader, body: memoryview) -> list[Buffer]:
    """Decode a Produce and accept all of it."""
    request = produce.decode_request(body, context.api_version)
    topics = [
        produce.TopicProduceResponse(
            t.name,
            t.topic_id,
            [produce.PartitionProduceResponse(p.index, 0, 0) for p in t.partition_data],
        )
        for t in request.topic_data
    ]
    return produce.encode_response(produce.ProduceResponse(topics), context.api_version)


async def serve() -> None:
    """The server's process: says its port, and its CPU time when its standard input ends."""
    server = Server(answer, Limits())
    (port,) = await server.start([Listener("BENCH", "127.0.0.1", 0)])
    print(port, flush=True)
    begun = time.process_time()
    await asyncio.to_thread(sys.stdin.read)
    print(time.process_time() - begun, flush=True)
    await server.drain(1)


async def load(port: int, frame: bytes) -> None:
    """One connection: WINDOW requests on their way at any time."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    window = asyncio.Semaphore(WINDOW)

    async def read() -> None:
        for _ in range(REQUESTS):
            await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
            window.release()

    answers = asyncio.create_task(read())
    for _ in range(REQUESTS):
        await window.acquire()
        writer.write(frame)
        await writer.drain()
    await answers
    writer.close()
    await writer.wait_closed()


def throughput() -> tuple[float, float]:
    """MB/s, and CPU seconds per GB of the server."""
    header = encode_request_header(APIS[0], 9, 1, "bench")
    data = [
        produce.TopicProduceData(
            "flights", TOPIC_ID, [produce.PartitionProduceData(0, memoryview(bytes(MB)))]
        )
    ]
    frame = frame_request(header, produce.encode_request(produce.ProduceRequest(None, -1, 1000, data), 9))
    command = [sys.executable, "-m", "tests.bench.bench_wire"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        port = int(process.stdout.readline())

        async def run() -> float:
            begun = time.perf_counter()
            await asyncio.gather(*(load(port, frame) for _ in range(CONNECTIONS)))
            return time.perf_counter() - begun

        spent = uvloop.run(run())
        process.stdin.close()
        cpu = float(process.stdout.readline())
    size = len(frame) * REQUESTS * CONNECTIONS
    return size / MB / spent, cpu / (size / 1e9)


def figures() -> Iterable[Figure]:
    """Every figure of the wire."""
    yield from codecs()
    runs = sorted(throughput() for _ in range(ROUNDS))
    speed, cpu = runs[len(runs) // 2]
    yield Figure("server, 1 MB produce requests, decoded and answered", speed, "MB/s")
    yield Figure("server, 1 MB produce requests, CPU", cpu, "CPU-s/GB", better="less")


if __name__ == "__main__":
    uvloop.run(serve())
