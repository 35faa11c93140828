"""Whom an agent calls silent, over a real state and a clock by hand: only while it hears the log itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import cast

import pytest

from agent.health.others import HEARTBEATS_MISSED, RANK_S, Others
from coordination.commands import Heartbeat, JudgeAgent
from coordination.replica import Replica
from coordination.state import Applied, Done, State
from tests.unit.coordination.kit import A, B, Script

C = 13
HEARTBEAT_S, LOOK_S = 1.0, 0.25
SILENCE_S = HEARTBEATS_MISSED * HEARTBEAT_S


@dataclass
class Follower:
    """What is asked of a replica: who it is, the state, and to hear of entries."""

    state: State
    incarnation: int
    node_id: int
    listeners: list[Callable[[Applied], None]] = field(default_factory=list)

    def add_listener(self, listener: Callable[[Applied], None]) -> None:
        self.listeners.append(listener)


class Listening:
    """Agent `own` listens; each agent of `speaking` writes something every HEARTBEAT_S."""

    def __init__(self, own: int = A) -> None:
        self.script = Script()
        for author in (A, B, C):
            self.script.register(author)
        self.now_s = 100.0
        node_id = self.script.state.incarnations[own].node_id
        self.follower = Follower(self.script.state, own, node_id)
        replica = cast(Replica, self.follower)
        self.others = Others(replica, lambda: self.now_s, SILENCE_S, HEARTBEAT_S)

    def goes_on(self, seconds: float, *speaking: int) -> list[JudgeAgent]:
        """What it says in the first look in which it says something; nothing within the time."""
        until_s = self.now_s + seconds
        while self.now_s < until_s:
            self.now_s += LOOK_S
            if self.now_s % HEARTBEAT_S == 0:
                for author in speaking:
                    applied = self.script.apply(author, Heartbeat())
                    for tell in self.follower.listeners:
                        tell(applied)
            found = self.others.silent()
            if found:
                return found
        return []


@pytest.mark.parametrize(("own", "rank"), [(A, 0), (C, 1)])
def test_who_is_silent_is_called_so_by_one_after_another(own: int, rank: int) -> None:
    listening = Listening(own)
    assert not listening.goes_on(10.0, A, B, C)
    began_s = listening.now_s
    (said,) = listening.goes_on(10.0, A, C)
    waited_s = listening.now_s - began_s
    assert said.incarnation == B
    assert SILENCE_S + RANK_S * rank <= waited_s <= SILENCE_S + RANK_S * rank + LOOK_S
    assert listening.script.one(own, said) == Done()
    assert not listening.goes_on(10.0, A, C), "said once"


def test_who_does_not_hear_itself_accuses_nobody() -> None:
    """The log stood still, or this agent's link to it: what others wrote meanwhile comes late."""
    listening = Listening()
    assert not listening.goes_on(10.0, A, B, C)
    assert not listening.goes_on(60.0)
    assert not listening.goes_on(SILENCE_S - 2 * LOOK_S, A), "now they have time to be heard"
    assert not listening.goes_on(10.0, A, B, C)


def test_who_stood_still_itself_accuses_nobody() -> None:
    listening = Listening()
    assert not listening.goes_on(10.0, A, B, C)
    listening.now_s += 60.0
    for tell in listening.follower.listeners:  # its own entry is the first that it hears of
        tell(listening.script.apply(A, Heartbeat()))
    assert not listening.goes_on(SILENCE_S - 2 * LOOK_S, A)
    assert not listening.goes_on(10.0, A, B, C)
