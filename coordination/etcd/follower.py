"""Follows the log in etcd by a watch that is not trusted (rule 6).

Before every watch one linearizable transaction says whether following from here is still possible. A
watch that says nothing is asked for progress; one that goes on saying nothing, or that was compacted, is
left and the gap is read by Range.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from dataclasses import dataclass, field

import grpc

from coordination.backoff import Backoff
from coordination.clock import Clock
from coordination.etcd import keys as requests
from coordination.etcd.client import EtcdClient
from coordination.etcd.errors import EtcdError, WatchCompacted
from coordination.etcd.keys import Keys, prefix_end
from coordination.etcd.proto import rpc_pb2 as pb
from coordination.etcd.watch import WatchBatch, WatchStream
from coordination.log import Entries, EntryName, LogEntry, LogRegressed, Trimmed
from objectstore import tasks
from objectstore.episodes import Episodes, loop_time, through

_logger = logging.getLogger("floe.coordination.etcd")
PROGRESS_S = 0.8
PROGRESS_AT_FIRST_S = 0.05
"""Between two, until a watch has first reached what was known: while it catches up etcd answers none."""
ASKED_AFTER = 0.4  # of the time that a watch may say nothing
PAGE_ENTRIES_FIRST = 64
PAGE_ENTRIES_MAX = 4096
PAGE_BYTES_GOAL = 4 << 20  # while a page is smaller the next one asks for twice as many entries


@dataclass(frozen=True, slots=True)
class FollowOptions:
    """Seconds: after how much silence progress is asked for, and how long a watch may say nothing."""

    progress_s: float = PROGRESS_S
    silent_s: float = 2.0

    @classmethod
    def of(cls, silent_s: float) -> FollowOptions:
        """For a watch that may be silent for so long: it is asked twice meanwhile."""
        return cls(min(PROGRESS_S, silent_s * ASKED_AFTER), silent_s)


@dataclass(slots=True)
class Head:
    """The newest revision that any call of this log has seen; wakes followers that are behind it."""

    revision: int = 0
    asked: int = 0
    """How often somebody asked how far the log is, whatever its revision."""
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def seen(self, revision: int, *, awaited: bool = False) -> None:
        """Take note of a linearizable answer's revision.

        `awaited`: somebody waits for the followers to get there, and perhaps no event will take them.
        """
        self.revision = max(self.revision, revision)
        if awaited:
            self._wake()

    def ask(self) -> None:
        """Have followers ask for progress."""
        self.asked += 1
        self._wake()

    def _wake(self) -> None:
        changed, self.changed = self.changed, asyncio.Event()
        changed.set()

    def check(self, revision: int, floor: int) -> None:
        """Raise LogRegressed when a linearizable answer is older than what was known before the question."""
        if revision < floor:
            raise LogRegressed(
                f"etcd is at revision {revision} and was at {floor} before: it was restored from a backup"
            )


class Follower:
    """One reader of the log. `follow` may be called once."""

    def __init__(
        self, client: EtcdClient, keys: Keys, head: Head, clock: Clock, options: FollowOptions
    ) -> None:
        self._client = client
        self._keys = keys
        self._head = head
        self._backoff = Backoff(clock)
        self._options = options
        self._position = 0
        self._last: EntryName | None = None
        self._base = 0
        """Where following began."""
        self._reached = False
        """Whether the watch has been where the log was known to be."""
        self._heard = 0.0
        """When the watch said something last, by the event loop's clock."""
        self._gone = 0
        """What is trimmed or compacted: etcd has no events through this revision."""
        self._away = Episodes(
            through(_logger),
            loop_time,
            begins="etcd cannot be followed",
            ends="etcd is followed again",
            level="info",  # one failed watch is no trouble; who waits for it tells of what lasts
        )

    async def follow(self, after: int, last: EntryName | None = None) -> AsyncGenerator[Entries, None]:
        """See coordination.log.Log.follow."""
        self._position, self._base, self._last = after, after, last
        delays = self._backoff.delays()
        gap = False
        while True:
            before = self._position
            try:
                await self._check()
                async with aclosing(self._read_gap() if gap else self._watch()) as batches:
                    async for batch in batches:
                        self._away.over("", revision=self._position)
                        yield batch
                gap = False
            except WatchCompacted as compacted:
                start = self._start()
                self._gone = max(self._gone, compacted.revision)
                gap = compacted.revision > self._position or self._start() == start
            except EtcdError as error:
                gap = error.code is grpc.StatusCode.DEADLINE_EXCEEDED
                if self._position > before:
                    delays = self._backoff.delays()
                self._away.met("", revision=self._position, error=str(error))
                await asyncio.sleep(next(delays))

    async def _check(self) -> None:
        """Raise Trimmed or LogRegressed when the log cannot be followed from here; EtcdError."""
        operations = [requests.get(self._keys.trimmed)]
        last = self._last
        if last is not None:
            operations.append(requests.get(self._keys.entry(last.incarnation, last.sequence)))
        floor = max(self._head.revision, self._position)
        response = await self._client.txn(pb.TxnRequest(success=operations))
        self._head.check(response.header.revision, floor)
        self._head.seen(response.header.revision)
        trimmed = requests.marker(response.responses[0].response_range.kvs)
        if trimmed > self._position:
            raise Trimmed(trimmed)
        self._gone = max(self._gone, trimmed)
        if last is not None and last.revision > trimmed:
            found = response.responses[1].response_range.kvs
            if not found or found[0].mod_revision != last.revision:
                raise LogRegressed(
                    f"the entry of revision {last.revision} is not in etcd any more and was not trimmed: "
                    "it was restored from an older backup"
                )

    def _start(self) -> int:
        """Behind which revision to ask for entries: the last one's, though the position may be further.

        There is none between the two, or this is not the log that was followed: see _advance.
        """
        last = self._last.revision if self._last is not None else self._base
        return min(self._position, max(last, self._gone))

    async def _watch(self) -> AsyncGenerator[Entries, None]:
        """What the watch says, until it fails: always ends with an exception."""
        stream = await self._client.watch(
            pb.WatchCreateRequest(
                key=self._keys.log,
                range_end=prefix_end(self._keys.log),
                start_revision=self._start() + 1,
                filters=[pb.WatchCreateRequest.NODELETE],
                progress_notify=True,
                fragment=True,
            )
        )
        self._reached = False
        asking = tasks.start(self._ask_for_progress(stream), "progress of the watch")
        try:
            while True:
                batch = await self._next(stream)
                entries = [self._keys.to_entry(event.kv) for event in batch.events]
                advanced = self._advance(entries, batch.through)
                self._reached = self._reached or self._position >= self._head.revision
                if advanced is not None:
                    yield advanced
        finally:
            asking.cancel()
            stream.close()

    async def _next(self, stream: WatchStream) -> WatchBatch:
        try:
            async with asyncio.timeout(self._options.silent_s):
                found = await stream.next()
                self._heard = asyncio.get_running_loop().time()
                return found
        except TimeoutError:
            raise EtcdError(
                f"the watch said nothing for {self._options.silent_s} s",
                code=grpc.StatusCode.DEADLINE_EXCEEDED,
                ambiguous=False,
            ) from None

    async def _ask_for_progress(self, stream: WatchStream) -> None:
        """In silence, and at once when somebody learnt of a revision that the watch has not reached.

        Until it has first been there, again and again: who starts waits for just this answer, and for entries
        that are its log's last no event tells that no more come.
        Entries are a sign of life, too: a watch that brings them is not asked. In silence it is asked however
        often somebody asks meanwhile: reads of what does not change would keep the watch silent, and it would
        be taken for dead.
        """
        loop = asyncio.get_running_loop()
        last, asked = loop.time(), self._head.asked
        while True:
            changed = self._head.changed
            pause_s = self._options.progress_s if self._reached else PROGRESS_AT_FIRST_S
            due = max(last, self._heard) + pause_s
            if self._head.revision > self._position or self._head.asked != asked or loop.time() >= due:
                last, asked = loop.time(), self._head.asked
                due = last + pause_s
                await stream.request_progress()
            with suppress(TimeoutError):
                async with asyncio.timeout_at(due):
                    await changed.wait()

    async def _read_gap(self) -> AsyncGenerator[Entries, None]:
        """All entries after the position, page by page, by Range. Raises Trimmed, EtcdError."""
        limit = PAGE_ENTRIES_FIRST
        while True:
            try:
                response = await self._client.txn(requests.read_after(self._keys, self._start(), limit))
            except EtcdError as error:
                if not error.too_large or limit == 1:
                    raise
                limit = max(1, limit // 8)
                continue
            trimmed = requests.marker(response.responses[0].response_range.kvs)
            if trimmed > self._position:
                raise Trimmed(trimmed)
            page = response.responses[1].response_range
            entries = [self._keys.to_entry(kv) for kv in page.kvs]
            through = entries[-1].revision if page.more else response.header.revision
            advanced = self._advance(entries, through)
            if advanced is not None:
                yield advanced
            if not page.more:
                return
            if response.ByteSize() < PAGE_BYTES_GOAL:
                limit = min(limit * 2, PAGE_ENTRIES_MAX)

    def _advance(self, entries: list[LogEntry], through: int) -> Entries | None:
        """Each entry once: what was delivered already is dropped. None when there is nothing new.

        Raises LogRegressed for an entry that was not there when the log was followed past it.
        """
        last = self._last.revision if self._last is not None else self._base
        for entry in entries:
            if last < entry.revision <= self._position:
                raise LogRegressed(
                    f"etcd has an entry of revision {entry.revision} and had none there when the log was "
                    f"followed through {self._position}: it was restored from an older backup, or is older "
                    "than 3.5.8"
                )
        new = [entry for entry in entries if entry.revision > self._position]
        if through <= self._position:
            return None
        self._position = through
        if new:
            newest = new[-1]
            self._last = EntryName(newest.revision, newest.incarnation, newest.sequence)
        return Entries(new, through)
