"""Latency of one append on each log, against the floor of what it rests on.

The floor of etcd is the same transaction over the bare stub; that of SQLite an fsync of one page
appended to a file beside it.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from pathlib import Path

import grpc

from coordination.clock import SystemClock
from coordination.etcd import keys as requests
from coordination.etcd.keys import Keys
from coordination.etcd.stubs import KV
from coordination.log import Log
from coordination.memory_log import MemoryLog
from coordination.memory_server import MemoryServer
from coordination.open import open_log
from deploy.services import Etcd
from tests.bench.figure import Figure, interleaved

APPENDS = 400
SIZES = {"200 B": 200, "20 kB": 20_000}
INFO = b"i" * 100  # about what an agent registers with
_numbers = iter(range(1, 1_000_000))


async def typical_ms(step: Callable[[], Awaitable[object]]) -> float:
    """The median time of a step, ms."""
    taken = []
    for _ in range(APPENDS):
        begin = time.perf_counter()
        await step()
        taken.append(time.perf_counter() - begin)
    return statistics.median(taken) * 1000


def append_ms(make: Callable[[], Log], size: int) -> float:
    """One chain, one append after the other."""

    async def measure() -> float:
        log = make()
        chain = await log.register(next(_numbers), INFO, 30.0)
        payload = os.urandom(size)
        typical = await typical_ms(lambda: chain.append(payload))
        await chain.close()
        await log.close()
        return typical

    return asyncio.run(measure())


def bare_txn_ms(etcd: Etcd, size: int) -> float:
    """The append's transaction without client, chain or retries."""

    async def measure() -> float:
        keys, incarnation, payload = Keys("floor"), next(_numbers), os.urandom(size)
        revision, sequence = 0, 0
        async with grpc.aio.insecure_channel(etcd.endpoint) as channel:
            stub = KV(channel)

            async def step() -> None:
                nonlocal revision, sequence
                sequence += 1
                request = requests.append(
                    keys, incarnation, sequence, payload, info=INFO, lease=0, expected=revision
                )
                response = await stub.Txn(request)
                assert response.succeeded
                revision = response.header.revision

            return await typical_ms(step)

    return asyncio.run(measure())


def fsync_ms(folder: Path, size: int) -> float:
    """What SQLite's WAL does at least: append and fsync."""
    payload, taken = os.urandom(max(size, 4096)), []
    with open(folder / "floor", "ab", buffering=0) as file:
        for _ in range(APPENDS):
            begin = time.perf_counter()
            file.write(payload)
            os.fsync(file.fileno())
            taken.append(time.perf_counter() - begin)
    return statistics.median(taken) * 1000


def figures() -> Iterable[Figure]:
    """p50 of an append per adapter and size."""
    clock = SystemClock()
    with tempfile.TemporaryDirectory(prefix="floe-bench-", dir=Path.cwd() / "build") as name, Etcd() as etcd:
        folder = Path(name)
        for label, size in SIZES.items():
            etcd_log, floor, sqlite_log, fsync, memory = interleaved(
                [
                    partial(append_ms, lambda: open_log(f"etcd://{etcd.endpoint}/bench", clock), size),
                    partial(bare_txn_ms, etcd, size),
                    partial(append_ms, lambda: open_log(f"sqlite://{folder}/log.db", clock), size),
                    partial(fsync_ms, folder, size),
                    partial(append_ms, lambda: MemoryLog(MemoryServer(), clock), size),
                ]
            )
            yield Figure(f"append etcd {label} p50", etcd_log, "ms", "bare transaction", floor, 1.3, "less")
            yield Figure(
                f"append SQLite {label} p50", sqlite_log, "ms", "write + fsync", fsync, better="less"
            )
            yield Figure(f"append memory {label} p50", memory, "ms", better="less")
