"""The log port: one total order of entries, with one append chain per agent incarnation.

An adapter (etcd, SQLite, memory) passes tests/contract/test_log.py. The rules it protects are
docs/architecture.md "The rules": a lease ends liveness, never correctness; an append whose outcome
is not known is never reported as success or as definite failure; the watch is not trusted.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable


class LogError(Exception):
    """Base of all log errors; the subclass says what the caller knows."""


class Unavailable(LogError):
    """The log is not reached now; nothing was written. Retry later."""


class Full(Unavailable):
    """The log takes no more entries until somebody makes room; nothing was written. No agent does better."""


class Fenced(LogError):
    """This incarnation's key is gone: it can append no more.

    `maybe_appended` says whether an attempt of the entry being appended may have landed. The
    outcome becomes known once a later entry fencing the incarnation is applied.
    """

    def __init__(self, message: str, *, maybe_appended: bool) -> None:
        super().__init__(message)
        self.maybe_appended = maybe_appended


class Trimmed(LogError):
    """Entries after the asked position are gone up to `through`: load a snapshot at or above it."""

    def __init__(self, through: int) -> None:
        super().__init__(f"the log is trimmed through revision {through}: load a snapshot at or above it")
        self.through = through


class LogRegressed(LogError):
    """The log is not the one that was read: it was restored from an older backup. Not retryable."""


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One entry. `revision` orders all entries; `sequence` counts 1, 2, 3 … within an incarnation."""

    revision: int
    incarnation: int
    sequence: int
    payload: bytes


@dataclass(frozen=True, slots=True)
class EntryName:
    """Which entry of which author stands at a revision: what a reader knows its log by."""

    revision: int
    incarnation: int
    sequence: int


def check_last(last: EntryName, known: bool, after: int, since: Sequence[LogEntry]) -> None:
    """Raise LogRegressed where the log has no entry `last`, or one of those `since` at or below `after`."""
    if not known:
        raise LogRegressed(
            f"the entry of revision {last.revision} is not in the log any more and was not trimmed: "
            "it was restored from an older backup"
        )
    if since and since[0].revision <= after:
        raise LogRegressed(
            f"the log has an entry of revision {since[0].revision} and had none there when it was followed "
            f"through {after}: it was restored from an older backup"
        )


@dataclass(frozen=True, slots=True)
class Entries:
    """What a follower receives: entries in order; everything at or below `through` has been delivered."""

    entries: Sequence[LogEntry]
    through: int


@dataclass(frozen=True, slots=True)
class Member:
    """A live incarnation key. `info` is what it registered with; `sequence` its last appended entry."""

    incarnation: int
    info: bytes
    sequence: int


class Chain(Protocol):
    """The append chain of one incarnation. One append at a time; the caller never cancels it."""

    @property
    def incarnation(self) -> int:
        """63-bit number, unique in the log for ever."""
        ...

    async def append(self, payload: bytes) -> int:
        """Append as this incarnation's next entry; returns its revision, exactly once.

        Retries by itself, for as long as it takes, until the outcome is known. Raises Fenced, and Full (the
        entry is none then, the next one takes its place).
        Raises ValueError, before anything is sent, for a payload above `Log.entry_bytes_max`.
        """
        ...

    async def close(self) -> None:
        """Give the incarnation up (its key is deleted). Idempotent; best effort when unreachable."""
        ...


class Log(Protocol):
    """One cluster's log."""

    @property
    def entry_bytes_max(self) -> int:
        """The largest payload of one entry, bytes."""
        ...

    async def identity(self) -> str:
        """Names the log itself (etcd's cluster id and prefix, the SQLite file's id). Raises Unavailable."""
        ...

    async def register(self, incarnation: int, info: bytes, ttl_s: float) -> Chain:
        """Create the incarnation's key under a lease kept alive by the adapter. Raises Unavailable.

        Raises Fenced when the number was used before.
        """
        ...

    def follow(self, after: int, last: EntryName | None = None) -> AsyncIterator[Entries]:
        """Every entry with revision > `after`, once, in order, for ever; progress when there is none.

        `last`: the newest entry at or below `after`, as far as the reader knows. Survives loss of
        connection, cancelled and silent watches and compaction by itself. Raises Trimmed when entries after
        `after` are gone; LogRegressed when the log went back, and when it has another entry than `last`
        there, or one between `last` and `after`: it went back and was written on since.
        """
        ...

    async def current(self) -> int:
        """The revision of the newest entry or later: a linearizable read barrier. Raises Unavailable."""
        ...

    async def members(self) -> Sequence[Member]:
        """The live incarnation keys, by incarnation. Raises Unavailable."""
        ...

    async def fence(self, incarnation: int) -> None:
        """Delete the incarnation's key: after this it can append no more. Raises Unavailable."""
        ...

    async def trim(self, through: int) -> None:
        """Forget entries at or below `through`. Idempotent; never goes back. Raises Unavailable."""
        ...

    async def trimmed(self) -> int:
        """The revision through which entries are gone; 0 when none. Raises Unavailable."""
        ...

    async def close(self) -> None:
        """Release connections. Chains of this log are given up first by their owners."""
        ...


@runtime_checkable
class Renewing(Protocol):
    """A log whose certificates lie in files that may change."""

    async def renew(self) -> bool:
        """Read them again and use what is new from now on; whether something is.

        Raises OSError and ValueError when they are no pair or cannot be read: the ones before stay in use.
        """
        ...


@dataclass(frozen=True, slots=True)
class Statement:
    """What a log says itself, of one moment.

    `newest`: revision of the newest entry of any live incarnation, 0 when none has one. `holds`: the asked
    entry is in the log exactly so, or is trimmed; True when none was asked.
    """

    revision: int
    newest: int
    holds: bool


@runtime_checkable
class Witness(Protocol):
    """A log of several agents, which can be asked whether what another reader of it says is true."""

    async def testify(self, entry: LogEntry | None = None) -> Statement:
        """By one linearizable read: how far the log is, and whether it has this entry.

        Raises Unavailable; LogRegressed when the log went back.
        """
        ...

    def ask_progress(self) -> None:
        """Have who follows told soon how far the log is, entries or not. Asking often costs nothing."""
        ...


@dataclass(frozen=True, slots=True)
class Copy:
    """Entries as one copy of the log has them: by revision a hash of each (digest.print_of).

    `trimmed`: what it has no more, as it says itself.
    """

    trimmed: int
    prints: Mapping[int, bytes]


@runtime_checkable
class Copied(Protocol):
    """A log that lies in several copies (etcd's members), of which this agent follows one at a time."""

    async def copies(self, after: int, through: int) -> Mapping[str, Copy | None]:
        """Entries above `after` and at or below `through` as each copy has them; None: it does not answer.

        Empty where the log has no copies that can be asked. Raises nothing.
        """
        ...

    def follow_copy(self, after: int, last: EntryName | None = None) -> AsyncIterator[Entries]:
        """As Log.follow, and certainly from a copy itself, not by way of another agent."""
        ...

    def turn_from(self, copies: Collection[str]) -> None:
        """Follow none of these for a while; without any, follow another one than now."""
        ...


@runtime_checkable
class Alarmed(Protocol):
    """A log that can say what is wrong with it although it answers."""

    async def alarms(self) -> Sequence[str]:
        """What its servers complain of; empty when nothing. Raises Unavailable."""
        ...
