"""A real S3 server that is paused, killed and started again: what is told is true, and all is well after."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from deploy.services import Minio
from objectstore.open import open_store
from objectstore.retry import RetryPolicy
from objectstore.store import CREATE, Ambiguous, ObjectStore, Retryable, StoreError

pytestmark = pytest.mark.services


@pytest.fixture(scope="module")
def server() -> Iterator[Minio]:
    with Minio() as started:
        started.make_bucket("faults")
        yield started


def opened(server: Minio, retry: RetryPolicy | None) -> ObjectStore:
    return open_store(
        "s3://faults/p",
        endpoint=server.endpoint,
        access_key=server.access_key,
        secret_key=server.secret_key,
        allow_http=True,
        request_s_max=1.0,
        retry=retry,
    )


async def test_a_paused_server_leaves_a_put_unknown_and_a_get_retryable(server: Minio) -> None:
    store = opened(server, None)
    await store.put("warm", [b"x"])
    server.pause()
    try:
        with pytest.raises(Ambiguous):
            await store.put("paused", [b"x"], CREATE)
        with pytest.raises(Retryable):
            await store.get("warm")
    finally:
        server.resume()
    assert await store.get("warm") == b"x"


async def test_a_create_through_a_pause_succeeds_although_the_first_try_may_land_late(server: Minio) -> None:
    store = opened(server, RetryPolicy(tries_max=20))
    await asyncio.gather(*(store.put(f"warm/{number}", [b"x"]) for number in range(8)))
    server.pause()
    try:
        putting = [asyncio.create_task(store.put(f"late/{n}", [b"%d" % n], CREATE)) for n in range(8)]
        done, _ = await asyncio.wait(putting, timeout=1.5)  # every first try has given up by then
        assert not done
    finally:
        server.resume()
    await asyncio.gather(*putting)
    assert [await store.get(f"late/{n}") for n in range(8)] == [b"%d" % n for n in range(8)]


async def test_a_killed_server_is_waited_for(server: Minio) -> None:
    once = opened(server, None)
    await once.put("kept", [b"x"])
    server.kill()
    with pytest.raises(StoreError):
        await once.put("a", [b"x"], CREATE)
    with pytest.raises(Retryable):
        await opened(server, None).get("kept")
    patient = opened(server, RetryPolicy(tries_max=200, total_s_max=60))
    putting = asyncio.create_task(patient.put("after", [b"y"], CREATE))
    await asyncio.to_thread(server.restart)
    await putting
    assert (await patient.get("after"), await patient.get("kept")) == (b"y", b"x")
