"""Where files are written: in a thread, or in a helper process that leaves the agent's interpreter alone.

Turning records into columns is Python work of milliseconds. In a thread it competes with the event loop for
the interpreter: every system call of the loop may wait a switch interval (5 ms) to get it back. The helper
process has an interpreter of its own; slices go to it and files come back through pipes, by system calls
that release the interpreter. It ends when its pipe does, however the agent died.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import struct
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import IO, Protocol

from iceberg import writer
from iceberg.layout import Layout, LayoutBasis
from iceberg.writer import Bounds, FileContent
from objectstore.batch import CorruptBatch

WRITE_SECONDS_MAX = 300.0
"""Longest time for one file before the helper is taken for hung and ended."""

_LENGTH = struct.Struct(">Q")


class WriterDied(Exception):
    """The helper ended or failed while it wrote a file. Nothing was stored; a new one serves the next try."""


class FileWriter(Protocol):
    """Writes one Parquet file; see iceberg.writer.write_file."""

    async def write(
        self, layout: Layout, partition: int, slices: Sequence[memoryview], start: int, end: int
    ) -> FileContent | None:
        """The rows with start ≤ offset < end. Raises CorruptBatch and WriterDied."""
        ...


class ThreadWriter:
    """Writes in a thread of this process."""

    async def write(
        self, layout: Layout, partition: int, slices: Sequence[memoryview], start: int, end: int
    ) -> FileContent | None:
        """See FileWriter."""
        return await asyncio.to_thread(writer.write_file, layout, partition, slices, start, end)


@dataclass(frozen=True, slots=True)
class Request:
    """What the helper is asked for; `lengths` of the slices that follow."""

    basis: LayoutBasis
    partition: int
    start: int
    end: int
    lengths: list[int]


@dataclass(frozen=True, slots=True)
class Answer:
    """What the helper says: an error, or the file's facts; `length` bytes of the file follow."""

    corrupt: str = ""
    failed: str = ""
    rows: int = 0
    bounds: dict[int, Bounds] = field(default_factory=dict)
    split_offsets: list[int] = field(default_factory=list)
    length: int = 0


class ProcessWriter:
    """Writes in a helper process, started when first needed; one file at a time."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = asyncio.Lock()

    @property
    def pid(self) -> int | None:
        """The helper's process id; None while there is none."""
        return self._process.pid if self._process is not None else None

    async def write(
        self, layout: Layout, partition: int, slices: Sequence[memoryview], start: int, end: int
    ) -> FileContent | None:
        """See FileWriter."""
        request = Request(layout.basis, partition, start, end, [len(each) for each in slices])
        async with self._lock:
            if self._process is None:
                self._process = await asyncio.to_thread(_start)
            exchange = asyncio.create_task(asyncio.to_thread(_exchange, self._process, request, slices))
            try:
                async with asyncio.timeout(WRITE_SECONDS_MAX):
                    answer, content = await asyncio.shield(exchange)
            except BaseException as error:
                await self._end(exchange)
                if isinstance(error, OSError | EOFError | pickle.UnpicklingError):
                    raise WriterDied(f"the helper that writes files ended: {error!r}") from error
                raise
        if answer.corrupt:
            raise CorruptBatch(answer.corrupt)
        if answer.failed:
            raise WriterDied(f"the helper failed to write a file: {answer.failed}")
        return FileContent(content, answer.rows, answer.bounds, answer.split_offsets) if answer.rows else None

    async def close(self) -> None:
        """End the helper. Idempotent."""
        async with self._lock:
            await self._end(None)

    async def _end(self, exchange: asyncio.Task[tuple[Answer, memoryview]] | None) -> None:
        """Kill the helper, which ends an exchange with it too."""
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        if exchange is not None:
            await asyncio.gather(exchange, return_exceptions=True)
        await asyncio.to_thread(_reap, process)


def _start() -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "iceberg.writer_process"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        bufsize=0,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )


def _reap(process: subprocess.Popen[bytes]) -> None:
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()
    process.wait()


def _exchange(
    process: subprocess.Popen[bytes], request: Request, slices: Sequence[memoryview]
) -> tuple[Answer, memoryview]:
    """Ask and wait for the answer, blocking."""
    assert process.stdin is not None
    assert process.stdout is not None
    send(process.stdin, request, slices)
    answer, content = receive(process.stdout)
    assert isinstance(answer, Answer)
    return answer, content


def send(pipe: IO[bytes], message: Request | Answer, parts: Sequence[memoryview]) -> None:
    """Write a message and the bytes that follow it."""
    head = pickle.dumps(message)
    for part in (memoryview(_LENGTH.pack(len(head)) + head), *parts):
        left = part.cast("B") if part.nbytes else part
        while left.nbytes:
            left = left[os.write(pipe.fileno(), left) :]


def receive(pipe: IO[bytes]) -> tuple[Request | Answer, memoryview]:
    """Read a message and the bytes that follow it. Raises EOFError when the other side ended."""
    (length,) = _LENGTH.unpack(read_exactly(pipe, _LENGTH.size))
    message: Request | Answer = pickle.loads(read_exactly(pipe, length))
    following = sum(message.lengths) if isinstance(message, Request) else message.length
    return message, read_exactly(pipe, following)


def read_exactly(pipe: IO[bytes], length: int) -> memoryview:
    """`length` bytes. Raises EOFError."""
    content = memoryview(bytearray(length))
    position = 0
    while position < length:
        count = os.readv(pipe.fileno(), [content[position:]])
        if not count:
            raise EOFError(f"the pipe ended after {position} of {length} bytes")
        position += count
    return content.toreadonly()
