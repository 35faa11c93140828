"""The server side of the memory log: what etcd is to EtcdLog. Deterministic; no clock but the loop's."""

from __future__ import annotations

import asyncio
import bisect
import copy
from dataclasses import dataclass, field, replace

from coordination.chain import KeyState
from coordination.log import Copy, EntryName, LogEntry, Member, Statement
from coordination.state.digest import print_of


class WatchCancelled(Exception):
    """The server ended the watch."""


class Compacted(Exception):
    """The watch asked for history that is compacted away."""


@dataclass(slots=True)
class _Key:
    owner: int
    info: bytes
    sequence: int
    revision: int
    ttl_s: float
    expires: float


@dataclass(slots=True)
class _State:
    """All that a backup holds."""

    revision: int = 0
    trimmed: int = 0
    compacted: int = 0
    entries: list[LogEntry] = field(default_factory=list)
    keys: dict[int, _Key] = field(default_factory=dict)


@dataclass(slots=True)
class Watch:
    """One follower's stream: a queue of batches, ended by `cancel`."""

    position: int
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    cancelled: bool = False
    silent: bool = False

    def wake(self) -> None:
        """There is something to read, if the watch still speaks."""
        if not self.silent:
            self.changed.set()


MEMBERS = 3  # copies of the log, each of which may be altered


class MemoryServer:
    """One log shared by any number of MemoryLog clients of one event loop.

    Faults of the server itself: `expire` (lease gone), `compact`, `cancel_watches`, `silence_watches`,
    `backup` and `restore` (an older backup). Faults of one client's link are on MemoryLog.
    """

    def __init__(self, name: str = "memory") -> None:
        self.name = name
        self._state = _State()
        self._watches: list[Watch] = []
        self.altered: dict[tuple[int, int], bytes] = {}
        """By member and revision: what its disk has in an entry's place."""

    # What clients ask for; every call is one atomic step.

    @property
    def revision(self) -> int:
        """Grows with every change, as etcd's does."""
        return self._state.revision

    @property
    def trimmed(self) -> int:
        """Entries are gone through this revision."""
        return self._state.trimmed

    def register(self, incarnation: int, owner: int, info: bytes, ttl_s: float) -> int | None:
        """Create the key; its revision, or None when the number was used. Idempotent per owner."""
        state = self._reap()
        key = state.keys.get(incarnation)
        if key is not None and key.owner == owner:
            return key.revision
        if key is not None or any(entry.incarnation == incarnation for entry in state.entries):
            return None
        revision = self._bump()
        expires = asyncio.get_running_loop().time() + ttl_s
        state.keys[incarnation] = _Key(owner, info, 0, revision, ttl_s, expires)
        return revision

    def append(self, incarnation: int, sequence: int, payload: bytes, expected: int) -> int | KeyState | None:
        """The compare-write-rewrite transaction of a chain (see AppendChain)."""
        key = self._reap().keys.get(incarnation)
        if key is None or key.revision != expected:
            return self.key(incarnation)
        revision = self._bump()
        self._state.entries.append(LogEntry(revision, incarnation, sequence, payload))
        key.sequence, key.revision = sequence, revision
        return revision

    def key(self, incarnation: int) -> KeyState | None:
        """The key as it is now; None when it is gone."""
        key = self._reap().keys.get(incarnation)
        return None if key is None else KeyState(key.owner, key.sequence, key.revision)

    def renew(self, incarnation: int, owner: int) -> bool:
        """Keep the lease alive; False when the key is gone."""
        key = self._reap().keys.get(incarnation)
        if key is None or key.owner != owner:
            return False
        key.expires = asyncio.get_running_loop().time() + key.ttl_s
        return True

    def delete(self, incarnation: int, owner: int | None = None) -> None:
        """Delete the key (of that owner, when given)."""
        key = self._state.keys.get(incarnation)
        if key is not None and owner in (None, key.owner):
            del self._state.keys[incarnation]
            self._bump()

    def members(self) -> list[Member]:
        """The live keys in order of their numbers."""
        keys = self._reap().keys
        return [Member(number, keys[number].info, keys[number].sequence) for number in sorted(keys)]

    def trim(self, through: int) -> None:
        """Forget entries at or below `through`, history with them."""
        state = self._state
        through = min(through, state.revision)
        if through > state.trimmed:
            state.trimmed = through
            del state.entries[: self._index(through)]
            self._bump()
            self.compact(through)

    def read(self, after: int, limit: int) -> tuple[list[LogEntry], int]:
        """The entries after `after`, at most `limit`, and the revision through which that is all."""
        begin = self._index(after)
        entries = self._state.entries[begin : begin + limit]
        whole = begin + limit >= len(self._state.entries)
        return entries, self._state.revision if whole else entries[-1].revision

    def copy(self, member: int, after: int, through: int) -> Copy:
        """See coordination.log.Copied."""
        held = [self._as_held(member, each) for each in self.read(after, len(self._state.entries) + 1)[0]]
        return Copy(
            self._state.trimmed, {each.revision: print_of(each) for each in held if each.revision <= through}
        )

    def held(self, member: int, entries: list[LogEntry]) -> list[LogEntry]:
        """As that member's disk has them."""
        return [self._as_held(member, each) for each in entries] if self.altered else entries

    def _as_held(self, member: int, entry: LogEntry) -> LogEntry:
        payload = self.altered.get((member, entry.revision))
        return entry if payload is None else replace(entry, payload=payload)

    def alter(self, member: int, entry: LogEntry) -> None:
        """That member's disk has this entry instead of the one that everybody else has."""
        self.altered[member, entry.revision] = entry.payload

    def has(self, entry: EntryName) -> bool:
        """Whether this entry stands where it is named, or stood there before the log was trimmed."""
        if entry.revision <= self._state.trimmed:
            return True
        found = self._state.entries[self._index(entry.revision - 1) :][:1]
        names = [EntryName(each.revision, each.incarnation, each.sequence) for each in found]
        return names == [entry]

    def testify(self, entry: LogEntry | None) -> Statement:
        """See coordination.log.Witness."""
        keys = self._reap().keys.values()
        newest = max((key.revision for key in keys if key.sequence), default=0)
        holds = entry is None or entry.revision <= self._state.trimmed or self._stands(entry)
        return Statement(self.revision, newest, holds)

    def _stands(self, entry: LogEntry) -> bool:
        return self._state.entries[self._index(entry.revision - 1) :][:1] == [entry]

    def watch(self, after: int) -> Watch:
        """Begin a watch. Raises Compacted."""
        if after < self._state.compacted:
            raise Compacted
        watch = Watch(after)
        watch.changed.set()
        self._watches.append(watch)
        return watch

    def unwatch(self, watch: Watch) -> None:
        """Forget a watch."""
        if watch in self._watches:
            self._watches.remove(watch)

    # Faults to order.

    def expire(self, incarnation: int) -> None:
        """The lease is gone, whatever its holder believes."""
        self.delete(incarnation)

    def compact(self, revision: int) -> None:
        """Drop history: watches behind it are cancelled, and only reading the gap helps."""
        self._state.compacted = max(self._state.compacted, revision)
        for watch in self._watches:
            watch.cancelled = watch.cancelled or watch.position < revision
            watch.wake()

    def cancel_watches(self) -> None:
        """End all watches, as a restarting member does."""
        for watch in self._watches:
            watch.cancelled = True
            watch.changed.set()

    def silence_watches(self) -> None:
        """Existing watches stay open and never speak again."""
        for watch in self._watches:
            watch.silent = True

    def backup(self) -> object:
        """A copy of everything, for restore()."""
        return copy.deepcopy(self._state)

    def restore(self, backup: object) -> None:
        """Go back to a backup."""
        assert isinstance(backup, _State)
        self._state = copy.deepcopy(backup)
        self.cancel_watches()

    def _index(self, after: int) -> int:
        return bisect.bisect_right(self._state.entries, after, key=lambda entry: entry.revision)

    def _bump(self) -> int:
        self._state.revision += 1
        for watch in self._watches:
            watch.wake()
        return self._state.revision

    def _reap(self) -> _State:
        now = asyncio.get_running_loop().time()
        for number in [number for number, key in self._state.keys.items() if key.expires <= now]:
            self.delete(number)
        return self._state
