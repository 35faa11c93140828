"""Delays in front of a server, as a process of its own: an object store's by its profile, or a link's.

Store: every HTTP request's answer is held until the drawn delay after its first byte is over, and no longer
than the server itself takes where that is more. One request at a time on a connection, as HTTP/1.1 clients
have it. Chunks have draws of their own, by kind: what else an agent writes does not shift them.
Link: whatever the server says comes `LINK_S` later. etcd's members dial one another both ways and hear what
is new by the answers, so that is the time of each single way between them.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import queue
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import cast

import uvloop

from tests.bench.cloud.delays import PROFILES, Delay, Profile, draws

COUNTS = b"GET /floe-bench-counts "
METHODS = (b"GET", b"PUT", b"HEAD", b"POST", b"DELETE")
LINK_S = 0.0005  # each way, 1 ms there and back
OPENING_MAX = 1 << 26  # bytes of a connection that wait until the server is reached


class Weather:
    """What is drawn for the next request, and what came: counts by kind, `PUT chunk` and the like."""

    def __init__(self, profile: Profile, seed: int) -> None:
        self._profile, self._seed = profile, seed
        self._draws: dict[str, Iterator[float]] = {}
        self.counts: Counter[str] = Counter()

    def next_s(self, head: bytes) -> float:
        """The delay of a request that begins with these bytes."""
        method, path, _ = head.split(b" ", 2)
        kind = f"{method.decode()} {'chunk' if b'/chunks/' in path else 'other'}"
        self.counts[kind] += 1
        if kind not in self._draws:
            delay: Delay = self._profile.of(method.decode())
            self._draws[kind] = draws(delay, self._seed + sum(kind.encode()))
        return next(self._draws[kind])


class Back(asyncio.Protocol):
    """The server's side of a connection."""

    def __init__(self, front: Front) -> None:
        self._front = front

    def data_received(self, data: bytes) -> None:
        """A piece of an answer."""
        self._front.answer(data)

    def connection_lost(self, error: Exception | None) -> None:
        """The server hung up."""
        self._front.hang_up()


class Front(asyncio.Protocol):
    """The client's side of a connection."""

    def __init__(self, target: tuple[str, int], weather: Weather) -> None:
        self._target, self._weather = target, weather
        self._loop = asyncio.get_running_loop()
        self._early: list[bytes] = []
        self._held: list[bytes] = []
        self._back: asyncio.Transport | None = None
        self._asking = False
        self._due = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Dial the server."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's are none of asyncio's
        self._dialing = self._loop.create_task(self._dial())

    async def _dial(self) -> None:
        self._back, _ = await self._loop.create_connection(lambda: Back(self), *self._target)
        self._back.writelines(self._early)
        self._early.clear()
        if self._transport.is_closing():
            self._back.close()

    def data_received(self, data: bytes) -> None:
        """A request's beginning, or more of it."""
        if not self._asking and data.startswith(COUNTS):
            body = json.dumps(self._weather.counts).encode()
            self._transport.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
            return
        if not self._asking and data.split(b" ", 1)[0] in METHODS:
            self._asking = True
            self._due = self._loop.time() + self._weather.next_s(data)
        if self._back is not None:
            self._back.write(data)
        else:
            assert sum(map(len, self._early)) < OPENING_MAX, "the server is not reached"
            self._early.append(data)

    def answer(self, data: bytes) -> None:
        """Pass on what the server says, once it is time."""
        if self._asking and not self._held:
            self._loop.call_at(self._due, self._release)
        if self._asking:
            self._held.append(data)
        else:
            self._transport.write(data)

    def _release(self) -> None:
        self._asking = False
        self._transport.writelines(self._held)
        self._held.clear()

    def connection_lost(self, error: Exception | None) -> None:
        """The client hung up; a request that is under way goes on at the server if it has come whole."""
        if self._back is not None:
            self._back.close()

    def hang_up(self) -> None:
        """End the client's side."""
        self._transport.close()


class Line:
    """A thread that hands on what it is given `LINK_S` later, in order: a loop's timers are too coarse."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._waiting: queue.SimpleQueue[tuple[float, Callable[[], None]]] = queue.SimpleQueue()
        threading.Thread(target=self._run, daemon=True).start()

    def later(self, step: Callable[[], None]) -> None:
        """Do it after the way."""
        self._waiting.put((time.monotonic() + LINK_S, step))

    def _run(self) -> None:
        while True:
            due, step = self._waiting.get()
            time.sleep(max(0.0, due - time.monotonic()))
            self._loop.call_soon_threadsafe(step)


async def link(port: int, line: Line, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """One connection of a link to the server on `port`."""
    try:
        there, back = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        writer.close()
        return

    async def pump(source: asyncio.StreamReader, write: Callable[[bytes], None]) -> None:
        try:
            while data := await source.read(1 << 16):
                write(data)
        except OSError:
            pass

    sent: deque[bytes] = deque()

    def late(data: bytes) -> None:
        sent.append(data)
        line.later(lambda: writer.write(sent.popleft()))

    await asyncio.wait(
        [asyncio.create_task(pump(reader, back.write)), asyncio.create_task(pump(there, late))],
        return_when=asyncio.FIRST_COMPLETED,
    )
    writer.close()
    back.close()


async def serve(arguments: argparse.Namespace) -> None:
    """Until killed."""
    loop = asyncio.get_running_loop()
    if arguments.profile:
        weather = Weather(PROFILES[arguments.profile], arguments.seed)
        ((port, target),) = arguments.pair
        server = await loop.create_server(
            lambda: Front(("127.0.0.1", target), weather), "127.0.0.1", port, backlog=1024
        )
    else:
        line = Line()
        for port, target in arguments.pair:
            server = await asyncio.start_server(partial(link, target, line), "127.0.0.1", port)
            await server.start_serving()
    await server.serve_forever()


def main() -> int:
    """`--pair 9001:9000` listens on the first port for a server on the second."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--profile", choices=[*PROFILES], default="")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--pair", type=lambda text: tuple(map(int, text.split(":"))), action="append", required=True
    )
    uvloop.run(serve(parser.parse_args()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
