"""`floe copy`: bytes copied per second of CPU time of the command.

Its own part: two listings side by side, each object read whole, written whole, and verified: read back where
stores name no content by its digest, as folders do. Between two buckets of one server also with the server
asked to copy by itself. The server's CPU is not counted.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import tempfile
import time
from collections.abc import Iterable
from dataclasses import fields
from pathlib import Path
from typing import NamedTuple

from coordination.clock import SystemClock
from deploy.services import Minio, VersityGw
from deploy.services.s3 import S3Service
from objectstore.across import across
from objectstore.adapters.folder import FolderStore
from objectstore.copying import Copier, Copies, CopyOptions, side_by_side
from objectstore.naming import CHUNKS, ChunkId, chunk_key
from objectstore.open import StoreOptions, open_store
from objectstore.store import ObjectStore
from tests.bench.figure import ROUNDS, Figure, median


class Size(NamedTuple):
    """Of what is copied."""

    objects: int
    bytes_each: int


LARGE, SMALL = Size(24, 8 << 20), Size(512, 64 << 10)
GOAL_MB_S = 100


class Rate(NamedTuple):
    """Per second of CPU time of this process, and of the clock on the wall."""

    cpu_mb_s: float
    wall_mb_s: float
    objects_s: float


async def _rate(source: ObjectStore, target: ObjectStore, size: Size, made: Copies | None) -> Rate:
    content = os.urandom(size.bytes_each)
    for number in range(size.objects):
        await source.put(chunk_key(ChunkId(1, number)), [content])
    cpu, wall = time.process_time(), time.perf_counter()
    copier = Copier(source, target, CopyOptions(), made)
    async for pair in side_by_side(source, target, CHUNKS):
        if pair.source is not None and pair.due:
            await copier.begin(pair.source)
    await copier.end()
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    assert copier.counts.objects == size.objects
    assert copier.counts.by_store == (size.objects if made else 0), copier.counts
    return Rate(copier.counts.bytes / 1e6 / cpu, copier.counts.bytes / 1e6 / wall, size.objects / cpu)


def _between_folders() -> float:
    async def run(folder: Path) -> Rate:
        stores = FolderStore(folder / "source"), FolderStore(folder / "target")
        rate = await _rate(*stores, LARGE, None)
        for each in stores:
            await each.close()
        return rate

    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(run(Path(folder))).cpu_mb_s


def _between_buckets(server: S3Service, name: str, size: Size, *, by_store: bool) -> Rate:
    """`name`: of two new buckets, whose objects are removed again."""
    options = StoreOptions(
        endpoint=server.endpoint,
        access_key=server.access_key,
        secret_key=server.secret_key,
        allow_http=True,
        pace=SystemClock(),
        request_s_max=300,
    )
    urls = f"s3://{server.make_bucket(f'{name}-a')}/main", f"s3://{server.make_bucket(f'{name}-b')}/copy"

    async def run() -> Rate:
        given = {each.name: getattr(options, each.name) for each in fields(options)}
        stores = [open_store(url, **given) for url in urls]
        made = across((urls[0], urls[1]), (options, options), lambda: None) if by_store else None
        rate = await _rate(stores[0], stores[1], size, made)
        for each in stores:
            await each.delete([meta.key async for page in each.list("") for meta in page])
            await each.close()
        return rate

    return asyncio.run(run())


def _rates(server: S3Service, size: Size, *, by_store: bool) -> list[Rate]:
    prefix = f"{'served' if by_store else 'read'}-{size.objects}"
    return [
        _between_buckets(server, f"{prefix}-{number}", size, by_store=by_store) for number in range(ROUNDS)
    ]


def figures() -> Iterable[Figure]:
    """The command's own work."""
    yield Figure("copy: objects between two folders", median(_between_folders), "MB/s of CPU")
    for kind in (Minio, VersityGw):
        with kind() as server:
            yield from _figures(server)


def _figures(server: S3Service) -> Iterable[Figure]:
    for by_store, how in ((False, "read and written"), (True, "by the store itself")):
        large = _rates(server, LARGE, by_store=by_store)
        name = f"copy: objects of 8 MiB in {server.name}, {how}"
        of_cpu = statistics.median(each.cpu_mb_s for each in large)
        yield Figure(name, of_cpu, "MB/s of CPU", goal=GOAL_MB_S)
        yield Figure(f"{name}, wall", statistics.median(each.wall_mb_s for each in large), "MB/s")
        small = _rates(server, SMALL, by_store=by_store)
        name = f"copy: objects of 64 KiB in {server.name}, {how}"
        yield Figure(name, statistics.median(each.objects_s for each in small), "objects/s of CPU")
