"""Whose deletion ends what a client takes for one life of its topic (mortal.py)."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest

from coordination.commands import CreateTopic, DeleteTopic, UndeleteTopic, command
from coordination.state.state import State
from coordination.state.types import Done
from tests.sim.mortal import MORTAL, Arrivals, Mortal

FIRST, OTHER = b"1" * 16, b"2" * 16


def _applied(arrivals: Arrivals, *messages: Any) -> None:
    """An entry of these commands, all of which succeed."""
    kinds = ["_".join(re.findall("[A-Z][a-z]+", type(each).__name__)).lower() for each in messages]
    arrivals.applied(State(), kinds, [command(each) for each in messages], [Done(None)] * len(messages))


def _life() -> Arrivals:
    arrivals = Arrivals()
    arrivals.begin()
    _applied(arrivals, CreateTopic(name=MORTAL, topic_id=FIRST, partitions=1))
    return arrivals


def test_a_life_goes_on_when_its_topic_comes_back() -> None:
    arrivals = _life()
    arrivals.back = FIRST
    _applied(arrivals, DeleteTopic(name=MORTAL))
    assert arrivals.over
    _applied(arrivals, UndeleteTopic(topic_id=FIRST))
    assert not arrivals.over


def test_a_deletion_that_comes_behind_the_return_ends_the_life() -> None:
    """Also where the client has not heard of the return yet."""
    arrivals = _life()
    arrivals.back = FIRST
    _applied(arrivals, DeleteTopic(name=MORTAL))
    _applied(arrivals, UndeleteTopic(topic_id=FIRST), DeleteTopic(name=MORTAL))
    assert arrivals.over


async def test_whoever_brings_back_another_life_does_not_await_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The same story by the client itself: what it brings back is the topic that Metadata has made."""
    arrivals = _life()
    _applied(arrivals, DeleteTopic(name=MORTAL))
    _applied(arrivals, CreateTopic(name=MORTAL, topic_id=OTHER, partitions=1))

    async def deleted(names: list[str]) -> Any:
        _applied(arrivals, DeleteTopic(name=MORTAL))
        return SimpleNamespace(topic_error_codes=[(MORTAL, 0)])

    async def propose(message: Any) -> Done:
        _applied(arrivals, message)
        return Done(None)

    monkeypatch.setattr("tests.sim.mortal.AWAY_S_MAX", 0.0)
    around = SimpleNamespace(propose=propose, counts=Counter(), stopping=asyncio.Event())
    mortal = Mortal(around, arrivals)  # type: ignore[arg-type]  # all that it uses
    assert await mortal._came_back(SimpleNamespace(delete_topics=deleted))
    assert around.counts == {"topics of another life brought back": 1}
    assert arrivals.over


@pytest.mark.parametrize("back", [b"", FIRST], ids=["nothing awaited", "another awaited"])
def test_a_life_that_was_over_is_not_begun_again_by_what_comes_back(back: bytes) -> None:
    """Seed 23 with scrubbing: a deletion of long ago, another topic by Metadata, and that came back."""
    arrivals = _life()
    _applied(arrivals, DeleteTopic(name=MORTAL))
    _applied(arrivals, CreateTopic(name=MORTAL, topic_id=OTHER, partitions=1))
    arrivals.back = back
    _applied(arrivals, DeleteTopic(name=MORTAL))
    _applied(arrivals, UndeleteTopic(topic_id=OTHER))
    assert arrivals.over
    around = SimpleNamespace(findings=[])
    mortal = Mortal(around, arrivals)  # type: ignore[arg-type]  # findings are all that is told
    mortal._start = 3
    mortal._judge([3], [])
    assert not around.findings
