"""The append chain: the one place that decides whether an entry landed (rules 2 and 3).

An adapter supplies a single attempt: one transaction that compares the incarnation key's revision with
the one this chain's last append left, and when equal writes the entry and rewrites the key. From the
attempts' outcomes this class concludes; it never looks whether the entry itself exists, because a
trimmed entry looks like one that never was.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from contextlib import suppress
from dataclasses import dataclass

from coordination.backoff import Backoff
from coordination.log import Fenced, Full, LogRegressed, Unavailable
from objectstore.episodes import Episodes, loop_time, through

RENEWED_AGAIN_S = 0.5  # after a renewal of a lease that failed: it may end before the next was due
_logger = logging.getLogger("floe.coordination.log")


class AttemptFailed(Exception):
    """An attempt without an answer. `ambiguous`: it may have taken effect, or may still. `full`: the log says
    it has no room: trying again helps nobody, and the key knows whether the attempt had an effect.
    """

    def __init__(self, message: str, *, ambiguous: bool, full: bool = False) -> None:
        super().__init__(message)
        self.ambiguous = ambiguous
        self.full = full


@dataclass(frozen=True, slots=True)
class KeyState:
    """An incarnation key as a refused attempt found it.

    `owner` tells registrations of one number apart; `revision` is that of the last append.
    """

    owner: int
    sequence: int
    revision: int


class AppendChain(ABC):
    """Implements coordination.log.Chain over an adapter's single attempt."""

    def __init__(
        self, incarnation: int, owner: int, revision: int, entry_bytes_max: int, backoff: Backoff
    ) -> None:
        """`revision` is the one that registering gave the incarnation key."""
        self._incarnation = incarnation
        self._owner = owner
        self._revision = revision
        self._sequence = 0
        self._entry_bytes_max = entry_bytes_max
        self._backoff = backoff
        self._appending = False
        self._failures = 0
        self._ended: str | None = None
        self._unanswered = Episodes(
            through(_logger), loop_time, begins="an append fails", ends="appends are answered again"
        )

    @property
    def incarnation(self) -> int:
        """The number this chain was registered with."""
        return self._incarnation

    @property
    def failures(self) -> int:
        """Attempts of the current append that failed so far; 0 when all is well. For status pages."""
        return self._failures

    async def append(self, payload: bytes) -> int:
        """See coordination.log.Chain. Raises LogRegressed too, when the key went back in time."""
        if len(payload) > self._entry_bytes_max:
            raise ValueError(
                f"an entry of {len(payload)} bytes exceeds entry_bytes_max {self._entry_bytes_max}: split it"
            )
        if self._appending:
            raise RuntimeError(f"incarnation {self._incarnation:016x} already has an append in flight")
        if self._ended is not None:
            raise Fenced(self._ended, maybe_appended=False)
        self._appending = True
        try:
            return await self._append_until_known(payload)
        except Full:
            raise  # no attempt had an effect: the chain goes on where it was
        except BaseException as error:
            # Also when cancelled: a chain whose last outcome is unknown must not go on.
            self._ended = f"incarnation {self._incarnation:016x} ended: {error or type(error).__name__}"
            self._unanswered.over("", event="appends of this incarnation are over", **self._names())
            self.abandon()
            raise
        finally:
            self._appending = False

    async def _append_until_known(self, payload: bytes) -> int:
        sequence = self._sequence + 1
        maybe_appended = False
        self._failures = 0
        for delay in self._backoff.delays():
            try:
                outcome = await self._attempt(sequence, payload, self._revision)
            except AttemptFailed as failure:
                maybe_appended = maybe_appended or failure.ambiguous
                if failure.full:
                    found = await self._key_at_last()
                    if not self._stands_before(found, sequence):
                        return self._landed(self._conclude(found, sequence, maybe_appended=True), sequence)
                    if not maybe_appended:
                        raise Full(str(failure)) from failure
                self._failures += 1
                self._unanswered.met("", **self._names(), sequence=sequence, error=str(failure))
                await asyncio.sleep(delay)
                continue
            return self._landed(self._conclude(outcome, sequence, maybe_appended), sequence)
        raise AssertionError("delays never end")

    async def _key_at_last(self) -> KeyState | None:
        """This incarnation's key, however long it takes to read it.

        A log without room may have said so of what it applied: etcd looks at its quota before it proposes
        a request, and again while it applies it, which it does in any case (server/etcdserver/apply,
        quotaApplierV3).
        """
        for delay in self._backoff.delays():
            with suppress(Unavailable):
                return await self._key()
            await asyncio.sleep(delay)
        raise AssertionError("delays never end")

    def _stands_before(self, found: KeyState | None, sequence: int) -> bool:
        """Whether the key is ours and `sequence` is not its last append: that had no effect."""
        return found is not None and found.owner == self._owner and found.sequence != sequence

    def _landed(self, revision: int, sequence: int) -> int:
        self._sequence, self._revision, self._failures = sequence, revision, 0
        self._unanswered.over("", **self._names(), sequence=sequence)
        return revision

    def _names(self) -> dict[str, str]:
        return {"incarnation": f"{self._incarnation:016x}"}

    def _conclude(self, outcome: int | KeyState | None, sequence: int, maybe_appended: bool) -> int:
        """The revision at which the entry landed; raises Fenced or LogRegressed when it did not."""
        if isinstance(outcome, int):
            return outcome
        if outcome is None:
            raise Fenced(
                f"incarnation {self._incarnation:016x}: its key is gone", maybe_appended=maybe_appended
            )
        if outcome.owner != self._owner:
            raise Fenced(
                f"incarnation {self._incarnation:016x} was registered again by someone else",
                maybe_appended=maybe_appended,
            )
        if outcome.sequence == sequence and maybe_appended:
            return outcome.revision
        raise LogRegressed(
            f"incarnation {self._incarnation:016x} left its key at sequence {self._sequence}, revision "
            f"{self._revision}, and finds it at {outcome.sequence}, {outcome.revision}: the log went back"
        )

    @abstractmethod
    async def _attempt(self, sequence: int, payload: bytes, expected: int) -> int | KeyState | None:
        """One transaction. The revision when it took effect, else the key as it is, None when it is gone.

        Raises AttemptFailed when there was no answer.
        """

    @abstractmethod
    async def _key(self) -> KeyState | None:
        """This incarnation's key by one linearizable read; None when it is gone. Raises Unavailable."""

    @abstractmethod
    def abandon(self) -> None:
        """Renew the lease no more, and tell nobody: what a chain that has ended leaves behind runs out."""

    @abstractmethod
    async def close(self) -> None:
        """See coordination.log.Chain."""
