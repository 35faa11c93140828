"""A helper process for work in Python that would keep the interpreter from the event loop.

In a thread such work competes with the loop: every system call of the loop may wait a switch interval (5 ms)
to get the interpreter back. The helper has one of its own; messages and bytes go through pipes, by system
calls that release the interpreter. It ends when its pipe does, however the agent died.

A thread of the agent's writes and reads. To wake it up, and to wait for the interpreter in it, costs what a
small request is not worth (`light`): the loop itself writes that, and reads the answer as it arrives.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import pickle
import signal
import struct
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import IO, Any

from objectstore import tasks

PIPE_BYTES = (
    1 << 20
)  # of each pipe: what Linux gives everybody; of 64 KiB, its default, each side wakes up often
LIGHT_BYTES_MAX = 32 << 10
"""Of a request, or an answer, that needs no thread. A pipe that holds less (`_room`) is given less."""

BUFFERS_MAX = 512  # written by one system call, each of which may wait for the interpreter (Linux: 1,024)
_HEAD = struct.Struct(">QQ")  # bytes of the message, bytes that follow it

Serve = Callable[[Any, memoryview], tuple[object, Sequence[memoryview]]]


class HelperDied(Exception):
    """The helper ended or failed. What it was doing had no effect; a new one serves the next request."""


class Helper:
    """One helper process, `python -m <module>`, started when first needed; one request at a time.

    A request that takes longer than `seconds_max` is taken for hung: the process is ended.
    """

    def __init__(self, module: str, seconds_max: float) -> None:
        self._module = module
        self._seconds_max = seconds_max
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = asyncio.Lock()
        self._room = 0  # bytes that its pipe takes at once

    @property
    def pid(self) -> int | None:
        """The helper's process id; None while there is none."""
        return self._process.pid if self._process is not None else None

    async def ask(
        self, message: object, parts: Sequence[memoryview] = (), *, light: bool = False
    ) -> tuple[Any, memoryview]:
        """Send a message and bytes, return what it answers. Raises HelperDied; when cancelled it ends too.

        `light`: it is small, and so is its answer, as far as the caller knows.
        """
        async with self._lock:
            if self._process is None:
                self._process = await asyncio.to_thread(_start, self._module)
                self._room = min(LIGHT_BYTES_MAX, _room(self._process))
            exchange: asyncio.Task[tuple[Any, memoryview]] | None = None
            try:
                async with asyncio.timeout(self._seconds_max):
                    left = None
                    if light:
                        left = await _light_exchange(self._process, message, parts, self._room)
                    if isinstance(left, tuple):
                        return left
                    work = left or partial(_exchange, self._process, message, parts)
                    exchange = tasks.owned(asyncio.to_thread(work), "helper")
                    return await asyncio.shield(exchange)
            except BaseException as error:
                await self._end(exchange)
                if isinstance(error, OSError | EOFError | pickle.UnpicklingError):
                    raise HelperDied(f"the helper {self._module} ended: {error!r}") from error
                raise

    async def close(self) -> None:
        """End the helper. Idempotent."""
        async with self._lock:
            await self._end(None)

    async def _end(self, exchange: asyncio.Task[tuple[Any, memoryview]] | None) -> None:
        """Kill the helper, which ends an exchange with it too."""
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        if exchange is not None:
            await asyncio.gather(exchange, return_exceptions=True)
        await asyncio.to_thread(_reap, process)


def serve(answer: Serve) -> None:
    """The helper's own loop: answer requests until the agent closes the pipe or is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the agent decides when its helper ends
    replies = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)  # whatever prints by accident goes to stderr, not between the answers
    while True:
        try:
            request, content = _receive(sys.stdin.buffer)
        except EOFError:
            return
        reply, parts = answer(request, content)
        try:
            _send(replies, reply, parts)
        except BrokenPipeError:  # nobody is left to tell
            return


def _start(module: str) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        [sys.executable, "-m", module],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        bufsize=0,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with suppress(OSError, AttributeError):  # less, or not Linux: there are more, smaller writes
                fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    return process


def _room(process: subprocess.Popen[bytes]) -> int:
    """Bytes that its pipe takes without waiting while it is empty; 0 where the system does not tell."""
    assert process.stdin is not None
    try:
        return fcntl.fcntl(process.stdin, fcntl.F_GETPIPE_SZ)
    except (OSError, AttributeError):
        return 0


def _reap(process: subprocess.Popen[bytes]) -> None:
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()
    process.wait()


async def _light_exchange(
    process: subprocess.Popen[bytes], message: object, parts: Sequence[memoryview], room: int
) -> tuple[Any, memoryview] | Callable[[], tuple[Any, memoryview]] | None:
    """Ask by the event loop: the answer, what is left to a thread of it, or None when nothing was sent.

    `room`: bytes that the pipe, which is empty, takes at once.
    """
    assert process.stdin is not None
    assert process.stdout is not None
    front = _front(message, parts)
    if len(front) + sum(part.nbytes for part in parts) > room:
        return None
    os.write(process.stdin.fileno(), b"".join((front, *parts)))
    arriving = _Arriving(process.stdout.fileno())
    try:
        beginning = await arriving.done
    finally:  # before anybody closes the pipe
        arriving.end()
    if len(beginning) < _HEAD.size:
        raise EOFError("the pipe ended before the answer")
    size = _HEAD.size + sum(_HEAD.unpack_from(beginning))
    if len(beginning) == size:
        return _told(beginning)
    if size <= LIGHT_BYTES_MAX:
        raise EOFError(f"the pipe ended after {len(beginning)} of {size} bytes")
    return partial(_rest, process.stdout, beginning, size)


class _Arriving:
    """What arrives in a pipe, until an answer is whole, is known to be no small one, or the pipe ends."""

    def __init__(self, pipe: int) -> None:
        self._pipe = pipe
        self._found = b""
        self._loop = asyncio.get_running_loop()
        self.done: asyncio.Future[bytes] = self._loop.create_future()
        self._loop.add_reader(pipe, self._ready)

    def end(self) -> None:
        """Look no more."""
        self._loop.remove_reader(self._pipe)

    def _ready(self) -> None:
        if self.done.done():
            return
        try:
            came = os.read(self._pipe, LIGHT_BYTES_MAX)
        except OSError as error:
            self.done.set_exception(error)
            return
        found = self._found = self._found + came if self._found else came
        size = _HEAD.size + sum(_HEAD.unpack_from(found)) if len(found) >= _HEAD.size else _HEAD.size + 1
        if not came or len(found) >= min(size, LIGHT_BYTES_MAX):
            self.done.set_result(found)


def _rest(pipe: IO[bytes], beginning: bytes, size: int) -> tuple[Any, memoryview]:
    """The answer of `size` bytes that begins so, blocking. Raises EOFError."""
    return _told(beginning + bytes(_read_exactly(pipe, size - len(beginning))))


def _told(whole: bytes) -> tuple[Any, memoryview]:
    """A message and the bytes that follow it."""
    length, _ = _HEAD.unpack_from(whole)
    view = memoryview(whole)[_HEAD.size :]
    return pickle.loads(view[:length]), view[length:]


def _exchange(
    process: subprocess.Popen[bytes], message: object, parts: Sequence[memoryview]
) -> tuple[Any, memoryview]:
    """Ask and wait for the answer, blocking."""
    assert process.stdin is not None
    assert process.stdout is not None
    _send(process.stdin, message, parts)
    return _receive(process.stdout)


def _send(pipe: IO[bytes], message: object, parts: Sequence[memoryview]) -> None:
    """Write a message and the bytes that follow it."""
    left = [memoryview(_front(message, parts)), *(part.cast("B") for part in parts if part.nbytes)]
    at = 0
    while at < len(left):
        written = os.writev(pipe.fileno(), left[at : at + BUFFERS_MAX])
        while at < len(left) and written >= left[at].nbytes:
            written -= left[at].nbytes
            at += 1
        if written:
            left[at] = left[at][written:]


def _front(message: object, parts: Sequence[memoryview]) -> bytes:
    """A message as it goes before the bytes that follow it."""
    head = pickle.dumps(message)
    return _HEAD.pack(len(head), sum(part.nbytes for part in parts)) + head


def _receive(pipe: IO[bytes]) -> tuple[Any, memoryview]:
    """Read a message and the bytes that follow it. Raises EOFError when the other side ended."""
    length, following = _HEAD.unpack(_read_exactly(pipe, _HEAD.size))
    return pickle.loads(_read_exactly(pipe, length)), _read_exactly(pipe, following)


def _read_exactly(pipe: IO[bytes], length: int) -> memoryview:
    """`length` bytes. Raises EOFError."""
    content = memoryview(bytearray(length))
    position = 0
    while position < length:
        count = os.readv(pipe.fileno(), [content[position:]])
        if not count:
            raise EOFError(f"the pipe ended after {position} of {length} bytes")
        position += count
    return content.toreadonly()
