"""A round of copying a cluster: its steps, and what a death between two of them leaves.

    claim    copy.json and cluster.json mark the destination: no agent starts on it
    look     the state up to which the source is archived, and all that it names
    data     chunks, segments, manifests, tables' files that the destination has not
    damaged  what the source gives damaged, as it is, once copy.json names it (damaged.py)
    look …   again, while something that the state names is in neither: the source goes on meanwhile
    publish  pieces of the log, oldest first, then snapshots: each refers to what is there
    mark     where the source was restored, cluster.json names its new log, to a state of which it leads now;
             copy.json says how far the copy is complete
    clean    what the source deleted long ago, and the copy's state does not name, goes

Dead anywhere, the destination is what the last publishing made it; the next round goes on by what is there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from dataclasses import replace as changed
from typing import Any, NamedTuple

from coordination.clock import Clock
from coordination.copying.damaged import DamagedObject, Damages
from coordination.copying.frontier import Frontier, leads_to
from coordination.copying.referred import Referred
from coordination.restore.source import ChangedMeanwhile
from coordination.steps import reach
from objectstore import copied, fingerprint
from objectstore.copied import COPY_KEY, CopyMark
from objectstore.copying import Copier, Copies, CopyOptions, Counts, Vanished, side_by_side
from objectstore.fingerprint import BrokenFingerprint
from objectstore.naming import (
    CHUNKS,
    FINGERPRINT_KEY,
    LOG,
    MANIFESTS,
    SEGMENTS,
    SNAPSHOTS,
    TABLES,
    log_folder,
)
from objectstore.store import Denied, NotFound, ObjectMeta, ObjectStore, Retryable, StoreError

LOOKS_MAX = 5
"""Of one round, while the source deletes what was about to be copied."""
GONE_MAX = 1_000_000  # objects whose deletion is remembered; more are seen once there is room
DELETED_AT_ONCE_MAX = 1_000  # objects between two looks whether the destination is still a copy
MISSING_TOLD_MAX = 100  # keys of a report, and objects that are damaged


class CannotCopy(Exception):
    """Why not, and what to do."""


@dataclass(frozen=True, slots=True)
class CopyingOptions:
    """`keep_deleted_s`: seconds that an object stays which the source deleted, since it was noticed.

    `tables`: the folder of tables' files, ending with a slash.
    """

    objects: CopyOptions = field(default_factory=CopyOptions)
    keep_deleted_s: float = 86_400.0
    tables: str = TABLES


class PartitionEnd(NamedTuple):
    """Of a partition in the copy: offsets [start, end) are complete."""

    topic: str
    partition: int
    start: int
    end: int


@dataclass(slots=True)
class Round:
    """What a round did. The copy is complete through `revision`, archived at `archived_ms` (Unix ms)."""

    cluster: str
    log: str
    revision: int = 0
    archived_ms: int = 0
    looks: int = 0
    seconds: float = 0.0
    counts: Counts = field(default_factory=Counts)
    missing: list[str] = field(default_factory=list)
    missing_count: int = 0
    damaged: list[DamagedObject] = field(default_factory=list)
    damaged_count: int = 0
    partitions: list[PartitionEnd] = field(default_factory=list)

    def plain(self) -> dict[str, Any]:
        """As JSON says it."""
        counts = self.counts
        return {
            "cluster": self.cluster, "log": self.log, "revision": self.revision,
            "archived_ms": self.archived_ms, "looks": self.looks, "seconds": round(self.seconds, 3),
            "objects": counts.objects, "bytes": counts.bytes, "there": counts.there,
            "by_store": counts.by_store, "read_back": counts.read_back, "deleted": counts.deleted,
            "missing": self.missing, "missing_count": self.missing_count, "refused": counts.refused,
            "damaged": [asdict(each) for each in self.damaged], "damaged_count": self.damaged_count,
            "partitions": [each._asdict() for each in self.partitions],
        }  # fmt: skip


class Copying:
    """Rounds of one cluster into one destination. `told` hears how far a round is, for people.

    `across`: what has the store copy by itself. Refused, it is asked again with the next round.
    """

    def __init__(
        self,
        source: ObjectStore,
        target: ObjectStore,
        source_url: str,
        clock: Clock,
        options: CopyingOptions | None = None,
        told: Callable[[str, Counts], object] = lambda what, counts: None,
        across: Copies | None = None,
    ) -> None:
        self._source, self._target, self._url, self._clock = source, target, source_url, clock
        self._options, self._told, self._across = options or CopyingOptions(), told, across
        self._frontier = Frontier(source, "")
        self._referred = Referred(source, target, source_url, self._options.tables)
        self._damages = Damages(source, target, source_url, self._referred)
        self._gone: dict[str, float] = {}  # at the destination alone → since when, by the monotonic clock

    async def round(self) -> Round:
        """Bring the destination to where the source is archived now.

        Raises CannotCopy, CannotRestore, NotOurCopy, BrokenFingerprint, StoreError.
        """
        began = self._clock.monotonic()
        reach("copy/claim")
        mark = await self._claim()
        made = Round(mark.cluster, self._frontier.log)
        copier = Copier(self._source, self._target, self._options.objects, self._across, self._clock)
        made.counts = copier.counts
        try:
            missing = await self._data_and_log(copier, mark, made)
        finally:
            await copier.abandon()
        made.missing_count, made.missing = len(missing), sorted(missing)[:MISSING_TOLD_MAX]
        self._tell_damaged(copier, made)
        reach("copy/mark")
        mark = await self._mark(mark, made)
        await self._clean(mark, made)
        made.seconds = self._clock.monotonic() - began
        return made

    async def _claim(self) -> CopyMark:
        try:
            found, _ = await fingerprint.stored(self._source)
        except NotFound:
            raise CannotCopy(
                f"there is no {FINGERPRINT_KEY} below --from: name the bucket with the cluster's prefix; "
                "where it is lost, the copy is all there is: promote it with `floe restore cluster`"
            ) from None
        except BrokenFingerprint as error:
            raise CannotCopy(f"--from: {error}") from None
        if found.restored_from:
            raise CannotCopy(
                f"the source is a copy that is not promoted, or a restore into log {found.log_identity!r} is "
                "not finished: copy the cluster itself, or finish the restore"
            )
        wanted = CopyMark(self._url, found.cluster, found.cluster_id, found.log_identity)
        mark = await copied.claimed(self._target, wanted)
        if self._frontier.log != wanted.log:
            self._frontier = Frontier(self._source, wanted.log)
        self._damages.begin(mark)
        return mark

    async def _data_and_log(self, copier: Copier, mark: CopyMark, made: Round) -> set[str]:
        """As `_data`, and then what says so, until it leads as far as the copy is said to go."""
        for _ in range(LOOKS_MAX):
            missing = await self._data(copier, mark, made)
            if await self._publish(copier, mark, made):
                return missing
        raise Retryable(
            f"the source deleted pieces of its log, {LOOKS_MAX} times before they were copied, and the copy "
            "does not end where it is told to: the next round goes on; is the way to the source slow?"
            + "".join(f" {each.meta.key} is damaged: {each.reason}" for each in copier.damaged.values())[
                :1000
            ]
        )

    def _tell_damaged(self, copier: Copier, made: Round) -> None:
        self._damages.of_log(copier.damaged.values())
        found = sorted(self._damages.found.values(), key=lambda each: each.key)
        made.damaged_count, made.damaged = len(found), found[:MISSING_TOLD_MAX]

    # Data.

    async def _data(self, copier: Copier, mark: CopyMark, made: Round) -> set[str]:
        """Copy until all that the state names is there; what of it the source itself has not."""
        wanted: set[str] = set()
        for made.looks in range(1, LOOKS_MAX + 1):
            reach("copy/look")
            await self._frontier.advance()
            wanted = await self._referred.wanted(self._frontier.state)
            reach("copy/data")
            try:
                for prefix in (CHUNKS, SEGMENTS, MANIFESTS, self._options.tables):
                    await self._folder(copier, prefix, wanted)
                await copier.end()
            except Vanished as vanished:
                state = self._frontier.state
                wanted.update([key for key in vanished.keys if await self._referred.names(state, key)])
                continue
            if not wanted:
                self._referred.all_seen()
                break
        reach("copy/damaged")
        await self._damages.keep(copier, mark, self._frontier.state, self._gone)
        return wanted

    async def _folder(self, copier: Copier, prefix: str, wanted: set[str]) -> None:
        """Begin to copy what is missing below a prefix; strike out of `wanted` what is listed."""
        now = self._clock.monotonic()
        async for pair in side_by_side(self._source, self._target, prefix):
            again = pair.key in self._damages.known or (self._across is not None and pair.mended)
            if pair.source is not None and (pair.due or again):
                await copier.begin(pair.source)
            elif pair.source is not None:
                copier.counts.there += 1
            self._note(pair.source, pair.target, now)
            wanted.discard(pair.key)
            self._told(prefix, copier.counts)

    def _note(self, source: ObjectMeta | None, target: ObjectMeta | None, now: float) -> None:
        if source is not None:
            self._gone.pop(source.key, None)
        elif target is not None and len(self._gone) < GONE_MAX:
            self._gone.setdefault(target.key, now)

    # What says that the state is so.

    async def _publish(self, copier: Copier, mark: CopyMark, made: Round) -> bool:
        """Whether what is there leads to the state. What is gone from the source since it was listed may be
        held by newer pieces and snapshots, and the state may be of some that are listed only now.
        """
        frontier = self._frontier
        there = await self._of_log(frontier.log)
        reach("copy/publish")
        await copied.still_ours(self._target, mark)
        for meta in frontier.due():
            if there.get(meta.key) == meta.size:
                continue
            reach("copy/put")
            if meta.key.startswith(SNAPSHOTS):  # a restored source's is newer than one of a promotion
                await copied.still_ours(self._target, mark)
            try:
                if not await copier.one(meta, by_store=False):
                    continue
            except NotFound:
                continue
            there[meta.key] = meta.size
        made.revision, made.archived_ms = frontier.revision, frontier.archived_ms
        made.partitions = [
            PartitionEnd(topic.name, each.index, each.log_start, each.high_watermark)
            for topic in frontier.state.topics.values()
            for each in topic.partitions
        ]
        return leads_to(there) >= frontier.revision

    async def _mark(self, mark: CopyMark, made: Round) -> CopyMark:
        if mark.log != made.log:
            mark = await copied.switched(self._target, mark, made.log)
        told = changed(
            self._damages.marked(mark),
            source=self._url,
            revision=made.revision,
            archived_ms=made.archived_ms,
            rounds=mark.rounds + 1,
            missing=made.missing_count,
        )
        await copied.still_ours(self._target, mark)
        await self._target.put(COPY_KEY, [told.encode()])
        return told

    # What the source deleted.

    async def _clean(self, mark: CopyMark, made: Round) -> None:
        """Delete what the source has no more for long and the state does not name; the log's too."""
        await self._note_log(mark)
        limit = self._clock.monotonic() - self._options.keep_deleted_s
        old = [key for key, since in self._gone.items() if since <= limit]
        old = await self._without_needed(mark, old)
        for at in range(0, len(old), DELETED_AT_ONCE_MAX):
            some = old[at : at + DELETED_AT_ONCE_MAX]
            some = await self._referred.deletable(self._frontier.state, some)
            reach("copy/clean")
            await copied.still_ours(self._target, mark)
            await self._target.delete(some)
            made.counts.deleted += len(some)
            for key in some:
                self._gone.pop(key, None)

    async def _without_needed(self, mark: CopyMark, old: list[str]) -> list[str]:
        """The same without pieces and snapshots, unless what is left of these leads as far as all do."""
        going = {key for key in old if key.startswith((LOG, SNAPSHOTS))}
        if not going:
            return old
        there = await self._of_log(mark.log)
        if leads_to(there.keys() - going) >= leads_to(there):
            return old
        return [key for key in old if key not in going]

    async def _of_log(self, log: str) -> dict[str, int]:
        """What the destination has of a log's pieces, and snapshots: sizes by key."""
        prefixes = (f"{LOG}{log_folder(log)}/", SNAPSHOTS)
        return {meta.key: meta.size for each in prefixes for meta in await _all(self._target, each)}

    async def _note_log(self, mark: CopyMark) -> None:
        """Pieces and snapshots that the source has no more. None are gone while it has no snapshot at all."""
        due = {meta.key for meta in self._frontier.due()}
        if not any(key.startswith(SNAPSHOTS) for key in due):
            return
        now = self._clock.monotonic()
        for prefix in (f"{LOG}{log_folder(mark.log)}/", SNAPSHOTS):
            async for pair in side_by_side(self._source, self._target, prefix):
                self._note(pair.source, pair.target, now)


async def follow(
    copying: Copying,
    every_s: float,
    clock: Clock,
    made: Callable[[Round], object],
    failed: Callable[[Exception], object],
) -> None:
    """Round after round, until something raises: the source or the destination is another one.

    A store that does not answer, and a log that changed while it was read, are asked again, which `failed` is
    told. Raises as `Copying.round` does otherwise; of StoreErrors Denied alone.
    """
    while True:
        try:
            made(await copying.round())
        except Denied:
            raise
        except (StoreError, ChangedMeanwhile) as error:
            failed(error)
        await clock.sleep(every_s)


async def _all(store: ObjectStore, prefix: str) -> Sequence[ObjectMeta]:
    return [meta async for page in store.list(prefix) for meta in page]
