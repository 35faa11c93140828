"""One round of scrubbing: all that is needed is looked at, and mended; where it stands is remembered."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, aclosing
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, cast

from agent.background.scrub import damage
from agent.background.scrub.damage import PLACES_MAX, ROUND_KEY, TEXT_MAX, Damage, Round
from agent.background.scrub.mending import Mended, Mender
from agent.background.scrub.needs import Look, Need
from agent.background.scrub.reading import PIECE_BYTES, Reader
from agent.telemetry.logs import logger
from coordination.places import Place
from coordination.steps import reach
from iceberg import contents
from objectstore.store import NotFound, ObjectStore
from objectstore.turns import off_loop

_log = logger("scrub")

USED_BYTES_MAX = 512 << 20  # of a table's file that leads to others; above, these are not looked at
KEPT_S = 60.0  # between two times that the position is written


class Walk(Protocol):
    """A part of a round (walks.py, tables.py)."""

    def __call__(self, after: str, look: Look) -> AsyncIterator[str]:
        """Have all that is needed looked at, from behind `after` on; yields where to go on."""
        ...


@dataclass(frozen=True, slots=True)
class Eyes:
    """What a scrubber works with. `item`: notes that one object failed, and goes on (Job.item)."""

    store: ObjectStore
    walks: dict[str, Walk]
    reader: Reader
    mender: Mender
    catch_up: Callable[[], Any]
    now_ms: Callable[[], int]
    skipped: Callable[[Place], bool]
    item: Callable[[str], AbstractContextManager[None]]


class Scrubber:
    """`round`: where it stands. `keep`: whether that is written to the bucket; `write`: whether it mends."""

    def __init__(self, eyes: Eyes, at: Round, *, keep: bool, write: bool) -> None:
        self.round = at
        self._eyes = eyes
        self._keep = keep
        self._write = write
        self._loop = asyncio.get_running_loop()
        self._kept_s = self._loop.time()

    async def advance(self, enough: Callable[[], bool]) -> bool:
        """Go on until the round is done (True), or `enough` says so. Raises StoreError, LogError."""
        while True:
            walk = self._eyes.walks[self.round.part](self.round.after, self.look)
            async with aclosing(cast(Any, walk)) as marks:
                async for mark in marks:
                    self.round.after = mark
                    await self.remember(always=False)
                    if enough():
                        return False
            if not self.round.next_part():
                self.round.finish(self._eyes.now_ms())
                await self.remember(always=True)
                return True

    async def remember(self, *, always: bool) -> None:
        """Write down where it stands, if it is time."""
        now = self._loop.time()
        if self._keep and (always or now - self._kept_s >= KEPT_S):
            self._kept_s = now
            reach("scrub/position")
            await self._eyes.store.put(ROUND_KEY, [damage.encode(self.round)])

    async def look(self, need: Need) -> bytes | None:
        """See needs.Look."""
        self.round.counts.objects += 1
        seen: bytes | None = None
        done = False
        with self._eyes.item(need.key):
            seen, done = await self._looked(need), True
        self.round.counts.unread += not done
        return seen

    async def _looked(self, need: Need) -> bytes | None:
        problem, content = await checked(self._eyes.reader, need)
        if problem:  # twice: damage on the way is no damage
            problem, content = await checked(self._eyes.reader, need)
        if not problem:
            self.round.beyond.pop(need.key, None)
            return content
        await self._eyes.catch_up()
        if not need.needed() or (need.still is not None and not await need.still()):
            return None
        return await self._damaged(need, problem, content)

    async def _damaged(self, need: Need, problem: str, content: bytes | None) -> bytes | None:
        self.round.counts.found += 1
        mended = await self._eyes.mender.mend(need, content)
        if mended is not None:
            return self._mended(need, problem, mended)
        lost = await self._eyes.mender.lost(need, content)
        left = tuple(each for each in lost if need.table or not self._eyes.skipped(each))
        if not left and _concerns_records(need):
            self.round.counts.harmless += 1
            self.round.beyond.pop(need.key, None)
            return None
        self._beyond(need, problem, left)
        await self.remember(always=True)
        return None

    def _mended(self, need: Need, problem: str, mended: Mended) -> bytes | None:
        self.round.beyond.pop(need.key, None)
        told = {"object": need.key, "problem": problem[:TEXT_MAX], "how": mended.how}
        if self._write:
            self.round.counts.repaired += 1
            _log.warning("a damaged object is whole again", **told)
            return mended.content
        self.round.counts.repairable += 1
        _log.warning("a damaged object can be mended", **told)
        return mended.content

    def _beyond(self, need: Need, problem: str, places: tuple[Place, ...]) -> None:
        found = Damage(
            need.key,
            contents.kind_of(need.key),
            problem[:TEXT_MAX],
            places[:PLACES_MAX],
            need.table,
            self.round.number,
            self._eyes.now_ms(),
        )
        if self.round.note(found):
            _log.error(
                "an object is damaged and cannot be mended",
                object=found.key,
                problem=found.reason,
                records=[f"{p.topic}-{p.partition} [{p.start}, {p.end})" for p in found.places],
                table=found.table,
                remedy="restore it under its name from the bucket's versions; docs/operations.md, Scrub",
            )


async def checked(reader: Reader, need: Need) -> tuple[str, bytes | None]:
    """What is wrong with an object, or nothing, and its bytes where they could be held. Raises StoreError."""
    try:
        size = need.size if 0 < need.size <= PIECE_BYTES else await reader.size(need.key)
        held_max = USED_BYTES_MAX if need.leads else reader.whole_bytes_max
        if size > max(held_max, PIECE_BYTES) and contents.is_file(need.key):
            return await _in_pieces(reader, need, size), None
        content = await reader.whole(need.key, size)
    except NotFound:
        return "it is not there", None
    return await off_loop(len(content), partial(_problem, need, content)), content


async def _in_pieces(reader: Reader, need: Need, size: int) -> str:
    """Of a file that is too large to be held: what is wrong with it, as far as that shows piece by piece."""
    if need.size and size != need.size:
        return f"{size} bytes, its manifest says {need.size}"
    found = contents.InPieces(need.key)
    async for piece in reader.pieces(need.key, size):
        await off_loop(len(piece), partial(found.add, piece))
    return found.problem()


def _problem(need: Need, content: bytes) -> str:
    return contents.problem(need.key, content) or need.check(content)


def _concerns_records(need: Need) -> bool:
    """Whether an object is needed for the records in it only, so that none lost is no loss."""
    return contents.kind_of(need.key) in ("chunk", "segment", "manifest")
