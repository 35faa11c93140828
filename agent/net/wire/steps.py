"""Large answers made in steps: the lease, heartbeats and other clients have their turn in between.

A handler that goes through many rows awaits its `Pace` at each. What it made is encoded by `encoded`, some
rows at a time, by the generated codec, which knows no steps. The bytes are the same as the codec's own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from agent.net.wire.api import Codec, Encoded
from agent.net.wire.primitives import varint

ROWS_PER_STEP = 1_000
"""Rows made or encoded before others have their turn: one to three milliseconds."""
ASKING_COST = 10
"""Of one question to the ACLs that is new, in rows that are only made."""


class Pace:
    """Counts a handler's rows, and lets others run now and then."""

    __slots__ = ("_rows",)

    def __init__(self) -> None:
        self._rows = 0

    async def row(self, count: int = 1) -> None:
        """So many rows were made. The state may be another one afterwards."""
        self._rows += count
        if self._rows >= ROWS_PER_STEP:
            self._rows = 0
            await asyncio.sleep(0)


async def encoded(codec: Codec, response: Any, version: int, *path: str) -> Encoded:
    """A response's body. `path`: the array that may have many rows, and the arrays inside its rows that may.

    Nobody else may use the response meanwhile: its arrays are emptied and filled again.
    """
    if _weight(response, path) <= ROWS_PER_STEP:
        return Encoded(codec.encode_response(response, version))
    buffers: list[bytes] = []
    for piece in _pieces(lambda: b"".join(codec.encode_response(response, version)), response, path):
        buffers.append(piece)
        await asyncio.sleep(0)
    return Encoded(list(buffers))


def _weight(row: Any, path: Sequence[str]) -> int:
    """Rows of the innermost arrays, and one for each row around them."""
    if not path:
        return 1
    inner = getattr(row, path[0]) or ()
    if len(path) == 1:
        return 1 + len(inner)
    return 1 + sum(_weight(each, path[1:]) for each in inner)


def _pieces(encode: Callable[[], bytes], owner: Any, path: Sequence[str]) -> Iterator[bytes]:
    """What `encode` gives, in pieces of about ROWS_PER_STEP rows of the array `path[0]` of `owner`."""
    name, rows = path[0], getattr(owner, path[0])
    if not rows:
        yield encode()
        return
    try:
        head, tail, count = _around(encode, owner, name, type(rows[0])())

        def body(some: list[Any]) -> bytes:
            setattr(owner, name, some)
            whole = encode()
            return whole[len(head) + len(count(len(some))) : len(whole) - len(tail)]

        yield head + count(len(rows))
        for some, heavy in _steps(rows, path[1:]):
            if heavy:
                yield from _pieces(partial(body, some), some[0], path[1:])
            else:
                yield body(some)
        yield tail
    finally:
        setattr(owner, name, rows)


def _around(
    encode: Callable[[], bytes], owner: Any, name: str, row: Any
) -> tuple[bytes, bytes, Callable[[int], bytes]]:
    """What stands before and after an array, and how the number of its rows is said.

    Without rows and with one, the bytes differ first in the last byte of that number: 0 and 1, or 1 and 2
    where the version has compact arrays.
    """
    setattr(owner, name, [])
    none = encode()
    setattr(owner, name, [row])
    one = encode()
    at = next(at for at, (a, b) in enumerate(zip(none, one, strict=False)) if a != b)
    if none[at]:
        return none[:at], none[at + 1 :], lambda count: varint(count + 1)
    return none[: at - 3], none[at + 1 :], lambda count: count.to_bytes(4, "big")


def _steps(rows: Sequence[Any], path: Sequence[str]) -> Iterator[tuple[list[Any], bool]]:
    """The rows in groups of one step's weight, and whether it is one row that is too heavy for a step."""
    some: list[Any] = []
    weight = 0
    for row in rows:
        more = _weight(row, path)
        if some and weight + more > ROWS_PER_STEP:
            yield some, False
            some, weight = [], 0
        if path and more > ROWS_PER_STEP:
            yield [row], True
            continue
        some.append(row)
        weight += more
    if some:
        yield some, False
