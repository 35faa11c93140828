"""At which revision of the log chunks were committed, as far as this agent has seen it.

The state knows which chunks are referenced, and not since when. So an agent notes of each entry up to which
serial number chunks were known after it: bounded, and nothing of before its start.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from agent.http.parts import Parts
    from coordination.state.state import State
    from coordination.state.types import Applied
    from objectstore.naming import ChunkId

SPARE: Final = 1_024
"""Entries above the bound before the oldest go, together: to take one from the front moves all."""


class Commit(NamedTuple):
    """When a chunk was committed: the entry's revision, and the log's own clock then, Unix ms."""

    revision: int
    at_ms: int


class Commits:
    """Follows the log from when it is made."""

    def __init__(self, parts: Parts) -> None:
        self._most = parts.config.console.commits_remembered_max
        self._replica = parts.replica
        self._begun = self._known = parts.replica.state.chunks.next_serial
        self._ends: array[int] = array("q")
        self._revisions: array[int] = array("q")
        self._times: array[int] = array("q")
        parts.replica.add_listener(self._applied)
        parts.replica.add_reload_listener(self._reloaded)

    def of(self, chunk: ChunkId) -> Commit | None:
        """None: from before this agent's memory, or no chunk that is referenced."""
        serial = self._replica.state.chunks.serials.get(chunk)
        if serial is None or serial < self._begun:
            return None
        number = bisect_right(self._ends, serial)
        if number == len(self._ends):
            return None
        return Commit(self._revisions[number], self._times[number])

    def _applied(self, applied: Applied) -> None:
        state = self._replica.state
        if state.chunks.next_serial == self._known or not self._most:
            return
        self._known = state.chunks.next_serial
        self._ends.append(self._known)
        self._revisions.append(applied.revision)
        self._times.append(state.clock_ms)
        if len(self._ends) >= self._most + SPARE:
            self._begun = self._ends[SPARE - 1]
            for column in (self._ends, self._revisions, self._times):
                del column[:SPARE]

    def _reloaded(self, state: State) -> None:
        self._begun = self._known = state.chunks.next_serial
        for column in (self._ends, self._revisions, self._times):
            del column[:]
