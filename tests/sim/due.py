"""Nothing goes before its time, by the true time of the simulation and the stated skew (rule 15).

The true time of a command is when the first agent applies it; Python's own clock is the virtual one.

An agent that is alone has nobody to doubt it: the log's clock takes STEP_MS from it at once, as agreed_time
states. So has one of two while the other clock is further than APART_MS from the log's. So much, of what
the log's clock really took, is allowed beside the skew.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from coordination.restore.source import REVISIONS_PASSED
from coordination.state import agreed_time
from coordination.state.group_types import Group
from coordination.state.state import HANDLERS, State
from coordination.state.types import Done
from tests.sim.astray import Astray

STATED_MS = agreed_time.SKEW_MS + 6_000
"""How much too early is as stated: the skew, and what clocks that are right differ by (plan.py)."""
STEP_MS = agreed_time.STEP_MS
"""As stated, whatever a control puts in its place."""
APART_MS, SKEW_MS = agreed_time.APART_MS, agreed_time.SKEW_MS
"""As stated."""
JUDGED = ("move_log_start", "swap_segments", "purge_topics", "purge_records")
"""Commands that say as of when they judge ages."""
RUN_MS_MAX = 3_600_000
"""What is kept for longer cannot be over in a run."""


class Due:
    """One run's. `wrong` is told the anomaly and the details."""

    def __init__(self, wrong: Callable[[str, str], None], astray: Astray) -> None:
        self._wrong, self._astray = wrong, astray
        self._begun: dict[tuple[str, int], int] = {}
        self._seen: tuple[int, int] | None = None
        """What the log's clock was after the entry before, and the true time then."""
        self._alone_ms = 0
        """The log's clock after its latest step with an agent that was alone."""
        self._steps: list[tuple[int, int]] = []
        """When it took one, and by how much more than the time that passed."""

    def applied(self, state: State, kinds: Sequence[str], commands: Sequence[Any], results: Any) -> None:
        """An entry was applied by the first agent."""
        now_ms = int(time.time() * 1000)
        self._follow(state, now_ms)
        for kind, command, result in zip(kinds, commands, results, strict=True):
            if isinstance(result, Done):
                self._done(kind, getattr(command, kind), result, now_ms)
        for name, known in state.transactions.items():
            if known.ongoing:
                self._begun.setdefault((name, known.number), now_ms)

    def _done(self, kind: str, message: Any, result: Done, now_ms: int) -> None:
        stated_ms = max(now_ms, self._alone_ms) + STATED_MS
        if kind in JUDGED and message.judged_ms > stated_ms:
            self._wrong("too-early", f"{kind} judged {message.judged_ms - now_ms} ms ahead of the true time")
        if kind in ("expire_producers", "expire_transactions") and result.value:
            self._wrong("too-early", f"{kind}: {result.value} of them")

    def _follow(self, state: State, now_ms: int) -> None:
        """Note what the log's clock took from an agent that is alone, and no more than it may."""
        before_ms, seen_ms = self._seen or (state.clock_ms, now_ms)
        self._seen = state.clock_ms, now_ms
        step_ms = min(state.clock_ms - before_ms, STEP_MS)
        if self._only_one_counts(state, before_ms) and step_ms > now_ms - seen_ms:
            self._alone_ms = max(self._alone_ms, min(state.clock_ms, max(before_ms, now_ms) + step_ms))
            self._steps.append((now_ms, step_ms - (now_ms - seen_ms)))
        elif _set_right(state, before_ms):
            self._steps.append((now_ms, max(0, state.clock_ms - before_ms - (now_ms - seen_ms))))

    def _only_one_counts(self, state: State, before_ms: int) -> bool:
        """Whether one agent alone said what time it is: of two, who was near the log's clock before."""
        stamps = [one.last_proposed_ms for one in state.live.values()]
        others = [stamp for stamp in stamps if abs(stamp - before_ms) > APART_MS]
        return len(stamps) == 1 or (len(stamps) == 2 and len(others) == 1 and others[0] < before_ms)

    @contextmanager
    def watches(self) -> Iterator[None]:
        """Everything that is applied meanwhile."""
        abort, expire = HANDLERS["abort_transaction"], HANDLERS["expire_offsets"]

        def aborted(state: State, message: Any, at: Any) -> Any:
            if state in self._astray or at.revision >= REVISIONS_PASSED:
                return abort(state, message, at)
            self._follow(state, int(time.time() * 1000))
            known = state.transactions.get(message.transactional_id)
            timeout_ms = 0 if known is None else known.timeout_ms
            result = abort(state, message, at)
            if isinstance(result, Done) and not message.forced:
                self._aborted((message.transactional_id, message.number), timeout_ms)
            return result

        def expired(state: State, message: Any, at: Any) -> Any:
            if state in self._astray:
                return expire(state, message, at)
            before = {name: _positions(state, state.groups.get(name)) for name in message.group}
            result = expire(state, message, at)
            for name, handles in before.items():
                gone = handles - _positions(state, state.groups.get(name))
                if gone and message.retention_ms > RUN_MS_MAX:
                    self._wrong("too-early", f"positions of {name} for {sorted(gone)}")
            return result

        HANDLERS["abort_transaction"], HANDLERS["expire_offsets"] = aborted, expired
        try:
            yield
        finally:
            HANDLERS["abort_transaction"], HANDLERS["expire_offsets"] = abort, expire

    def _aborted(self, number: tuple[str, int], timeout_ms: int) -> None:
        now_ms = int(time.time() * 1000)
        begun_ms = self._begun.get(number, 0)
        passed_ms = now_ms - begun_ms + sum(step_ms for at_ms, step_ms in self._steps if at_ms >= begun_ms)
        if passed_ms < timeout_ms - STATED_MS:
            self._wrong("too-early", f"transaction {number} ended after {passed_ms} of {timeout_ms} ms")


def _set_right(state: State, before_ms: int) -> bool:
    """Whether the log's clock was wrong, as more than half of several agents are far from it, and is no later
    now than most of them say.
    """
    stamps = sorted(one.last_proposed_ms for one in state.live.values())
    if 2 * sum(abs(stamp - before_ms) > APART_MS for stamp in stamps) <= len(stamps) or len(stamps) < 2:
        return False
    return state.clock_ms <= stamps[(len(stamps) - 1) // 2] + SKEW_MS


def _positions(state: State, group: Group | None) -> set[int]:
    """Handles of partitions that exist and that the group has a position for."""
    handles = () if group is None else group.offsets.handles
    return {handle for handle in handles if state.partitions[handle] is not None}
