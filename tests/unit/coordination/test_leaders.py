"""The leader epoch: it grows with every change of what leaders are chosen from, and with nothing else."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from agent.cluster.hints import LeaderHints
from coordination.commands import (
    Claim,
    EnterMetadata,
    FenceIncarnation,
    Heartbeat,
    JudgeAgent,
    LeaveMetadata,
    RegisterAgent,
)
from coordination.snapshot import decode, encode
from coordination.state import bounds
from coordination.state.data import FEATURE_LEVEL_MAX, FEATURE_LEVEL_MIN
from coordination.state.restored import LEADER_EPOCHS_PASSED, settle
from tests.unit.coordination.kit import A, B, Script


def grown(script: Script, step: Callable[[], object]) -> int:
    """By how much the epoch grows in a step."""
    before = script.state.leader_epoch
    step()
    return script.state.leader_epoch - before


def joining(name: str, zone: str = "") -> RegisterAgent:
    return RegisterAgent(
        name=name, node_id=-1, feature_min=1, feature_max=FEATURE_LEVEL_MAX, joining=True, zone=zone
    )


def test_it_grows_with_every_agent_that_comes_or_goes(script: Script) -> None:
    assert grown(script, lambda: script.one(13, joining("new"))) == 0, "nobody is sent to it yet"
    assert grown(script, lambda: script.one(13, EnterMetadata())) == 1
    assert grown(script, lambda: script.one(13, EnterMetadata())) == 0, "it was there already"
    assert grown(script, lambda: script.one(B, LeaveMetadata())) == 1
    assert grown(script, lambda: script.one(A, FenceIncarnation(incarnation=B))) == 0, "it had left"
    assert grown(script, lambda: script.one(A, FenceIncarnation(incarnation=13))) == 1


def test_one_that_comes_back_at_once_counts(script: Script) -> None:
    back = RegisterAgent(name="agent-12", node_id=-1, feature_min=1, feature_max=FEATURE_LEVEL_MAX)
    assert grown(script, lambda: script.one(13, back)) == 2, "it went and it came"


def test_it_grows_with_who_is_well(script: Script) -> None:
    ill, well = JudgeAgent(incarnation=A, unwell="store: gone"), JudgeAgent(incarnation=A)
    assert grown(script, lambda: script.one(A, ill)) == 1
    assert grown(script, lambda: script.one(A, ill)) == 0
    assert grown(script, lambda: script.one(B, JudgeAgent(incarnation=B, unwell="store: gone"))) == 1
    assert grown(script, lambda: script.one(A, well)) == 1


def test_it_grows_with_nothing_else(script: Script) -> None:
    assert grown(script, lambda: script.apply(A, Heartbeat(), Claim(name="snapshot"))) == 0


def test_it_is_in_snapshots_and_has_a_bound(script: Script) -> None:
    assert script.state.leader_epoch > 0
    assert decode(encode(script.state)).leader_epoch == script.state.leader_epoch
    script.state.leader_epoch = bounds.LEADER_EPOCH.high
    assert grown(script, lambda: script.one(B, LeaveMetadata())) == 0
    encode(script.state)


def test_below_its_level_it_does_not_grow() -> None:
    script = Script()
    script.register(A, level=FEATURE_LEVEL_MIN)
    script.register(B, level=FEATURE_LEVEL_MIN)
    script.one(B, LeaveMetadata())
    assert script.state.leader_epoch == 0


def test_a_restored_log_is_ahead_of_what_the_lost_one_may_have_told(script: Script) -> None:
    script.one(A, FenceIncarnation(incarnation=B))
    script.one(A, FenceIncarnation(incarnation=A))
    assert grown(script, lambda: settle(script.state, -1)) == LEADER_EPOCHS_PASSED


STEPS = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 4)), max_size=40)


@given(STEPS)
def test_one_epoch_has_one_leader(steps: list[tuple[int, int]]) -> None:
    """Whatever comes and goes: who hears of the later epoch has heard of the later leaders, in every zone."""
    script = Script()
    script.register(A)
    script.register(B)
    hints, told, runs = LeaderHints(lambda: script.state.brokers), dict[int, object](), dict[int, int]()
    for kind, who in steps:
        run = runs.get(who, 100 + who)
        match kind:
            case 0:
                runs[who] = run = run + 10
                script.one(run, joining(f"agent-{who}", zone="ab"[who % 2]))
            case 1:
                script.one(run, EnterMetadata())
            case 2:
                script.one(run, LeaveMetadata())
            case 3:
                script.one(A, FenceIncarnation(incarnation=run))
            case _:
                script.one(run, JudgeAgent(incarnation=run, unwell="ill" * (kind - 4)))
        leaders = [[hints.replicas(handle, zone) for handle in range(16)] for zone in ("", "a", "b")]
        assert told.setdefault(script.state.leader_epoch, leaders) == leaders
        assert script.state.leader_epoch == max(told)
