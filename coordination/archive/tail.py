"""Entries as this agent applies them, kept until they are in a piece. No I/O.

Whoever holds the job keeps them from the state's own revision on, without a gap. Where they would be too many
(the bucket is away), all are dropped and it begins again: the log still has them.
"""

from __future__ import annotations

from collections.abc import Sequence

from coordination.commands import Entry
from coordination.log import LogEntry
from coordination.state.state import State

QUIET = frozenset({"heartbeat", "record_snapshot", "trim"})
"""Commands that an idle cluster writes by itself: they alone make no piece due by time."""


class Tail:
    """All entries above the revision `after` that were applied since; at most `bytes_max` of payload."""

    def __init__(self, bytes_max: int) -> None:
        self.after: int | None = None
        """None: nothing is kept."""
        self.size = 0
        """Bytes of payload that are kept."""
        self.busy_since: float | None = None
        """When the oldest entry came that an idle cluster would not have written; None: there is none."""
        self._bytes_max = bytes_max
        self._entries: list[LogEntry] = []

    @property
    def entries(self) -> Sequence[LogEntry]:
        """In order."""
        return self._entries

    def begin(self, after: int) -> None:
        """Keep what comes after this revision, and nothing from before."""
        self.after, self.size, self.busy_since = after, 0, None
        self._entries = []

    def end(self) -> None:
        """Keep nothing."""
        self.begin(0)
        self.after = None

    def reload(self, state: State) -> None:
        """A snapshot replaced the state: entries in between were never applied here."""
        if self.after is not None:
            self.begin(state.revision)

    def add(self, entry: LogEntry, now: float) -> None:
        """The next entry, applied at this time of the loop."""
        if self.after is None:
            return
        if self.size + len(entry.payload) > self._bytes_max:
            since = now if self.busy_since is None else self.busy_since
            self.begin(entry.revision)
            self.busy_since = since  # what was dropped is in no piece yet
            return
        self._entries.append(entry)
        self.size += len(entry.payload)
        if self.busy_since is None and not is_quiet(entry):
            self.busy_since = now

    def take(self, above: int, bytes_max: int) -> list[LogEntry]:
        """The oldest entries above a revision: as many as fit into so many bytes, but one at least."""
        taken: list[LogEntry] = []
        size = 0
        for entry in self._entries:
            if entry.revision <= above:
                continue
            size += len(entry.payload)
            if taken and size > bytes_max:
                break
            taken.append(entry)
        return taken

    def joins(self, last: int) -> None:
        """The log was read: there is nothing between the revision `last` and `after`."""
        assert self.after is not None, "it is kept"
        self.after = min(self.after, last)

    def drop(self, through: int, now: float) -> None:
        """Forget entries at or below `through`. What is left counts as having waited since `now`."""
        kept = [entry for entry in self._entries if entry.revision > through]
        if self.after is not None:
            self.after = max(self.after, through)
        if len(kept) != len(self._entries) or not kept:
            self._entries, self.size = kept, sum(len(entry.payload) for entry in kept)
            self.busy_since = None if all(map(is_quiet, kept)) else now


def is_quiet(entry: LogEntry) -> bool:
    """Whether an idle cluster writes such an entry."""
    commands = Entry.FromString(entry.payload).commands
    return all(command.WhichOneof("kind") in QUIET for command in commands)
