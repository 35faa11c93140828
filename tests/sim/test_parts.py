"""Parts of the simulation that decide something by themselves: plans, shrinking, copies, the witness."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from types import SimpleNamespace

import pytest

from coordination.commands import ENTRY_FORMAT, Entry
from coordination.log import LogEntry
from coordination.state.state import State
from tests.checker.findings import Finding, Judgement
from tests.sim.coverage import RULES, Coverage
from tests.sim.plan import Plan, plan_of
from tests.sim.relay import relayed
from tests.sim.shrink import anomalies, candidates, shrunk
from tests.sim.timeline import page
from tests.sim.witness import Witness
from tests.sim.world import Outcome


def test_a_plan_survives_being_kept() -> None:
    for seed in range(50):
        assert Plan.load(plan_of(seed).dump()) == plan_of(seed)


def _fails(plan: Plan) -> Outcome:
    """A run that goes wrong when a second kill meets a transaction of v1."""
    kills = [each for each in plan.faults if each[2] == "kill"]
    wrong = len(kills) >= 2 and "v1" in plan.transactors
    findings = [Finding("duplicate", "", "", ())] if wrong else []
    return Outcome(plan, Judgement(findings), [], "", 1.0)


def test_a_failing_run_is_made_small() -> None:
    faults = tuple((float(n), 2.0, "kill" if n in (3, 9) else "pause", (0,)) for n in range(2, 19))
    plan = replace(plan_of(1), faults=faults, transactors=("v2", "v1", "v2"), relay="v1", writers=2)
    small = shrunk(_fails(plan), lambda text: None, _fails)
    assert anomalies(small) == {"duplicate"}
    assert [each[2] for each in small.plan.faults] == ["kill", "kill"]
    assert (small.plan.transactors, small.plan.writers, small.plan.relay) == (("v1",), 0, "")
    assert not any(anomalies(_fails(each)) for each in candidates(replace(small.plan, faults=())))


@pytest.mark.parametrize(
    ("read", "position", "copies", "anomaly"),
    [
        ([0, 1, 4], 5, ["0.0", "0.1", "0.4"], None),
        ([0, 1, 4], 2, ["0.0", "0.1"], None),
        ([0, 1, 4], 5, ["0.0", "0.4"], "copy-lost"),
        ([0, 1, 4], 2, ["0.0", "0.1", "0.4"], "copy-without-position"),
        ([0, 1, 4], 5, ["0.0", "0.1", "0.1", "0.4"], "copied-twice"),
    ],
)
def test_copies_are_what_lies_below_the_position(
    read: list[int], position: int, copies: list[str], anomaly: str | None
) -> None:
    found = {each.anomaly for each in relayed({0: read}, {0: position}, copies)}
    assert found == ({anomaly} if anomaly else set())


def test_a_transaction_that_ends_twice_is_seen() -> None:
    witness, known = Witness(), SimpleNamespace(transactional_id="x", number=1)
    witness.ended(known, True, 5)
    witness.ended(known, True, 5)  # another agent applies the same entry
    assert not witness.findings
    witness.ended(known, False, 6)
    assert [each.anomaly for each in witness.findings] == ["ended-twice"]


def test_an_entry_that_is_applied_in_two_ways_is_seen() -> None:
    witness, states = Witness(), (State(), State())
    states[1].digest = bytes(32)
    with witness.watches():
        for state in states:
            state.apply(LogEntry(1, 7, 1, _entry()))
    assert [each.anomaly for each in witness.findings] == ["state-differs"]


def _entry() -> bytes:
    return Entry(format=ENTRY_FORMAT, incarnation=7, sequence=1).SerializeToString()


def test_rules_that_nothing_tested_are_named() -> None:
    coverage = Coverage()
    assert coverage.untested() == list(RULES)
    needs = RULES["5 read barrier"]
    coverage.note(replace(_fails(plan_of(1)), coverage=Counter(needs)))
    assert "5 read barrier" not in coverage.untested()
    assert "rules never put to the test: 1 ack means durable" in coverage.report()


def test_the_timeline_stands_alone() -> None:
    trace = ["0.1 start a0/1", "2.0 begin kill ['a0']", "2.5 crash a0/1"]
    plan = replace(plan_of(1), faults=((2.0, 1.0, "kill", (0,)),))
    shown = page(Outcome(plan, Judgement([Finding("duplicate", "<k>", "", ())]), trace, "", 3.0))
    assert "crash a0/1" in shown
    assert "&lt;k&gt;" in shown
    assert "://" not in shown
    assert "src=" not in shown
