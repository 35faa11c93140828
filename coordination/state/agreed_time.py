"""The log's clock: what time it is for everything that expires, decided from the stamps of all live agents.

Every entry carries its author's wall clock. No single one is believed (rule 15): the log's clock follows an
entry only as far as more than half of the agents that count have said that it is that late, give or take
SKEW_MS. It never goes back.

| live agents | which of them count | the log's clock |
|---|---|---|
| two or more, at least half within APART_MS of the log's clock | those | at most SKEW_MS beyond what most of them said |
| two or more, more than half further away (after an outage of all) | all | the same, once most have said so ROUNDS times, each after the others |
| one | it | its own; a step of over STEP_MS only once it has stood for TRUST_MS |

A command carries what its author believes, and apply compares; whoever is apart learns it by looking at the
same figures (coordination/replica/clock_watch.py).
"""  # noqa: E501 - a table

from __future__ import annotations

from coordination.state.data import StateData
from coordination.state.types import Incarnation

SKEW_MS = 15_000
"""How far the log's clock may be ahead of what most agents have said: an idle one speaks every few seconds, a
dead one counts until its lease has ended."""
APART_MS = 60_000
"""An agent whose stamp is further away from the log's clock does not count, and is told so."""
STEP_MS = 300_000
"""What the log's clock takes at once from the only agent there is."""
TRUST_MS = 12 * 3_600_000
"""For so long, by its own clock, a larger step of the only agent has to stand before it is believed: what an
outage of all agents looks like, and a clock that jumped."""
ROUNDS = 30
"""So often most of several agents must have said what is far from the log's clock, each after the others:
half a minute of their heartbeats."""


def hear(state: StateData, author: Incarnation, before_ms: int) -> None:
    """Let the log's clock follow an entry of a live author, which has noted the stamp already.

    `before_ms`: the stamp of the author's entry before.
    """
    stamp = author.last_proposed_ms
    if len(state.live) == 1:
        _no_doubt(state)
        _hear_the_only_one(state, stamp, before_ms)
        return
    state.clock_doubt_ms = 0
    if stamp <= state.clock_ms:
        if state.clock_doubt_revision and witnesses(state)[1]:
            _no_doubt(state)
        return
    if not _most_have_said(state, stamp):
        counting, near = witnesses(state)
        stamp = min(stamp, _most_say(counting) + SKEW_MS)
        if not near and not _most_stand_by_it(state, author, stamp):
            return
        if all(one is not author for one in counting):
            stamp = state.clock_ms
    _no_doubt(state)
    state.clock_ms = max(state.clock_ms, stamp)


def _hear_the_only_one(state: StateData, stamp: int, before_ms: int) -> None:
    ahead = stamp - state.clock_ms
    if ahead > STEP_MS:
        passed = min(max(stamp - before_ms, 0), STEP_MS)
        state.clock_doubt_ms += passed
        if state.clock_doubt_ms < TRUST_MS:
            state.clock_ms += passed
            return
    state.clock_doubt_ms = 0
    state.clock_ms = max(state.clock_ms, stamp)


def _most_have_said(state: StateData, stamp: int) -> bool:
    """Whether more than half of all live agents say that it is `stamp`, within SKEW_MS: the usual case."""
    least, most, needed = stamp - SKEW_MS, state.clock_ms + APART_MS, len(state.live) // 2 + 1
    if stamp > most:
        return False
    for one in state.live.values():
        if least <= one.last_proposed_ms <= most:
            needed -= 1
            if not needed:
                return True
    return False


def _most_stand_by_it(state: StateData, author: Incarnation, stamp: int) -> bool:
    """Whether more than half of all live agents have said that it is `stamp` in so many rounds.

    What one of them said last may come of a clock that was set right since, while another's goes wrong: two
    that are wrong by turns must not be witnesses for each other. In a round each of most has spoken anew.
    """
    begun = state.clock_doubt_revision = state.clock_doubt_revision or author.last_revision
    least = stamp - SKEW_MS
    anew = sum(one.last_revision >= begun and one.last_proposed_ms >= least for one in state.live.values())
    if 2 * anew > len(state.live):
        state.clock_doubt_rounds += 1
        state.clock_doubt_revision = author.last_revision + 1
    return state.clock_doubt_rounds >= ROUNDS


def _no_doubt(state: StateData) -> None:
    state.clock_doubt_revision = state.clock_doubt_rounds = 0


def _most_say(counting: list[Incarnation]) -> int:
    """The time that more than half of them have reached by their last stamps, Unix ms."""
    return sorted((one.last_proposed_ms for one in counting), reverse=True)[len(counting) // 2]


def agreed_ms(state: StateData) -> int:
    """The latest time by which something may be deleted for its age, Unix ms.

    The log's clock, or less where most agents say that it is earlier: the log's clock does not go back.
    """
    if not state.live:
        return state.clock_ms
    counting, _ = witnesses(state)
    return min(state.clock_ms, _most_say(counting) + SKEW_MS)


def apart_ms(state: StateData, incarnation: int) -> int:
    """By how much this agent's last stamp is away from what counts; below 0: it is behind. 0 when alone."""
    one = state.live.get(incarnation)
    if one is None or len(state.live) == 1:
        return 0
    counting, near = witnesses(state)
    return one.last_proposed_ms - (state.clock_ms if near else _most_say(counting))


def witnesses(state: StateData) -> tuple[list[Incarnation], bool]:
    """The live agents that count, and whether they are those that are near the log's clock."""
    live = list(state.live.values())
    near = [one for one in live if abs(one.last_proposed_ms - state.clock_ms) <= APART_MS]
    return (near, True) if 2 * len(near) >= len(live) else (live, False)


def enter(state: StateData) -> None:
    """What the level below had was the highest stamp of any entry: begin with what most agents say now.

    It says nothing of who is right, so all of them count: one of two that is far ahead made it itself.
    """
    said_ms = [_most_say(list(state.live.values())) + SKEW_MS] if state.live else []
    state.clock_ms = max(min([state.clock_ms, *said_ms]), 0)
