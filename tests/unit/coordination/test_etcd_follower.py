"""Following over a scripted server in virtual time: who asks, and when a watch is taken for dead."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from coordination.clock import ManualClock
from coordination.etcd.follower import Follower, FollowOptions, Head
from coordination.etcd.keys import Keys
from coordination.etcd.proto import rpc_pb2 as pb
from coordination.etcd.watch import WatchStream
from tests.sim.loop import VirtualLoop

OPTIONS = FollowOptions(progress_s=0.5, silent_s=2.0)
SECONDS = 30.0


class Server:
    """An etcd whose revision stands at 7; its watches answer requests for progress while it is `alive`."""

    def __init__(self) -> None:
        self.watches = self.progress_requests = 0
        self.alive = True

    async def txn(self, request: pb.TxnRequest) -> pb.TxnResponse:
        response = pb.TxnResponse(header=pb.ResponseHeader(revision=7), succeeded=True)
        for _ in request.success:
            response.responses.add().response_range.SetInParent()
        return response

    async def watch(self, create: pb.WatchCreateRequest) -> WatchStream:
        self.watches += 1
        stream = WatchStream(Call(self), "scripted")
        await stream.open(create, 1.0)
        return stream


class Call:
    """One stream."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._answers: asyncio.Queue[pb.WatchResponse] = asyncio.Queue()

    async def write(self, request: pb.WatchRequest) -> None:
        header = pb.ResponseHeader(revision=7)
        if request.HasField("create_request"):
            await self._answers.put(pb.WatchResponse(header=header, created=True))
            return
        self._server.progress_requests += 1
        if self._server.alive:
            await self._answers.put(pb.WatchResponse(header=header))

    async def read(self) -> object:
        return await self._answers.get()

    def cancel(self) -> bool:
        return True


def virtually(work: Coroutine[Any, Any, None]) -> None:
    """Run it in virtual time."""
    loop = VirtualLoop(1)
    try:
        loop.run_until_complete(work)
    finally:
        loop.put_away()


async def follow(server: Server, barrier_every_s: float) -> None:
    """Follow for SECONDS while read barriers find the same revision all the time."""
    head = Head()
    follower = Follower(server, Keys("c"), head, ManualClock(), OPTIONS)  # type: ignore[arg-type]  # what it asks of a client

    async def read() -> None:
        async for _ in follower.follow(0):
            pass

    async def ask() -> None:
        while True:
            head.seen(7, awaited=True)
            await asyncio.sleep(barrier_every_s)

    both = [asyncio.ensure_future(read()), asyncio.ensure_future(ask())]
    await asyncio.wait(both, timeout=SECONDS)
    for task in both:
        task.cancel()
    await asyncio.gather(*both, return_exceptions=True)


@pytest.mark.parametrize("barrier_every_s", [0.01, 0.3, 0.499, 0.5, 0.7, 100.0])
def test_steady_reads_without_writes_leave_the_watch_alone(barrier_every_s: float) -> None:
    """Every barrier wakes whoever asks for progress; it asked only when nothing had woken it."""
    server = Server()
    virtually(follow(server, barrier_every_s))
    assert server.watches == 1
    assert SECONDS / OPTIONS.progress_s - 2 <= server.progress_requests <= SECONDS / OPTIONS.progress_s + 2


def test_a_silent_watch_is_left_however_often_somebody_asks() -> None:
    server = Server()
    server.alive = False
    virtually(follow(server, 0.3))
    assert server.watches > 5
