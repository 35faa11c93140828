"""Garbage collection of chunks (rule 9): nothing is deleted that could still be referenced.

    author in the log | chunk                         | verdict
    any               | referenced                    | keep
    any               | released, within the grace    | keep: a reader may have planned with it
    any               | released, grace over          | delete, then ForgetChunks, once `backed` lets it
    live              | not in the state              | keep: its commit may be on the way
    fenced            | not in the state, new         | keep until the grace is over
    fenced            | not in the state, old         | delete: its commit can never come
    unknown           | not in the state              | keep, report: was etcd restored from an older backup?

Only names are believed from a listing, and only a state newer than the listing decides about them. While
an unknown author has chunks, nothing uncommitted is deleted at all: what this log calls uncommitted,
the lost log may have acknowledged.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol, TypeVar

from objectstore.grace import Grace
from objectstore.naming import (
    CHUNKS,
    ChunkId,
    chunk_key,
    incarnation_prefix,
    parse_chunk_key,
    parse_incarnation_folder,
)
from objectstore.removal import DELETE_KEYS_MAX, Removal, Remove
from objectstore.store import ObjectMeta, ObjectStore

CANDIDATES_MAX = 100_000  # uncommitted objects of a kind deleted by one run; the next run finds the rest
LOOKS_PER_STEP = 4096  # released objects looked at before the event loop gets its turn
LOOKED_AGAIN_MS = 24 * 3_600_000  # a folder without garbage: a PUT of its dead author may still have landed
TOLD_MAX = 100  # strangers, and what failed, that a report names; the others are counted

_T = TypeVar("_T")
Backing = Callable[[], Awaitable[str]]
"""Waits until a restore would know all that the log let go of by now; empty, or why it would not."""


async def always() -> str:
    """Where there is nothing to be restored from: nothing is waited for."""
    return ""


class Standing(Enum):
    """What the log says of an author."""

    LIVE = "live"
    FENCED = "fenced"
    UNKNOWN = "unknown"


class LogView(Protocol):
    """The replicated state, as the collector needs it."""

    async def catch_up(self) -> None:
        """Read barrier: afterwards the answers below are at least as new as this call."""
        ...

    def standing(self, incarnation: int) -> Standing:
        """What became of an author."""
        ...

    def is_referenced(self, chunk: ChunkId) -> bool:
        """Whether any slice of the state points into the chunk."""
        ...

    def released(self) -> Mapping[ChunkId, int]:
        """Committed chunks without a reference → Unix ms when the last one went; until ForgetChunks."""
        ...


class Verdict(Enum):
    """What may be done with one object."""

    REFERENCED = "referenced"
    RELEASED_LATELY = "released lately"
    RELEASED = "released"
    AUTHOR_LIVE = "author live"
    UNCOMMITTED_LATELY = "uncommitted, lately"
    UNCOMMITTED = "uncommitted"
    AUTHOR_UNKNOWN = "author unknown"
    STRANGER = "not a chunk"

    @property
    def garbage(self) -> bool:
        """Whether the object may be deleted."""
        return self in (Verdict.RELEASED, Verdict.UNCOMMITTED)


KNOWN = (Verdict.REFERENCED, Verdict.RELEASED_LATELY, Verdict.RELEASED)
"""Of chunks that the state has by name: a listing says nothing new of them."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """One object and the verdict on it."""

    key: str
    size: int
    verdict: Verdict


@dataclass(slots=True)
class Report:
    """What a run found and did. Sizes in bytes.

    `unknown_authors`: incarnation → how many chunks it has that the state does not refer to. `blind`: whether
    there are any could not be looked at, so nothing uncommitted may go.
    """

    dry_run: bool
    blind: bool = False
    examined: int = 0
    deleted: list[Candidate] = field(default_factory=list)  # in a dry run: what would be
    deleted_bytes: int = 0
    strangers: list[str] = field(default_factory=list)
    unknown_authors: dict[int, int] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)  # what could not be looked at, and why; the next run does
    untold: int = 0  # strangers and failures beyond those that are named

    def stranger(self, what: str) -> None:
        """Note what is not Floe's."""
        self._note(self.strangers, what)

    def failure(self, what: str) -> None:
        """Note what could not be looked at, and why."""
        self._note(self.failed, what)

    def _note(self, named: list[str], what: str) -> None:
        if len(named) < TOLD_MAX:
            named.append(what)
        else:
            self.untold += 1

    @property
    def warnings(self) -> list[str]:
        """What an operator must look at, in full sentences."""
        told = [
            f"incarnation {incarnation:016x} has {count} chunks but is not in the log: if etcd was restored "
            "from an older backup, stop and restore the newer one; nothing uncommitted is deleted meanwhile"
            for incarnation, count in self.unknown_authors.items()
        ]
        told += [f"{each}: it stays for now" for each in self.failed]
        told += [f"{key} is not Floe's and stays" for key in self.strangers]
        return told + ([f"{self.untold} more objects like these stay"] if self.untold else [])


class Settled:
    """Folders of ended authors in which there was nothing to find, and when; only those that there are.

    `now_ms`: the wall clock, Unix ms.
    """

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._since_ms: dict[str, int] = {}

    def is_due(self, folder: str) -> bool:
        """Whether to look into it."""
        return self._now_ms() - self._since_ms.get(folder, -LOOKED_AGAIN_MS) >= LOOKED_AGAIN_MS

    def note(self, folder: str) -> None:
        """There was nothing to find."""
        self._since_ms[folder] = self._now_ms()

    def forget_others(self, kind: str, listed: Sequence[str]) -> None:
        """Of this kind there are just these folders."""
        there = {kind + folder for folder in listed}
        for name in [each for each in self._since_ms if each.startswith(kind) and each not in there]:
            del self._since_ms[name]


async def in_steps(names: Sequence[_T]) -> AsyncIterator[Sequence[_T]]:
    """All of them, some at a time, with a turn of others behind each: the state may move meanwhile."""
    for start in range(0, len(names), LOOKS_PER_STEP):
        yield names[start : start + LOOKS_PER_STEP]
        await asyncio.sleep(0)


async def may_go(report: Report, backed: Backing, what: str) -> bool:
    """Whether a restore could do without these objects; the report is told where not."""
    problem = await backed()
    if problem:
        report.failure(f"{what} that the log let go of: {problem}")
    return not problem


def judge(meta: ObjectMeta, view: LogView, now_ms: int, grace_ms: int) -> Verdict:
    """The verdict on one listed object by the table above. Pure; `view` is newer than the listing."""
    chunk = parse_chunk_key(meta.key)
    if chunk is None:
        return Verdict.STRANGER
    if view.is_referenced(chunk):
        return Verdict.REFERENCED
    released_ms = view.released().get(chunk)
    if released_ms is not None:
        return Verdict.RELEASED if now_ms - released_ms >= grace_ms else Verdict.RELEASED_LATELY
    standing = view.standing(chunk.incarnation)
    if standing is Standing.UNKNOWN:
        return Verdict.AUTHOR_UNKNOWN
    if standing is Standing.LIVE:
        return Verdict.AUTHOR_LIVE
    old = now_ms - meta.modified_ms >= grace_ms
    return Verdict.UNCOMMITTED if old else Verdict.UNCOMMITTED_LATELY


class Collector:
    """Finds garbage and deletes it. One runs at a time, but two at once do no harm.

    `forget` proposes ForgetChunks; `remove` deletes objects by key, as the store's `delete` does. `backed` is
    asked before anything goes that the state let go of.
    """

    def __init__(
        self,
        store: ObjectStore,
        view: LogView,
        forget: Callable[[Sequence[ChunkId]], Awaitable[None]],
        grace: Grace,
        remove: Remove | None = None,
        backed: Backing = always,
    ) -> None:
        self._store = store
        self._removal = Removal(remove or store.delete)
        self._view = view
        self._forget = forget
        self._grace = grace
        self._backed = backed
        self._settled = Settled(grace.now_ms)

    async def run(self, *, dry_run: bool = False) -> Report:
        """One pass. In a dry run nothing is deleted and `deleted` tells what would be. Raises StoreError."""
        report = Report(dry_run)
        await self._view.catch_up()
        await self._collect_released(report)
        found = await self._survey(report)
        if not report.unknown_authors:
            for start in range(0, len(found), DELETE_KEYS_MAX):
                await self._delete(report, found[start : start + DELETE_KEYS_MAX])
        return report

    async def _collect_released(self, report: Report) -> None:
        """What the state itself calls garbage needs no listing: the object, then its mention, goes."""
        due = await self._due()
        if due and not report.dry_run:
            if not await may_go(report, self._backed, f"{len(due)} chunks"):
                return
            released = self._view.released()
            due = [chunk for chunk in due if chunk in released]
        for start in range(0, len(due), DELETE_KEYS_MAX):
            chunks = due[start : start + DELETE_KEYS_MAX]
            page = [Candidate(chunk_key(chunk), 0, Verdict.RELEASED) for chunk in chunks]
            gone = await self._delete(report, page)
            forgotten = [chunk for chunk in chunks if chunk_key(chunk) in gone]
            if forgotten and not report.dry_run:
                await self._forget(forgotten)

    async def _due(self) -> Sequence[ChunkId]:
        """Those whose grace is over, looked at in steps: an hour of much traffic has some 100,000."""
        grace, now_ms, due = self._grace, self._grace.now_ms(), list[ChunkId]()
        async for some in in_steps(list(self._view.released())):
            released = self._view.released()
            for chunk in some:
                since_ms = released.get(chunk)  # another agent may have it forgotten meanwhile
                if since_ms is not None and grace.is_over(chunk, since_ms, now_ms):
                    due.append(chunk)
        return due

    async def _delete(self, report: Report, page: Sequence[Candidate]) -> set[str]:
        """Delete what the store lets go of; which are gone. Raises StoreError when it is away."""
        gone = {each.key for each in page}
        if not report.dry_run:
            gone = await self._removal([each.key for each in page], report.failure)
        deleted = [each for each in page if each.key in gone]
        report.deleted += deleted
        report.deleted_bytes += sum(each.size for each in deleted)
        return gone

    async def _survey(self, report: Report) -> Sequence[Candidate]:
        """Uncommitted garbage in the folders of authors that are not live."""
        uncommitted: list[Candidate] = []
        folders = await self._store.list_folders(CHUNKS)
        await self._view.catch_up()
        for folder in folders:
            if self._is_live(folder) or not self._settled.is_due(CHUNKS + folder):
                continue
            settled = True
            async for each in self._within(folder):
                settled &= each.verdict in KNOWN
                self._sort(report, each, uncommitted)
            if settled:
                self._settled.note(CHUNKS + folder)
        self._settled.forget_others(CHUNKS, folders)
        return uncommitted

    @staticmethod
    def _sort(report: Report, each: Candidate, uncommitted: list[Candidate]) -> None:
        report.examined += 1
        if each.verdict is Verdict.UNCOMMITTED and len(uncommitted) < CANDIDATES_MAX:
            uncommitted.append(each)
        elif each.verdict is Verdict.STRANGER:
            report.stranger(each.key)
        elif each.verdict is Verdict.AUTHOR_UNKNOWN:
            chunk = parse_chunk_key(each.key)
            assert chunk is not None, f"{each.key} was judged as a chunk"
            report.unknown_authors[chunk.incarnation] = report.unknown_authors.get(chunk.incarnation, 0) + 1

    async def survey(self) -> AsyncIterator[Candidate]:
        """Every object below chunks/ with its verdict."""
        folders = await self._store.list_folders(CHUNKS)
        await self._view.catch_up()
        for folder in folders:
            async for each in self._within(folder):
                yield each

    def _is_live(self, folder: str) -> bool:
        incarnation = parse_incarnation_folder(folder)
        return incarnation is not None and self._view.standing(incarnation) is Standing.LIVE

    async def _within(self, folder: str) -> AsyncIterator[Candidate]:
        """Every object of one folder."""
        incarnation = parse_incarnation_folder(folder)
        prefix = f"{CHUNKS}{folder}/" if incarnation is None else incarnation_prefix(incarnation)
        async for page in self._store.list(prefix):
            await self._view.catch_up()
            for candidate in self._judged(page):  # all before the first: the state may move meanwhile
                yield candidate

    def _judged(self, page: Sequence[ObjectMeta]) -> Sequence[Candidate]:
        now_ms, grace_ms = self._grace.now_ms(), self._grace.ms
        return [Candidate(meta.key, meta.size, judge(meta, self._view, now_ms, grace_ms)) for meta in page]
