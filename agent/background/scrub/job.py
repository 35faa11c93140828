"""The job that scrubs, one agent for all, and runs on somebody's word. Two at once do no harm.

A round begins each `scrub.round_s` and goes on at `scrub.bytes_per_s` from where the holder before came to.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass, replace

from agent.background.collection import StateView, grace_of, make_merged_collector
from agent.background.scrub import chain, damage, walks
from agent.background.scrub.damage import Counts, Damage, Round
from agent.background.scrub.donors import Donors
from agent.background.scrub.mending import Mender, Sources
from agent.background.scrub.needs import Look, Need
from agent.background.scrub.reading import WHOLE_BYTES_MAX, Reader
from agent.background.scrub.scrubber import Eyes, Scrubber, Walk, checked
from agent.background.scrub.spares import Spares
from agent.background.scrub.tables import TableWalk
from agent.background.scrub.walks import World
from agent.telemetry.logs import logger
from coordination.clock import Clock
from coordination.jobs import Job
from coordination.log import LogError
from coordination.places import Place
from coordination.replica import Replica
from coordination.state import ClaimHolder
from iceberg.contents import Owners
from iceberg.warehouse import Warehouse
from objectstore import tasks
from objectstore.fingerprint import Fingerprint
from objectstore.merged import MergedRanges
from objectstore.naming import parse_chunk_key, parse_manifest_key, parse_piece_key, parse_segment_key
from objectstore.reader import ChunkReader
from objectstore.steady import Steady
from objectstore.store import ObjectStore, StoreError

_log = logger("scrub")

POLL_S = 5.0
STEP_S = 60.0  # of a round, between two looks whether this agent still is to do it
WATCHED_MAX = 3
UNREAD_MAX = 100  # objects that the store fails for before a run ends: it is away
AGAIN_S = 600.0  # between two looks at what could not be mended


@dataclass(frozen=True, slots=True)
class ScrubOptions:
    """See the settings `scrub.*`; `grace_s` is the collection's. `whole_bytes_max`: see Reader."""

    bytes_per_s: float
    round_s: float
    begin_s: float
    repair: bool
    grace_s: float
    whole_bytes_max: int = WHOLE_BYTES_MAX


@dataclass(frozen=True, slots=True)
class Bucket:
    """What is scrubbed, and what helps to mend it. `renew` writes a snapshot of the state now."""

    replica: Replica
    store: ObjectStore
    ranges: MergedRanges
    reader: ChunkReader
    warehouse: Warehouse
    clock: Clock
    fingerprint: Fingerprint
    renew: Callable[[], Awaitable[object]]


class Scrub(Job):
    """See the module. `now` is the run that somebody asked of this agent, if there is one."""

    claim = "scrub"

    def __init__(self, bucket: Bucket, options: ScrubOptions) -> None:
        super().__init__(bucket.replica, POLL_S)
        self.options = options
        self.watched: list[tuple[Round, Counts]] = []
        """Rounds and runs of late, with what was counted before this agent had them."""
        self._bucket = bucket
        self._loop = asyncio.get_running_loop()
        self._hold: ClaimHolder | None = None
        self._held_s = 0.0
        self._again_s = 0.0
        self._round: Round | None = None
        self._scrubber: Scrubber | None = None
        self.now: Run | None = None

    # What others look at.

    @property
    def bytes_per_s(self) -> float:
        """The pace of rounds."""
        return self.options.bytes_per_s

    @property
    def beyond(self) -> list[Damage]:
        """What cannot be mended, as this agent knows it."""
        known: dict[str, Damage] = {}
        if self.held() is not None and self._round is not None:
            known |= self._round.beyond
        if self.now is not None and not self.now.done:  # its end is told to who asked, and grows old
            known |= self.now.scrubber.round.beyond
        return [known[key] for key in sorted(known)]

    @property
    def round_seconds(self) -> float:
        """For how long the present round has gone on; 0 between two, and at other agents."""
        if self.held() is None or self._round is None or self._round.ended_ms:
            return 0.0
        return max(0, self._bucket.clock.now_ms() - self._round.began_ms) / 1000

    def status(self) -> dict[str, object]:
        """For status pages."""
        held, at = self.held() is not None, self._round
        told: dict[str, object] = {"scrubs": held, "beyond_repair": [asdict(each) for each in self.beyond]}
        if held and at is not None:
            told |= shown(at)
        if self.now is not None:
            told["now"] = self.now.status()
        return told

    # The job.

    async def step(self, held: ClaimHolder) -> None:
        """A minute of a round, if it is time for one."""
        if self._hold != held:
            self._hold, self._held_s, self._again_s = held, self._loop.time(), self._loop.time()
            self._round = await damage.stored(self._bucket.store)
            self._scrubber = None
        await self._look_again()
        now_ms, at = self._bucket.clock.now_ms(), self._round
        if at is None or at.ended_ms:
            since_s = (now_ms - at.began_ms) / 1000 if at is not None else self.options.round_s
            soon = 0 <= since_s < self.options.round_s  # before 0 it was begun by a clock that was ahead
            if soon or self._loop.time() - self._held_s < self.options.begin_s:
                return
            at = (at or Round()).begun_anew(now_ms)
            self._scrubber = None
        self._round = at
        if self._scrubber is None:
            self._scrubber = self.scrubber(at, self.options, keep=True, item=self.item)
            await self._restore()
            await self._scrubber.remember(always=True)
        until = self._loop.time() + STEP_S
        if await self._scrubber.advance(lambda: self._loop.time() >= until or self.held() != held):
            self._scrubber = None
            _log.info("everything was looked at", **asdict(at.counts), beyond_repair=len(at.beyond))

    async def _restore(self) -> None:
        """Use up what a scrubber that died had set aside."""
        if self.options.repair:
            await self._spares().restore()

    async def _look_again(self) -> None:
        """Whether what could not be mended has come back, or is needed no more."""
        at = self._round
        if at is None or not at.beyond or self._loop.time() - self._again_s < AGAIN_S:
            return
        self._again_s = self._loop.time()
        reader = self._reader(at, self.options)
        for key in list(at.beyond):
            if not self._wanted(key):
                del at.beyond[key]
                continue
            problem, _ = await checked(reader, Need(key, walks.always, leads=False))
            if not problem:
                at.beyond.pop(key, None)

    # Runs.

    def run_now(self, bytes_per_s: float, *, repair: bool) -> Run:
        """Begin a run of everything at another pace; the one that is under way, where there is one."""
        if self.now is None or self.now.done:
            options = replace(self.options, bytes_per_s=bytes_per_s, repair=repair)
            at = Round(0, self._bucket.clock.now_ms())
            self.now = Run(self.scrubber(at, options, keep=False, item=_as_it_is(at)), repair=repair)
            self.now.start(self._spares().restore if repair else None)
        return self.now

    async def stop(self) -> None:
        """See Job."""
        if self.now is not None:
            await self.now.stop()
        await super().stop()

    # Parts.

    def scrubber(
        self,
        at: Round,
        options: ScrubOptions,
        *,
        keep: bool,
        item: Callable[[str], AbstractContextManager[None]],
    ) -> Scrubber:
        """One that goes on from `at`."""
        self.watched = [*self.watched[-WATCHED_MAX:], (at, replace(at.counts))]
        bucket, view = self._bucket, StateView(self.replica)
        grace = grace_of(self.replica, bucket.clock, options.grace_s)
        collector = make_merged_collector(
            self.replica, bucket.store, bucket.ranges, bucket.clock, options.grace_s
        )
        identity, store = bucket.fingerprint.log_identity, bucket.store
        own, counts = bucket.fingerprint, lambda: at.counts
        world = World(store, self.replica, view, collector, identity, grace.now_ms, grace.ms, counts, own)
        parts: dict[str, Callable[[World, str, Look], AsyncIterator[str]]] = {
            "own": walks.own, "chunks": walks.chunks, "merged": walks.merged, "strays": walks.strays,
            "snapshots": walks.snapshots, "log": chain.log,
        }  # fmt: skip
        eyes = Eyes(
            store,
            {name: _bound(walk, world) for name, walk in parts.items()}
            | {"tables": TableWalk(self.replica, store, bucket.warehouse)},
            self._reader(at, options),
            Mender(self._sources(), write=options.repair),
            view.catch_up,
            bucket.clock.now_ms,
            self._skipped,
            item,
        )
        return Scrubber(eyes, at, keep=keep, write=options.repair)

    def _reader(self, at: Round, options: ScrubOptions) -> Reader:
        pace = Steady(options.bytes_per_s, self._loop.time, asyncio.sleep)
        return Reader(self._bucket.store, pace, lambda: at.counts, options.whole_bytes_max)

    def _sources(self) -> Sources:
        bucket = self._bucket
        return Sources(
            bucket.store,
            self.replica,
            bucket.ranges,
            bucket.reader,
            Donors(bucket.store, self.replica),
            self._spares(),
            bucket.fingerprint,
            bucket.renew,
        )

    def _spares(self) -> Spares:
        bucket = self._bucket
        return Spares(bucket.store, Owners(bucket.store, bucket.warehouse.folder), self._wanted)

    def _wanted(self, key: str) -> bool:
        """Whether an object is needed, as far as its name and the state tell."""
        view = StateView(self.replica)
        if (chunk := parse_chunk_key(key)) is not None:
            return view.is_referenced(chunk)
        if (manifest := parse_manifest_key(key)) is not None:
            return view.manifest_of(manifest.partition) == manifest
        if (segment := parse_segment_key(key)) is not None:
            return segment not in view.released_segments() and view.manifest_of(segment.partition) is not None
        piece = parse_piece_key(key)
        return piece is None or chain.goes_on(self.replica, piece)

    def _skipped(self, place: Place) -> bool:
        topic = self.replica.state.topics.get(place.topic)
        if topic is None:  # what can come back is not to be given up
            return all(each.topic.name != place.topic for each in self.replica.state.deleted.values())
        if place.partition >= len(topic.partitions):
            return True
        skipped = topic.partitions[place.partition].skipped
        return any(each.start <= place.start and place.end <= each.end for each in skipped)


class Run:
    """A scrub of everything, once, on somebody's word."""

    def __init__(self, scrubber: Scrubber, *, repair: bool) -> None:
        self.scrubber = scrubber
        self.repair = repair
        self.error = ""
        self._task: asyncio.Task[None] | None = None
        self._began_s = self._ended_s = asyncio.get_running_loop().time()

    @property
    def done(self) -> bool:
        """Whether it is over, well or not."""
        return self._task is None or self._task.done()

    def start(self, before: Callable[[], Awaitable[object]] | None) -> None:
        """Begin."""
        self._task = tasks.owned(self._work(before), "scrub now")

    async def wait(self) -> None:
        """Until it is over."""
        if self._task is not None:
            await asyncio.wait([self._task])

    async def stop(self) -> None:
        """End it, wherever it is."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _work(self, before: Callable[[], Awaitable[object]] | None) -> None:
        try:
            if before is not None:
                await before()
            await self.scrubber.advance(lambda: False)
        except (StoreError, LogError, TimeoutError) as error:
            self.error = f"{type(error).__name__}: {error}"
        finally:
            self._ended_s = asyncio.get_running_loop().time()

    def status(self) -> dict[str, object]:
        """As JSON."""
        until = self._ended_s if self.done else asyncio.get_running_loop().time()
        told = {"done": self.done, "repair": self.repair, "error": self.error}
        beyond = [asdict(each) for each in self.scrubber.round.beyond.values()]
        return {
            **told,
            "seconds": round(until - self._began_s, 1),
            **shown(self.scrubber.round),
            "beyond_repair": beyond,
            "beyond_repair_not_named": self.scrubber.round.more,
        }


def shown(at: Round) -> dict[str, object]:
    """A round, for status pages."""
    times = {"round": at.number, "began_ms": at.began_ms, "ended_ms": at.ended_ms}
    return {**times, "part": at.part, "after": at.after, **asdict(at.counts)}


def _bound(walk: Callable[[World, str, Look], AsyncIterator[str]], world: World) -> Walk:
    return lambda after, look: walk(world, after, look)


def _as_it_is(at: Round) -> Callable[[str], AbstractContextManager[None]]:
    """For runs: what the store fails for is counted, and gone on from."""

    @contextmanager
    def item(_name: str) -> Iterator[None]:
        try:
            yield
        except (StoreError, TimeoutError) as error:
            _log.warning("an object cannot be read", object=_name, error=f"{type(error).__name__}: {error}")
            if at.counts.unread >= UNREAD_MAX:
                raise

    return item
