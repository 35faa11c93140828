"""What a replica does whose state another agent's contradicts (decision 0043).

It applies nothing more, and so acknowledges nothing, until it is known which of the two is wrong. Where that
is the other one it goes on. Else, and where nobody can tell, it takes another copy of the log, makes a state
anew of the newest snapshot and the log's entries, beside the one that it has, and takes that in its place
once nobody contradicts it. Meanwhile it serves nobody.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, cast

from coordination.log import Copied, Copy, Entries, Log, LogEntry, Trimmed, Unavailable
from coordination.replica.comparing import (
    ENTRIES_REMEMBERED,
    Comparison,
    Difference,
    Findings,
    Verdict,
    by_copies,
)
from coordination.replica.loading import load_newest
from coordination.replica.options import ReplicaOptions
from coordination.state import State, StateError
from coordination.state.digest import print_of
from objectstore.store import ObjectStore, StoreError

WAIT_S_MAX = 30.0
"""Between two tries to get a state that nobody contradicts, seconds; the first wait is `retry_s`."""
REBUILD_S_MAX = 600.0
"""Until a state must have been made anew, seconds."""
UNREADABLE_MAX = 8
"""So many times in a row the log may have an entry that cannot be applied, of one copy or another."""
REFUTED = (Verdict.WRONG, Verdict.UNKNOWN)
_logger = logging.getLogger("floe.coordination.doubt")


class Disputed(Exception):
    """Another agent's hash is not this one's."""

    def __init__(self, difference: Difference) -> None:
        super().__init__(str(difference))
        self.difference = difference


@dataclass(slots=True)
class Rebuilt:
    """A state made anew, what others have said beside it, and through which revision it has everything."""

    state: State
    comparison: Comparison
    through: int


class Doubt:
    """One replica's. `reason` is empty unless it is in doubt; it serves nobody then."""

    def __init__(self, log: Log, store: ObjectStore, options: ReplicaOptions) -> None:
        self.reason = ""
        self.on_doubt: list[Callable[[], None]] = []
        """Called once it is not this agent that is right, or not known: whoever waits for it is sent away."""
        self.counts: Counter[str] = Counter()
        """By verdict; `rebuilt`: states that were made anew."""
        self._log, self._store, self._options = log, store, options

    async def settle(self, state: State, through: int, comparison: Comparison) -> Rebuilt | None:
        """Return once this agent may serve again: with another state, or None with the one that it has.

        Raises StateError, LogRegressed, ReplicaFailed: this agent must stop.
        """
        differences = comparison.differing(state)
        if not differences:  # whoever said so is gone
            self.reason = ""
            return None
        self.reason = f"another agent has another state: {differences[0]}"
        verdict = await self._judge(state, comparison, differences)
        self._tell(verdict, differences)
        if verdict is Verdict.SOUND:
            comparison.distrust(differences)
            self.reason = ""
            return None
        self._send_away()
        return await self._anew(through, comparison.own)

    async def unreadable(self, after: int, own: Callable[[int], bool], error: StateError) -> Rebuilt | None:
        """An entry above `after` cannot be applied: a new state where just one copy of the log has it so.

        None where the copies are the same, or are not known: the log itself has such an entry.
        """
        found = await self._ask({}, after, after + ENTRIES_REMEMBERED)
        if not found.differ:
            return None
        self.reason = f"an entry is not as others have it: {error}"
        self.counts[Verdict.WRONG.value] += 1
        _logger.error("this agent's copy of the log is another one", extra={"fields": {"reason": str(error)}})
        self._send_away()
        return await self._anew(after, own)

    async def sustained(self, after: int, through: int, entries: Sequence[LogEntry]) -> bool | None:
        """Whether most of the log's copies have just these entries above `after` and up to `through`.

        None: those that answer have, and most do not answer. True where the log has no copies.
        """
        copies = await self._copies(after, through)
        mine = {each.revision: print_of(each) for each in entries}
        if self._found(by_copies(mine, after, copies), after, through).verdict in REFUTED:
            return False
        answered = sum(copy is not None for copy in copies.values())
        return True if 2 * answered > len(copies) or not copies else None

    async def _anew(self, through: int, own: Callable[[int], bool]) -> Rebuilt:
        wait_s, unreadable = self._options.retry_s, 0
        while True:
            try:
                async with asyncio.timeout(REBUILD_S_MAX):
                    rebuilt = await self._rebuild(through, own)
                if await self._is_believed(rebuilt):
                    self.counts["rebuilt"] += 1
                    told = {"revision": rebuilt.state.revision, "hash": rebuilt.state.hash}
                    _logger.warning("this agent has made its state anew", extra={"fields": told})
                    self.reason = ""
                    return rebuilt
            except StateError as error:  # of the copy that is followed now, or of the log itself
                self._failed(error)
                unreadable += 1
                if unreadable > UNREADABLE_MAX:
                    raise
                self._turn(())
            except (Trimmed, Unavailable, StoreError, TimeoutError) as error:
                self._failed(error)
            await asyncio.sleep(wait_s)
            wait_s = min(2 * wait_s, WAIT_S_MAX)

    async def _rebuild(self, through: int, own: Callable[[int], bool]) -> Rebuilt:
        """The newest snapshot, and the log behind it at least as far as the old state was."""
        state = await load_newest(self._log, self._store, self._options.apply_slice_s)
        comparison = Comparison(own, state.revision)
        target = max(through, await self._log.current())
        loop = asyncio.get_running_loop()
        until = loop.time() + self._options.apply_slice_s
        reached = state.revision
        log = self._log
        follow = log.follow_copy if isinstance(log, Copied) else log.follow
        following = cast(Any, follow(state.revision, state.last_entry))
        async with aclosing(following) as batches:
            async for batch in cast(AsyncIterator[Entries], batches):
                for entry in batch.entries:
                    applied = state.apply(entry)
                    comparison.note(entry)
                    comparison.heard(applied, state)
                    if loop.time() >= until:
                        await asyncio.sleep(0)
                        until = loop.time() + self._options.apply_slice_s
                reached = max(reached, batch.through)
                if reached >= target:
                    break
        return Rebuilt(state, comparison, reached)

    async def _is_believed(self, rebuilt: Rebuilt) -> bool:
        differences = rebuilt.comparison.differing(rebuilt.state)
        if not differences:
            return True
        verdict = await self._judge(rebuilt.state, rebuilt.comparison, differences)
        if verdict is Verdict.SOUND:
            rebuilt.comparison.distrust(differences)
            return True
        self._tell(verdict, differences)
        return False

    async def _judge(self, state: State, comparison: Comparison, differences: list[Difference]) -> Verdict:
        """By the copies of the log where they can tell, else by what most agents say."""
        after = max(comparison.begins, min(each.since for each in differences))
        through = state.revision
        found = await self._ask(comparison.prints(after, through), after, through)
        if found.verdict is not None:
            return found.verdict
        return comparison.vote(state)

    async def _ask(self, mine: dict[int, bytes], after: int, through: int) -> Findings:
        """What the copies say; none is followed that most contradict."""
        return self._found(by_copies(mine, after, await self._copies(after, through)), after, through)

    async def _copies(self, after: int, through: int) -> Mapping[str, Copy | None]:
        return await self._log.copies(after, through) if isinstance(self._log, Copied) else {}

    def _found(self, found: Findings, after: int, through: int) -> Findings:
        if found.wrong:
            told = {"copies": list(found.wrong), "after": after, "through": through}
            _logger.error("a copy of the log is not as the others are", extra={"fields": told})
            self._turn(found.wrong)
        elif found.verdict is not Verdict.SOUND and found.verdict is not None:
            self._turn(())
        return found

    def _turn(self, copies: tuple[str, ...]) -> None:
        if isinstance(self._log, Copied):
            self._log.turn_from(copies)

    def _send_away(self) -> None:
        for tell in list(self.on_doubt):
            tell()

    def _tell(self, verdict: Verdict, differences: list[Difference]) -> None:
        self.counts[verdict.value] += 1
        told = {"verdict": verdict.value, "reason": str(differences[0]), "agents": len(differences)}
        level = logging.WARNING if verdict is Verdict.SOUND else logging.ERROR
        _logger.log(level, "another agent has another state", extra={"fields": told})

    def _failed(self, error: Exception) -> None:
        self.counts["failed"] += 1
        told = {"error": f"{type(error).__name__}: {error}"}
        _logger.warning("no state could be made anew", extra={"fields": told})
