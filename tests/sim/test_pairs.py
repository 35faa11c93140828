"""Two faults at once: what is drawn, what a plan becomes by it, and what counts as on together."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from coordination.state.data import FEATURE_LEVEL_MAX
from tests.sim import child
from tests.sim.faults import fault_of
from tests.sim.many import Sum
from tests.sim.node import AgentNode
from tests.sim.pairs import rounds
from tests.sim.pairs.drawing import TRIES_AS_ONE, Table, drawn, with_pair
from tests.sim.pairs.kinds import (
    BY_NAME,
    EVERY_FAULT,
    EXCLUDED,
    KINDS,
    NO_KINDS,
    POSSIBLE,
    WINDOW_S,
    kinds_of,
    pair_of,
)
from tests.sim.pairs.overlaps import Overlaps
from tests.sim.plan import Plan, plan_of
from tests.sim.world import World

SEEDS, FIRST = 4, 1
SECONDS_MAX = 3600  # of a machine that does other things
SEED = 3
"""Of which nothing is expected."""


def test_every_fault_is_a_kind() -> None:
    """Whoever writes a new one names it in pairs/kinds.py: by what one sees it, what it needs."""
    planned = {each.name for each in KINDS if each.planned}
    assert set(EVERY_FAULT) - NO_KINDS == planned
    assert len(BY_NAME) == len(KINDS)
    assert len(POSSIBLE) + len(EXCLUDED) == len(KINDS) * (len(KINDS) - 1) // 2
    assert all(EXCLUDED.values()), "a pair that cannot be has its reason"


def test_pairs_that_nobody_saw_come_first() -> None:
    table = Table(possible=POSSIBLE[:40])
    missing = set(POSSIBLE[5:8])
    table.note({f"pair {pair}": 3 for pair in table.possible if pair not in missing})
    assert {table.draw(seed) for seed in range(len(missing))} == missing
    table.note({f"pair {pair}": 9 for pair in missing} | {"fault kill": 50})
    assert table.draw(99) not in missing, "then those that were seen less often"


def test_a_pair_that_never_comes_does_not_keep_others_out() -> None:
    table = Table(possible=POSSIBLE[:3])
    table.note({f"pair {pair}": 1 for pair in POSSIBLE[1:3]})
    for _ in range(TRIES_AS_ONE):
        assert table.draw(SEED) == POSSIBLE[0]
    assert table.draw(SEED) != POSSIBLE[0]
    assert table.never() == [POSSIBLE[0]], "and it is told that it was never seen"


def test_a_seed_draws_the_same_from_the_same_table() -> None:
    plans = [plan_of(seed) for seed in range(30)]
    once, again = (list(drawn(plans, Table())) for _ in range(2))
    assert once == again
    assert len({plan.pair for plan in once}) == len(once), "none twice while others were never drawn"


def test_rounds_learn_from_what_was_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next round draws what no run has come to, the same whoever ran the one before."""
    possible = tuple(POSSIBLE[:8])

    def gathered(plans: Sequence[Plan], jobs: int, *rest: Any, **more: Any) -> Sum:
        part = Sum()
        for plan in plans if jobs == 1 else reversed(plans):
            part.coverage.counts[f"pair {plan.pair}"] += 1
            part.coverage.counts[f"pair {possible[0]}"] += 1  # which is on all the time
        return part

    monkeypatch.setattr(rounds, "gathered", gathered)
    monkeypatch.setattr(rounds, "ROUND_SEEDS", 2)
    told: list[list[str]] = []
    for jobs in (1, 2):
        table, lines = Table(possible=possible), list[str]()
        plans = (plan_of(seed) for seed in range(8))
        rounds.run(plans, jobs, lambda outcome, name: None, lines.append, table)
        assert not table.never()
        assert table.drawn[possible[0]] <= 1
        assert len(lines) == 4
        told.append(lines)
    assert told[0] == told[1]


@pytest.mark.parametrize("seed", [SEED, 7, 12])
def test_both_faults_of_a_pair_are_in_the_plan_and_overlap(seed: int) -> None:
    plan = plan_of(seed)
    for pair in POSSIBLE:
        paired = with_pair(plan, pair)
        assert paired == with_pair(plan, pair) == Plan.load(paired.dump())
        assert paired.pair == pair
        one, other = kinds_of(pair)
        if not (one.planned and other.planned):
            assert paired.restored
            continue
        added = [each for each in paired.faults if each not in plan.faults]
        assert sorted(each[2] for each in added) == sorted(pair.split("+"))
        (at, for_s, name, some), (later, _, _, others) = sorted(added)
        lasts_s = WINDOW_S if BY_NAME[name].at_once else for_s
        assert at < later < at + lasts_s <= plan.seconds, pair
        assert some
        assert others
        assert {*some, *others} <= set(range(plan.agents))
        if one.knob and one.knob == other.knob:
            assert not {*some} & {*others}, "one would undo the other"


def test_a_plan_keeps_its_own_faults() -> None:
    """But for those that cannot be beside the pair."""
    for seed in range(40):
        plan = plan_of(seed)
        assert set(plan.faults) < set(with_pair(plan, "bad-store+kill").faults)
    upgraded = next(plan for seed in range(99) if (plan := plan_of(seed)).level < FEATURE_LEVEL_MAX)
    clock = with_pair(upgraded, "clock-jumps+kill")
    assert clock.level == FEATURE_LEVEL_MAX
    assert "upgrade" not in {each[2] for each in clock.faults}


@pytest.mark.parametrize(
    ("pair", "why"),
    [
        ("clock-drifts+clock-jumps", "one clock is off at a time"),
        ("kill", "name two kinds as one\\+other"),
        ("kill+flood", "of these: kill, power-off"),
        ("kill+kill", "name two kinds"),
    ],
)
def test_what_cannot_be_is_refused(pair: str, why: str) -> None:
    with pytest.raises(KeyError, match=why):
        with_pair(plan_of(SEED), pair)


@pytest.fixture
def world() -> Any:
    """Whose three agents live, and do nothing."""
    found = World(next(plan for seed in range(99) if (plan := plan_of(seed)).agents == 3))
    for agent in found.agents:
        agent.begin()
    yield found
    found.loop.close()


def _begin(overlaps: Overlaps, world: World, number: int, kind: str, agents: Sequence[AgentNode]) -> None:
    fault = fault_of(kind)
    overlaps.begins(number, fault.name, agents, partial(fault.begin, world, agents))


def test_what_is_on_together_is_seen(world: World) -> None:
    overlaps, (one, other, _) = Overlaps(world), world.agents
    _begin(overlaps, world, 0, "kill", [one])
    assert not overlaps.pairs
    _begin(overlaps, world, 1, "reset", [other])
    assert overlaps.pairs == {"kill+reset"}
    world.loop._now += WINDOW_S + 0.1
    _begin(overlaps, world, 2, "compact", [other])
    assert overlaps.pairs == {"kill+reset", "compact+kill"}, "the reset was over"
    overlaps.ends(0, lambda: None)
    _begin(overlaps, world, 3, "cancel-watches", [other])
    assert overlaps.pairs == {"kill+reset", "compact+kill", "cancel-watches+compact"}
    overlaps.counted()
    assert world.seen.counts["pair compact+kill"] == 1


def test_what_strikes_nobody_is_not_on(world: World) -> None:
    """A log cannot be cut from an agent that is down, nor its connections be reset."""
    overlaps, (one, other, _) = Overlaps(world), world.agents
    _begin(overlaps, world, 0, "kill", [one])
    _begin(overlaps, world, 1, "reset", [one])
    _begin(overlaps, world, 2, "cut-log", [one])
    assert not overlaps.pairs
    _begin(overlaps, world, 3, "pause", [other])
    assert overlaps.pairs == {"kill+pause"}
    overlaps.ends(3, partial(fault_of("pause").end, world, [other]))
    _begin(overlaps, world, 4, "compact", [other])
    assert pair_of("compact", "pause") not in overlaps.pairs


def test_a_death_at_a_step_is_on_when_it_happens(world: World) -> None:
    overlaps, (one, other, _) = Overlaps(world), world.agents
    _begin(overlaps, world, 0, "kill-at-step flush/submit", [one])
    _begin(overlaps, world, 1, "pause", [other])
    assert not overlaps.pairs
    _, happens = world.seen.armed.pop(one.name)
    happens()
    assert not one.alive
    assert overlaps.pairs == {"kill-at-step+pause"}


@pytest.mark.timeout(SECONDS_MAX)
def test_seeds_with_pairs_are_clean(tmp_path: Path) -> None:
    """And each is the same run again by its seed and its pair."""
    many, one = tmp_path / "many", tmp_path / "one"
    sim = partial(child.run, "tests.sim", seconds_max=SECONDS_MAX)
    done = sim(
        "--pairs", "--keep", "--seeds", str(SEEDS), "--first", str(FIRST), "--jobs", "2", "--out", str(many)
    )
    assert done.returncode == 0, done.stdout + done.stderr
    told = json.loads((many / "pairs.json").read_text())
    assert len(told["drawn"]) == SEEDS
    assert len(told["seen"]) > SEEDS, "a seed's other faults make pairs, too"
    assert (many / "pairs.md").read_text().startswith(f"pairs of faults: {len(POSSIBLE)} possible")
    plan = Plan.load(next(many.glob(f"{FIRST}-*.json")).read_text())
    done = sim("--seed", str(FIRST), "--pair", plan.pair, "--out", str(one))
    assert done.returncode == 0, done.stdout + done.stderr
    traces = [(each / f"{plan.name}.trace").read_text() for each in (many, one)]
    assert traces[0] == traces[1]
