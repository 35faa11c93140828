"""Random joins, leaves, silence, commits and coordinators that overlap: what must hold, holds."""

from __future__ import annotations

import pytest

from agent.kafka.groups.classic import ClassicGroup
from coordination.kafka_codes import Code
from coordination.state import group_offsets
from coordination.state import groups as rules
from tests.unit.agent.kafka.groups.world import World

SEEDS, STEPS = 40, 1500


@pytest.mark.parametrize("seed", range(SEEDS))
def test_whatever_happens_the_rules_hold(seed: int) -> None:
    """No partition has two owners in one generation; generations and acknowledged positions never go back.

    Whoever asked is answered, once, however the group ends.
    """
    world = World(seed)
    for _ in range(STEPS):
        world.step()
    for agent in world.agents:
        world.drop(agent, Code.NOT_COORDINATOR)
    assert world.highest > 1
    assert world.shared
    assert world.commits


def test_a_seed_tells_the_same_story_twice() -> None:
    worlds = [World(7), World(7)]
    for world in worlds:
        for _ in range(STEPS):
            world.step()
    assert worlds[0].script.state.hash == worlds[1].script.state.hash


def broken_worlds() -> int:
    """In how many worlds a rule was seen broken."""
    broken = 0
    for seed in range(SEEDS):
        world = World(seed)
        try:
            for _ in range(STEPS):
                world.step()
        except AssertionError:
            broken += 1
    return broken


def test_coordinators_that_decide_generations_themselves_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: two that count by themselves, in a log that does not look, share a generation."""
    begins = ClassicGroup._generation_begins
    monkeypatch.setattr(rules, "changed_refusal", lambda state, group_id, expected: None)
    monkeypatch.setattr(
        ClassicGroup, "_generation_begins", lambda self, now, _: begins(self, now, self.generation + 1)
    )
    assert broken_worlds()


def test_commits_that_nobody_checks_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: members of old generations take positions back."""
    monkeypatch.setattr(group_offsets, "classic_refusal", lambda *_: None)
    assert broken_worlds()


def test_commits_that_an_agent_held_back_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: a coordinator of before overwrites what the next one has acknowledged since."""
    monkeypatch.setattr(group_offsets, "_overtaken", lambda *_: False)
    assert broken_worlds()


def test_in_the_end_everybody_has_a_share() -> None:
    """Once nothing disturbs them any more, the members share all partitions in one generation."""
    for seed in range(10):
        world = World(seed, agents=1)
        for _ in range(300):
            world.step()
        world.log_back()
        for actor in world.actors:  # answers that were lost are given up
            world.give_up(actor)
        for _ in range(3000):
            world.now += 0.05
            agent = world.agents[0]
            if agent.outgoing:
                world.deliver(agent)
            for actor in world.actors:
                if actor.to_sync is not None:
                    world.send_sync(actor)
                elif not actor.waiting and actor.generation < 0:
                    world.join(actor)
                elif not actor.waiting:
                    world.heartbeat(actor)
            world.running(agent).tick(world.now)
            world.follow_up(agent)
        assert len({actor.generation for actor in world.actors}) == 1, seed
        owned = [partition for actor in world.actors for partition in actor.owned]
        assert sorted(owned) == list(range(5)), seed
        assert world.script.state.groups["g"].classic is not None
