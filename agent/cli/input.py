"""Lines of standard input as they come, for `floe produce`."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import suppress
from typing import TextIO

from agent.cli.failures import usage

READ_BYTES = 65_536
Numbered = tuple[int, str]
"""A line and where it stands, from 1."""


async def given(texts: Sequence[str], lines_max: int) -> AsyncIterator[Sequence[Numbered]]:
    """Texts that are all there, `lines_max` at a time."""
    for begin in range(0, len(texts), lines_max):
        yield list(enumerate(texts[begin : begin + lines_max], begin + 1))


async def piped(source: TextIO, lines_max: int) -> AsyncIterator[Sequence[Numbered]]:
    """Whatever has come since the last look, at least one line and `lines_max` at most; ends with the input.

    A thread reads ahead, `lines_max` lines at most. Raises Failure for a line that is no text.
    """
    loop = asyncio.get_running_loop()
    queue: asyncio.Queue[Numbered | Exception | None] = asyncio.Queue()
    room = threading.Semaphore(lines_max)

    def put(item: Numbered | Exception | None) -> None:
        room.acquire()
        loop.call_soon_threadsafe(queue.put_nowait, item)

    def pump() -> None:
        number = 0
        with suppress(RuntimeError):  # the loop is closed: the command has ended
            try:
                for number, line in enumerate(_lines(source), 1):
                    put((number, line))
            except (OSError, ValueError) as error:
                put(usage(f"record {number + 1} cannot be read: {error}; give text in UTF-8"))
            put(None)

    threading.Thread(target=pump, name="floe-stdin", daemon=True).start()
    while True:
        items = [await queue.get()]
        while len(items) < lines_max and not queue.empty():
            items.append(queue.get_nowait())
        room.release(len(items))
        lines = [item for item in items if isinstance(item, tuple)]
        if lines:
            yield lines
        for item in items:
            if isinstance(item, Exception):
                raise item
            if item is None:
                return


def _lines(source: TextIO) -> Iterator[str]:
    """The lines without their ends. Reads the descriptor itself where there is one.

    A thread that waits inside sys.stdin would hold its lock when the command ends.
    """
    try:
        descriptor = source.fileno()
    except OSError:  # no file, as in tests
        yield from (line.rstrip("\n") for line in source)
        return
    rest = b""
    while data := os.read(descriptor, READ_BYTES):
        *whole, rest = (rest + data).split(b"\n")
        for line in whole:
            yield line.decode()
    if rest:
        yield rest.decode()
