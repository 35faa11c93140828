"""How slices of a chunk are found near: from its owner in this zone, hedged by the bucket.

Everything that comes from a peer is checked like the bucket's bytes. A peer that fails, or is silent for
SILENCE_S, is left alone for a while (standing.py), so that one that is paused or cut off costs its readers
next to nothing. One that was silent is greeted the first time, and asked again as soon as it shakes hands.
What a request waits for its turn in this agent, and what this agent stands still, is not the peer's silence.
One that says that it is reading the bucket is waited for: a second read would not be faster.
Without its owner a recent chunk is still read as a whole, once per agent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Protocol, cast

from agent.cluster.peers.client import PeerClient
from agent.cluster.peers.owners import Owner, Owners
from agent.cluster.peers.standing import REST_S, Standings
from agent.cluster.peers.whole import WholeChunks
from agent.cluster.peers.wire import SLICES_MAX, PeerAnswered, PeerError, Status, TooManyWait
from coordination.log import LogError
from objectstore import tasks
from objectstore.batch import CorruptBatch
from objectstore.naming import ChunkId, SliceRef
from objectstore.reader import THREAD_BYTES_MIN, patched
from objectstore.store import Buffer

SILENCE_S = 1.0  # a peer that answered nothing for so long has failed, seconds
HEARD_MAX = 1024  # peers whose last sign of life is remembered
HEDGE_STEPS = 4  # a stall of this agent itself counts as one step of a peer's silence at most
HEDGE_FACTOR = 4.0  # a peer is late after so many times what answers took of late
SMOOTHING = 0.1  # share of the newest answer in that
TURNS = 3  # of the event loop from applying an own flush to its bytes being in memory

FromStore = Callable[[], Awaitable[list[memoryview]]]


class LocalReader(Protocol):
    """The part of the chunk reader that answers peers."""

    def cached(self, wanted: SliceRef) -> memoryview | None:
        """The slice if it is in memory."""
        ...

    async def read_many(self, slices: Sequence[SliceRef], *, alone: bool = False) -> list[memoryview]:
        """The slices' batches; with `alone` without asking peers."""
        ...


@dataclass(slots=True)
class NearStats:
    """Counts since the start: slices and bytes that peers gave, requests that failed or were hedged."""

    asked: int = 0
    hits: int = 0
    hit_bytes: int = 0
    failed: int = 0
    hedged: int = 0
    corrupt: int = 0


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a peer is waited for, seconds: before the bucket is asked as well, and at all."""

    hedge_s: float
    timeout_s: float


@dataclass(slots=True)
class _Turn:
    """Whether a request has had its turn to be sent."""

    begun: bool = False

    def begins(self) -> None:
        """It has."""
        self.begun = True


class Near:
    """Implements objectstore.reader.Nearby for one agent. `catch_up` applies the log as it is now."""

    def __init__(
        self,
        reader: LocalReader,
        owners: Owners,
        client: PeerClient,
        whole: WholeChunks,
        patience: Patience,
        catch_up: Callable[[], Awaitable[object]],
    ) -> None:
        self._reader = reader
        self._owners = owners
        self._catch_up = catch_up
        self._client = client
        self._whole = whole
        self._patience = patience
        self.standings = Standings(asyncio.get_running_loop().time)
        self._heard: dict[str, float] = {}  # address → when it last answered, or was first overtaken
        self._greeting: dict[str, asyncio.Task[None]] = {}  # silent peers that are waited for
        self._answer_s = 0.0  # what peers took to answer, smoothed
        self._loop = asyncio.get_running_loop()
        self.stats = NearStats()

    async def read(
        self, chunk: ChunkId, members: Sequence[SliceRef], store: FromStore, alone: bool
    ) -> list[memoryview]:
        """The members' batches, checked and patched. `store` reads the bucket; raises what it does."""
        if self._owners.mine(chunk):
            await self._settled(chunk)
            found = [self._reader.cached(each) for each in members]
            if None not in found:
                return cast("list[memoryview]", found)
        own = partial(self._own, chunk, members, store)
        owner = self._owners.owner(chunk)
        if owner is None or alone or not owner.address or len(members) > SLICES_MAX:
            return await own()
        if not self.standings.may_ask(owner.address):
            return await own()
        return await self._hedged(owner, members, own)

    async def serve(self, slices: Sequence[SliceRef], recent: bool) -> list[Buffer]:
        """What a peer asked for of a chunk, from memory or the bucket. Raises StoreError.

        `recent` by the peer's own view: it may have heard of the chunk before this agent.
        """
        chunk = slices[0].chunk
        assert isinstance(chunk, ChunkId), "peers ask for chunks"
        found: list[Buffer | None] = [self._reader.cached(each) for each in slices]
        if None in found and self._owners.mine(chunk):
            await self._settled(chunk)
            found = [self._reader.cached(each) for each in slices]
        missing = [each for each, data in zip(slices, found, strict=True) if data is None]
        if not missing:
            return [data for data in found if data is not None]
        late: Iterator[Buffer]
        if recent:  # unchecked: who asked checks it
            view = memoryview(await self._whole.get(chunk))
            late = iter([view[each.position : each.position + each.length] for each in missing])
        else:
            late = iter(await self._reader.read_many(missing, alone=True))
        return [next(late) if data is None else data for data in found]

    async def _settled(self, chunk: ChunkId) -> None:
        """Wait until an own flush that was committed is in this agent's memory, or was pushed out of it.

        Whoever asks may have heard of it before this agent. What was seen is read while the log is away, too.
        """
        if not self._owners.seen(chunk):
            with suppress(LogError):
                await self._catch_up()
        for _ in range(TURNS):
            await asyncio.sleep(0)

    async def close(self) -> None:
        """End reads under way and hang up."""
        greetings = list(self._greeting.values())
        for greeting in greetings:
            greeting.cancel()
        await asyncio.gather(*greetings, return_exceptions=True)
        await self._whole.close()
        self._client.close()

    async def _own(self, chunk: ChunkId, members: Sequence[SliceRef], store: FromStore) -> list[memoryview]:
        """As the owner: all of a recent chunk at once, so that the zone reads it once."""
        if not self._owners.recent(chunk):
            return await store()
        data = memoryview(await self._whole.get(chunk))
        try:
            return await _cut(
                [data[each.position : each.position + each.length] for each in members], members
            )
        except CorruptBatch:
            self._whole.drop(chunk)
            return await store()

    async def _hedged(self, owner: Owner, members: Sequence[SliceRef], store: FromStore) -> list[memoryview]:
        turn = _Turn()
        asking = tasks.owned(self._ask(owner, members, turn), "ask a peer")
        reading: asyncio.Future[list[memoryview]] | None = None
        try:
            if await self._answered(asking, owner.address, turn):
                found = asking.result()
                return found if found is not None else await store()
            self.stats.hedged += 1
            reading = tasks.owned(_awaited(store), "read beside a peer")
            reading.add_done_callback(_seen)
            await asyncio.wait([asking, reading], return_when=asyncio.FIRST_COMPLETED)
            if not asking.done():
                if turn.begun:
                    self._was_overtaken(owner.address)
                if reading.exception() is None:
                    return reading.result()
            found = await asking
            return found if found is not None else await reading
        finally:
            if not asking.done():
                self.standings.gave_up(owner.address)
            for task in (asking, reading):
                if task is not None and not task.done():
                    task.cancel()

    async def _answered(
        self, asking: asyncio.Future[list[memoryview] | None], address: str, turn: _Turn
    ) -> bool:
        """Whether the answer came; False once the peer showed no life for as long as it is waited for.

        Nor has one that this agent's other requests keep busy for so long.
        """
        step_s, heard = self._hedge_s() / HEDGE_STEPS, self._heard.get(address)
        silent = 0
        while silent < HEDGE_STEPS:
            await asyncio.wait([asking], timeout=step_s)
            if asking.done():
                return True
            before, heard = heard, self._heard.get(address)
            silent = silent + 1 if heard == before or not turn.begun else 0
        return False

    def _hedge_s(self) -> float:
        """How long a peer is waited for before the bucket is asked too: longer where answers take long."""
        patience = self._patience
        return min(max(patience.hedge_s, HEDGE_FACTOR * self._answer_s), patience.timeout_s)

    async def _ask(self, owner: Owner, members: Sequence[SliceRef], turn: _Turn) -> list[memoryview] | None:
        """The peer's slices, checked; None when it cannot be used."""
        self.stats.asked += 1
        begun = self._loop.time()
        chunk = members[0].chunk
        assert isinstance(chunk, ChunkId), "peers ask for chunks"
        alive = partial(self._note_life, owner.address)
        recent = self._owners.recent(chunk)
        try:
            asked = self._client.ask(owner.address, members, recent=recent, heard=alive, begun=turn.begins)
            data = memoryview(await self._patiently(asked, turn))
            parts, at = [], 0
            for each in members:
                parts.append(data[at : at + each.length])
                at += each.length
            found = await _cut(parts, members)
        except TooManyWait:
            self.standings.gave_up(owner.address)
        except PeerAnswered as answer:
            if answer.status is Status.BUSY:
                self._rest(owner.address, answer)
            else:  # it lives, and what is wrong is wrong with the chunk or the bucket
                self.standings.well(owner.address)
        except CorruptBatch as error:
            self.stats.corrupt += 1
            self._rest(owner.address, error)
        except (PeerError, OSError, EOFError, TimeoutError) as error:
            self._rest(owner.address, error)
        except BaseException:
            self.standings.gave_up(owner.address)
            raise
        else:
            self.standings.well(owner.address)
            self._answer_s += SMOOTHING * (self._loop.time() - begun - self._answer_s)
            self.stats.hits += len(members)
            self.stats.hit_bytes += len(data)
            return found
        self.stats.failed += 1
        return None

    async def _patiently(self, asked: Coroutine[object, object, bytes], turn: _Turn) -> bytes:
        """The answer; TimeoutError once the peer has had its time. It counts in steps, as in `_answered`."""
        asking = tasks.owned(asked, "ask a peer")
        step_s, waited = self._patience.timeout_s / HEDGE_STEPS, 0
        try:
            while True:
                begun = turn.begun
                await asyncio.wait([asking], timeout=step_s)
                if asking.done():
                    return asking.result()
                waited += begun
                if waited == HEDGE_STEPS:
                    raise TimeoutError(f"no answer within {self._patience.timeout_s} s")
        finally:
            asking.cancel()

    def _note_life(self, address: str) -> None:
        if len(self._heard) >= HEARD_MAX:
            self._heard.clear()
        self._heard[address] = self._loop.time()

    def _was_overtaken(self, address: str) -> None:
        """One late answer is nothing; a peer that says nothing at all for SILENCE_S is left alone."""
        now, heard = self._loop.time(), self._heard.get(address)
        if heard is None:
            self._note_life(address)
        elif now - heard > SILENCE_S:
            self._rest(address, "silent")
            if address not in self._greeting and self.standings.rests_first(address):
                self._greeting[address] = tasks.start(self._greet(address), "greet a peer", apart=True)

    async def _greet(self, address: str) -> None:
        """Ask a silent peer again as soon as it shakes hands, and without that when its rest is over.

        One that shakes hands and is silent again was not well: it rests for longer, and is not greeted.
        """
        try:
            async with asyncio.timeout(REST_S):
                await self._client.greet(address)
            self.standings.stirred(address)
        except (PeerError, OSError, EOFError, TimeoutError):
            pass  # it goes on resting
        finally:
            del self._greeting[address]

    def _rest(self, address: str, why: object) -> None:
        """Ask this peer no more for a while."""
        self._heard.pop(address, None)
        self.standings.failed(address, why)
        self._client.forget(address)


async def _awaited(store: FromStore) -> list[memoryview]:
    return await store()


async def _cut(parts: Sequence[memoryview], members: Sequence[SliceRef]) -> list[memoryview]:
    """Each slice checked and with its offsets. Raises CorruptBatch."""
    for data, each in zip(parts, members, strict=True):
        if len(data) != each.length:
            raise CorruptBatch(f"{len(data)} bytes came for a slice of {each.length}")
    if sum(map(len, parts)) < THREAD_BYTES_MIN:
        return list(map(patched, parts, members))
    return await asyncio.to_thread(lambda: list(map(patched, parts, members)))


def _seen(reading: asyncio.Future[list[memoryview]]) -> None:
    """The peer may have won: the failure of the other is not to be reported as forgotten."""
    if not reading.cancelled():
        reading.exception()
