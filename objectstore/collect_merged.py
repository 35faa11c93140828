"""Garbage collection of segments and manifests (rule 9), beside that of chunks (collect.py).

    author in the log | object                                        | verdict
    any               | the state's manifest, or a segment it names   | keep
    any               | let go of, within the grace                   | keep: readers may have planned with it
    any               | let go of, grace over, and `backed` lets it   | delete, then ForgetSegments
    live              | none of these                                 | keep: its swap may be on the way
    fenced            | none of these, new                            | keep until the grace is over
    fenced            | none of these, old                            | delete: its swap can never come
    unknown           | none of these                                 | keep, report

A manifest that the state let go of as a whole (its topic or its last record was deleted) takes its segments
along: they are deleted before it, so that a run that dies in between finds them again. Only an author adds
its own segments to a manifest: what a fenced one left out of its partition's manifest never comes into it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Protocol

from objectstore.collect import (
    CANDIDATES_MAX,
    Backing,
    Candidate,
    Report,
    Settled,
    Standing,
    Verdict,
    always,
    in_steps,
    may_go,
)
from objectstore.grace import Grace
from objectstore.manifest import CorruptManifest, decode
from objectstore.merged import MergedRanges
from objectstore.naming import (
    MANIFESTS,
    SEGMENTS,
    ManifestId,
    SegmentId,
    incarnation_prefix,
    manifest_key,
    parse_incarnation_folder,
    parse_manifest_key,
    parse_segment_key,
    segment_key,
)
from objectstore.removal import DELETE_KEYS_MAX, Removal, Remove
from objectstore.store import NotFound, ObjectMeta, ObjectStore, StoreError
from objectstore.turns import off_loop

Forget = Callable[[Sequence[SegmentId], Sequence[ManifestId]], Awaitable[None]]


class MergedView(Protocol):
    """The replicated state, as the collector of merged ranges needs it."""

    async def catch_up(self) -> None:
        """Read barrier: afterwards the answers below are at least as new as this call."""
        ...

    def standing(self, incarnation: int) -> Standing:
        """What became of an author."""
        ...

    def manifest_of(self, partition: int) -> ManifestId | None:
        """The manifest that a partition points to."""
        ...

    def let_go_whole(self, partition: int) -> bool:
        """Whether a manifest of the partition waits for collection together with its segments."""
        ...

    def released_segments(self) -> Mapping[SegmentId, int]:
        """Segments that were let go of → Unix ms of when; until ForgetSegments."""
        ...

    def released_manifests(self) -> Mapping[ManifestId, tuple[int, bool]]:
        """Manifests that were let go of → Unix ms of when, and whether their segments go with them."""
        ...


class MergedCollector:
    """Finds garbage of merging and compaction and deletes it. Two at once do no harm.

    `forget` proposes ForgetSegments; `now_ms` is the wall clock, Unix ms; `remove` deletes objects by key, as
    the store's `delete` does. `backed` is asked before anything goes that the state let go of.
    """

    def __init__(
        self,
        store: ObjectStore,
        ranges: MergedRanges,
        view: MergedView,
        forget: Forget,
        grace: Grace,
        remove: Remove | None = None,
        backed: Backing = always,
    ) -> None:
        self._store = store
        self._removal = Removal(remove or store.delete)
        self._ranges = ranges
        self._view = view
        self._forget = forget
        self._grace = grace
        self._backed = backed
        self._settled = Settled(grace.now_ms)

    async def run(self, report: Report) -> None:
        """One pass; adds to `report`. In a dry run nothing is deleted. Raises StoreError."""
        await self._view.catch_up()
        await self._collect_released(report)
        found: list[Candidate] = []
        for kind in (SEGMENTS, MANIFESTS):
            found += await self._survey(report, kind)
        if not report.unknown_authors and not report.blind:
            await self._delete(report, found)

    async def _collect_released(self, report: Report) -> None:
        segments, manifests, whole = await self._due()
        if (segments or manifests or whole) and not report.dry_run:
            count = f"{len(segments)} segments and {len(manifests) + len(whole)} manifests"
            if not await may_go(report, self._backed, count):
                return
            released, let_go = self._view.released_segments(), self._view.released_manifests()
            segments = [each for each in segments if each in released]
            manifests, whole = ([each for each in some if each in let_go] for some in (manifests, whole))
        await self._drop(report, segments, manifests)
        for manifest in whole:
            key = manifest_key(manifest)
            try:
                await self._drop_whole(report, manifest)
            except StoreError as error:  # of one object, or of the next request too
                report.failure(f"{key}: {error}")
                if self._removal.failing.failed(key, error):
                    raise
            else:
                self._removal.failing.worked(key)

    async def _due(self) -> tuple[list[SegmentId], list[ManifestId], list[ManifestId]]:
        """Segments and manifests whose grace is over, and manifests that take their segments along.

        Looked at in steps, as chunks are: what is deleted with many topics is all let go of at once.
        """
        grace, now_ms, view = self._grace, self._grace.now_ms(), self._view
        segments, manifests, whole = list[SegmentId](), list[ManifestId](), list[ManifestId]()
        async for some in in_steps(list(view.released_segments())):
            released = view.released_segments()
            for segment in some:
                since_ms = released.get(segment)  # another agent may have it forgotten meanwhile
                if since_ms is not None and grace.is_over(segment, since_ms, now_ms):
                    segments.append(segment)
        async for others in in_steps(list(view.released_manifests())):
            let_go = view.released_manifests()
            for manifest in others:
                found = let_go.get(manifest)
                if found is not None and grace.is_over(manifest, found[0], now_ms):
                    (whole if found[1] else manifests).append(manifest)
        return segments, manifests, whole

    async def _drop_whole(self, report: Report, manifest: ManifestId) -> None:
        """The segments that a manifest names, then the manifest, then its mention."""
        try:
            content = await self._store.get(manifest_key(manifest))
            named = await off_loop(len(content), lambda: decode(content, manifest))
        except NotFound:  # a run before this one came as far as that
            named = None
        except CorruptManifest as error:
            report.stranger(f"{manifest_key(manifest)} ({error})")
            return
        count, gone = len(named) if named is not None else 0, 0
        for start in range(0, count, DELETE_KEYS_MAX):
            assert named is not None, "it has segments"
            page = named.segments(start, min(start + DELETE_KEYS_MAX, count))
            gone += len(await self._delete(report, [_released(segment_key(each)) for each in page]))
            await asyncio.sleep(0)  # in a dry run nothing else lets others run
        if gone == count:  # without its manifest nothing would name a segment that stays
            await self._drop(report, (), [manifest])

    async def _drop(
        self, report: Report, segments: Sequence[SegmentId], manifests: Sequence[ManifestId]
    ) -> None:
        """Delete what the state let go of and have it forgotten, a page at a time."""
        pages: list[tuple[Sequence[SegmentId], Sequence[ManifestId]]] = []
        for start in range(0, len(segments), DELETE_KEYS_MAX):
            pages.append((segments[start : start + DELETE_KEYS_MAX], ()))
        for start in range(0, len(manifests), DELETE_KEYS_MAX):
            pages.append(((), manifests[start : start + DELETE_KEYS_MAX]))
        for some, others in pages:
            keys = [*map(segment_key, some), *map(manifest_key, others)]
            gone = await self._delete(report, list(map(_released, keys)))
            if gone and not report.dry_run:
                await self._forget(
                    [each for each in some if segment_key(each) in gone],
                    [each for each in others if manifest_key(each) in gone],
                )
            await asyncio.sleep(0)

    async def _delete(self, report: Report, found: Sequence[Candidate]) -> set[str]:
        """Delete what the store lets go of; which are gone. Raises StoreError when it is away."""
        gone: set[str] = set()
        for start in range(0, len(found), DELETE_KEYS_MAX):
            page = found[start : start + DELETE_KEYS_MAX]
            keys = [each.key for each in page]
            went = set(keys) if report.dry_run else await self._removal(keys, report.failure)
            deleted = [each for each in page if each.key in went]
            report.deleted += deleted
            report.deleted_bytes += sum(each.size for each in deleted)
            gone |= went
        return gone

    async def _survey(self, report: Report, kind: str) -> list[Candidate]:
        """Uncommitted garbage in the folders of authors that are not live."""
        uncommitted: list[Candidate] = []
        folders = await self._store.list_folders(kind)
        await self._view.catch_up()
        for folder in folders:
            incarnation = parse_incarnation_folder(folder)
            if not self._settled.is_due(kind + folder):
                continue
            if incarnation is not None and self._view.standing(incarnation) is Standing.LIVE:
                continue
            settled = True
            async for each in self.survey(kind, folder):
                report.examined += 1
                settled &= each.verdict is Verdict.REFERENCED
                if each.verdict is Verdict.UNCOMMITTED and len(uncommitted) < CANDIDATES_MAX:
                    uncommitted.append(each)
                elif each.verdict is Verdict.STRANGER:
                    report.stranger(each.key)
                elif each.verdict is Verdict.AUTHOR_UNKNOWN and incarnation is not None:
                    report.unknown_authors[incarnation] = report.unknown_authors.get(incarnation, 0) + 1
            if settled:
                self._settled.note(kind + folder)
        self._settled.forget_others(kind, folders)
        return uncommitted

    async def survey(self, kind: str, folder: str) -> AsyncIterator[Candidate]:
        """Every object of one author below SEGMENTS or MANIFESTS with its verdict."""
        incarnation = parse_incarnation_folder(folder)
        prefix = f"{kind}{folder}/" if incarnation is None else incarnation_prefix(incarnation, kind)
        async for page in self._store.list(prefix):
            await self._view.catch_up()
            for meta in page:
                verdict = await (self._segment(meta) if kind == SEGMENTS else self._manifest(meta))
                yield Candidate(meta.key, meta.size, verdict)

    async def _segment(self, meta: ObjectMeta) -> Verdict:
        segment = parse_segment_key(meta.key)
        if segment is None:
            return Verdict.STRANGER
        view = self._view
        if segment in view.released_segments() or view.let_go_whole(segment.partition):
            return Verdict.RELEASED_LATELY
        pointer = view.manifest_of(segment.partition)
        if pointer is not None:
            try:
                manifest = await self._ranges.manifest(pointer)
            except StoreError:  # replaced meanwhile, or out of reach: the next run decides
                return Verdict.UNCOMMITTED_LATELY
            if manifest.names(segment):
                return Verdict.REFERENCED
        return self._by_author(segment.incarnation, meta)

    async def _manifest(self, meta: ObjectMeta) -> Verdict:
        manifest = parse_manifest_key(meta.key)
        if manifest is None:
            return Verdict.STRANGER
        if manifest in self._view.released_manifests():
            return Verdict.RELEASED_LATELY
        if self._view.manifest_of(manifest.partition) == manifest:
            return Verdict.REFERENCED
        return self._by_author(manifest.incarnation, meta)

    def _by_author(self, incarnation: int, meta: ObjectMeta) -> Verdict:
        """Of an object that the state does not know."""
        standing = self._view.standing(incarnation)
        if standing is Standing.UNKNOWN:
            return Verdict.AUTHOR_UNKNOWN
        if standing is Standing.LIVE:
            return Verdict.AUTHOR_LIVE
        old = self._grace.now_ms() - meta.modified_ms >= self._grace.ms
        return Verdict.UNCOMMITTED if old else Verdict.UNCOMMITTED_LATELY


def _released(key: str) -> Candidate:
    return Candidate(key, 0, Verdict.RELEASED)
