"""Following over a scripted server in virtual time: who asks, and when a watch is taken for dead."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import aclosing
from typing import Any

import pytest

from coordination.clock import ManualClock
from coordination.etcd.follower import Follower, FollowOptions, Head
from coordination.etcd.keys import Keys
from coordination.etcd.proto import kv_pb2
from coordination.etcd.proto import rpc_pb2 as pb
from coordination.etcd.watch import WatchStream
from coordination.log import Entries, EntryName, LogRegressed
from tests.sim.loop import VirtualLoop

OPTIONS = FollowOptions(progress_s=0.5, silent_s=2.0)
SECONDS = 30.0
KEYS = Keys("c")


class Server:
    """An etcd whose revision stands at 7; its watches answer requests for progress while it is `alive`.

    `entry`: the one key of the log, if there is any.
    """

    def __init__(self) -> None:
        self.watches = self.progress_requests = 0
        self.calls: list[Call] = []
        self.alive = True
        self.revision = 7
        self.entry: kv_pb2.KeyValue | None = None

    async def txn(self, request: pb.TxnRequest) -> pb.TxnResponse:
        response = pb.TxnResponse(header=pb.ResponseHeader(revision=self.revision), succeeded=True)
        for operation in request.success:
            asked, answer = operation.request_range, response.responses.add().response_range
            answer.SetInParent()
            if self.entry is not None and asked.key in (KEYS.log, self.entry.key):
                answer.kvs.extend([self.entry] * (self.entry.mod_revision >= asked.min_mod_revision))
        return response

    async def watch(self, create: pb.WatchCreateRequest) -> WatchStream:
        self.watches += 1
        self.calls.append(Call(self))
        stream = WatchStream(self.calls[-1], "scripted")
        await stream.open(create, 1.0)
        return stream


class Call:
    """One stream."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._answers: asyncio.Queue[pb.WatchResponse] = asyncio.Queue()

    async def write(self, request: pb.WatchRequest) -> None:
        header = pb.ResponseHeader(revision=self._server.revision)
        if request.HasField("create_request"):
            await self._answers.put(pb.WatchResponse(header=header, created=True))
            return
        self._server.progress_requests += 1
        if self._server.alive:
            await self._answers.put(pb.WatchResponse(header=header))

    def say(self, response: pb.WatchResponse) -> None:
        """Say something that nobody asked for."""
        self._answers.put_nowait(response)

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


def reader(server: Server, head: Head) -> Follower:
    return Follower(server, KEYS, head, ManualClock(), OPTIONS)  # type: ignore[arg-type]  # what it asks of a client


async def follow(server: Server, barrier_every_s: float) -> None:
    """Follow for SECONDS while read barriers find the same revision all the time."""
    head = Head()
    follower = reader(server, head)

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


def test_a_watch_that_brings_entries_is_not_asked_how_far_it_is() -> None:
    """Each entry is a sign of life; once they cease it is asked again, and so it is not taken for dead."""
    server, asked = Server(), []

    async def read() -> None:
        async for _ in reader(server, Head()).follow(0):
            pass

    async def write() -> None:
        reading = asyncio.ensure_future(read())
        await asyncio.sleep(OPTIONS.progress_s / 2)  # at its beginning it is asked where it stands
        asked.append(server.progress_requests)
        for number in range(100):
            server.revision += 1
            server.calls[-1].say(pb.WatchResponse(header=pb.ResponseHeader(revision=server.revision)))
            await asyncio.sleep(OPTIONS.progress_s * (0.2 if number % 2 else 0.7))
        asked.append(server.progress_requests)
        await asyncio.sleep(2 * OPTIONS.silent_s)
        asked.append(server.progress_requests)
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)

    virtually(write())
    assert asked[1] == asked[0]
    assert asked[2] - asked[1] >= 2 * OPTIONS.silent_s / OPTIONS.progress_s - 2
    assert server.watches == 1


def test_a_silent_watch_is_left_however_often_somebody_asks() -> None:
    server = Server()
    server.alive = False
    virtually(follow(server, 0.3))
    assert server.watches > 5


def one_entry(revision: int) -> kv_pb2.KeyValue:
    """The log's only key: entry 1 of incarnation 5."""
    return kv_pb2.KeyValue(key=KEYS.entry(5, 1), value=b"x", mod_revision=revision)


async def first(follower: Follower, after: int, last: EntryName | None = None) -> Entries:
    """What following gives at first."""
    async with asyncio.timeout(SECONDS), aclosing(follower.follow(after, last)) as batches:
        async for batch in batches:
            return batch
    raise AssertionError("following ends with an exception only")


def test_what_watches_that_say_nothing_hold_back_is_read_by_range() -> None:
    server = Server()
    server.alive, server.entry = False, one_entry(6)

    async def read() -> None:
        batch = await first(reader(server, Head()), 3)
        assert [entry.revision for entry in batch.entries] == [6]
        assert batch.through == 7

    virtually(read())


def test_a_revision_that_somebody_heard_of_is_asked_for_without_a_wait() -> None:
    """A read barrier would else wait for as long as the watch is left alone."""
    server, head = Server(), Head()

    async def read() -> None:
        seen: list[int] = []

        async def go_on() -> None:
            async for batch in reader(server, head).follow(7):
                seen.append(batch.through)

        following = asyncio.ensure_future(go_on())
        await asyncio.sleep(OPTIONS.progress_s / 10)
        asked = server.progress_requests
        server.revision = 8
        head.seen(8, awaited=True)
        for _ in range(20):
            await asyncio.sleep(0)  # no time goes by
        assert server.progress_requests == asked + 1
        assert seen == [8]
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)

    virtually(read())


def test_who_starts_hears_that_it_is_there_as_soon_as_etcd_says_so() -> None:
    """While a watch catches up etcd answers no question; behind the last entry comes no event either."""
    server = Server()
    server.alive = False

    async def read() -> None:
        loop = asyncio.get_running_loop()
        loop.call_later(0.2, setattr, server, "alive", True)
        assert (await first(reader(server, Head()), 3)).through == 7
        assert loop.time() < 0.2 + OPTIONS.progress_s / 2
        assert server.watches == 1

    virtually(read())


def test_an_answer_from_before_what_was_known_is_a_log_that_went_back() -> None:
    server, head = Server(), Head()
    head.seen(9)

    async def read() -> None:
        with pytest.raises(LogRegressed, match="revision 7 and was at 9 before"):
            await first(reader(server, head), 3)
        with pytest.raises(LogRegressed, match="revision 7 and was at 8 before"):
            await first(reader(server, Head()), 8)

    virtually(read())


@pytest.mark.parametrize("revision", [0, 5, 7])
def test_an_entry_that_stands_elsewhere_than_it_did_is_another_log(revision: int) -> None:
    """Restored from an older backup, the same author wrote its next entry again, at another revision."""
    server = Server()
    server.entry = one_entry(revision) if revision else None

    async def read() -> None:
        with pytest.raises(LogRegressed, match="the entry of revision 6 is not in etcd any more"):
            await first(reader(server, Head()), 6, EntryName(6, 5, 1))

    virtually(read())
