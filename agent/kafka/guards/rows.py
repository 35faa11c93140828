"""Requests made of rows, each of which is refused alone; and answers that handlers have encoded."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any, cast

from agent.kafka.authority.needs import Need
from agent.kafka.context import Context
from agent.net.wire.api import Codec, Encoded
from agent.net.wire.steps import ASKING_COST, Pace, encoded

Handle = Callable[[Context, Any, int], Awaitable[Any]]
Guard = Callable[[Context, Any, int, Handle], Coroutine[Any, Any, Any]]
OPENED_HERE_BYTES_MAX = 128 * 1024
"""Larger answers are decoded in a thread."""


async def opened(codec: ModuleType, response: Any, version: int) -> Any:
    """The response as a message, where its handler has encoded it already."""
    if not isinstance(response, Encoded):
        return response
    decode = cast(Codec, codec).decode_response
    whole = b"".join(response.buffers)
    if len(whole) > OPENED_HERE_BYTES_MAX:
        return await asyncio.to_thread(decode, whole, version)
    return decode(whole, version)


async def closed(codec: ModuleType, response: Any, version: int, path: Sequence[str]) -> Any:
    """The message encoded in steps; `path` as in `encoded`."""
    return await encoded(cast(Codec, codec), response, version, *path)


async def sorted_out(
    ctx: Context, rows: Sequence[Any], need: Callable[[Any], Need | None], name: Callable[[Any], str | None]
) -> tuple[list[Any], list[Any]]:
    """The rows that the client may and those that it may not. A row without a name or need goes through."""
    kept, refused = [], []
    pace = Pace()
    for row in rows:
        await pace.row(ASKING_COST)
        asked, which = need(row), name(row)
        if asked is None or which is None or ctx.may(asked, which):
            kept.append(row)
        else:
            refused.append(row)
    return kept, refused


@dataclass(frozen=True, slots=True)
class Split:
    """An API whose rows are refused one by one. It is a guard.

    `asked`, `told`: where the rows are in the request and in the response. `refuse` makes a refused row.
    """

    codec: ModuleType
    asked: str
    told: str
    need: Callable[[Any], Need | None]
    name: Callable[[Any], str | None]
    refuse: Callable[[Any], Any]
    empty: Callable[[], Any]
    inner: tuple[str, ...] = ()
    free: Callable[[Context], bool] = lambda ctx: False
    """Whether another need is met, by which all rows may."""

    async def __call__(self, ctx: Context, request: Any, version: int, handle: Handle) -> Any:
        """The handler's answer for what is allowed, and the refusals behind it."""
        rows = getattr(request, self.asked)
        if not rows or self.free(ctx):
            return await handle(ctx, request, version)
        kept, refused = await sorted_out(ctx, rows, self.need, self.name)
        if not refused:
            return await handle(ctx, request, version)
        setattr(request, self.asked, kept)
        answer = await handle(ctx, request, version) if kept else self.empty()
        response = await opened(self.codec, answer, version)
        getattr(response, self.told).extend(self.refuse(row) for row in refused)
        return await closed(self.codec, response, version, (self.told, *self.inner))
