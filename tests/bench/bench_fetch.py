"""The fetch path: raw frames against one agent on SQLite and MinIO, from memory and from the bucket.

The tail is what the agent flushed itself; cold is the same data after a restart, when nothing is in memory.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory

from deploy.services import Minio
from deploy.services.floe import FloeAgent
from tests.bench.figure import Figure, median
from tests.bench.load import batch_of, create_topic, fetch_all, produce_all, produce_frame

PARTITIONS, RECORDS_PER_BATCH, REQUESTS = 16, 16, 400  # 105 MB: fits the tail's cache
PARTITION_BYTES_MAX, BYTES_MAX = 1 << 20, 50 << 20  # the Java consumer's defaults
_topics = itertools.count(1)


def settings(folder: str, minio: Minio) -> dict[str, object]:
    """An agent whose log is a file, so that the store is what is measured."""
    return {
        "log": {"url": f"sqlite://{folder}/log.sqlite"},
        "store": {
            "url": f"s3://{minio.make_bucket('fetch-bench')}/floe",
            "endpoint": minio.endpoint,
            "access_key": minio.access_key,
            "secret_key": minio.secret_key,
            "allow_http": True,
        },
        "fetch": {"cold_cache_bytes_max": 1 << 20},
        "tables": {"enabled": False},
        "logging": {"level": "warning"},
    }


async def fill(bootstrap: str) -> str:
    """A topic with data; returns its name."""
    topic = f"fetch-{next(_topics)}"
    await create_topic(bootstrap, topic, PARTITIONS)
    frame = produce_frame(topic, batch_of(RECORDS_PER_BATCH), range(PARTITIONS))
    await produce_all(bootstrap, frame, REQUESTS, 5)
    return topic


def read(bootstrap: str, topic: str) -> float:
    """MB/s (10^6 bytes) of one consumer reading everything."""
    ends = [REQUESTS * RECORDS_PER_BATCH] * PARTITIONS
    begin = time.perf_counter()
    size = fetch_all(bootstrap, topic, ends, PARTITION_BYTES_MAX, BYTES_MAX)
    return size / (time.perf_counter() - begin) / 1e6


def figures() -> Iterable[Figure]:
    """Tail, then cold."""
    with TemporaryDirectory() as folder, Minio() as minio:
        chosen = settings(folder, minio)
        with FloeAgent("bench", chosen, Path(folder)) as agent:
            topic = asyncio.run(fill(agent.bootstrap))
            read(agent.bootstrap, topic)
            tail = median(lambda: read(agent.bootstrap, topic))
        with FloeAgent("bench", chosen, Path(folder)) as agent:
            cold = median(lambda: read(agent.bootstrap, topic))
    yield Figure("tail fetch, one agent, from memory", tail, "MB/s", goal=150)
    yield Figure("cold fetch from MinIO", cold, "MB/s", goal=80)
