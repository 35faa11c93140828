"""Apply: agents that register, enter and leave Metadata, are judged, and are fenced."""

from __future__ import annotations

from coordination.commands import (
    Claim,
    EnterMetadata,
    FenceIncarnation,
    Heartbeat,
    JudgeAgent,
    LeaveMetadata,
    RegisterAgent,
)
from coordination.kafka_codes import Code
from coordination.state import (
    Broker,
    Done,
    Endpoint,
    Refused,
    Result,
)
from coordination.state.data import FEATURE_LEVEL_MAX as LEVEL_MAX
from coordination.state.members import PACE_US_MAX, runs_jobs
from coordination.state.types import Pace, serving_of
from tests.unit.coordination.kit import A, B, Script, chunk


def refused(result: Result, code: Code) -> bool:
    return isinstance(result, Refused) and result.code is code


def test_node_ids_stay_with_names(script: Script) -> None:
    assert [script.state.brokers[n].name for n in (1, 2)] == ["agent-11", "agent-12"]
    script.one(B, FenceIncarnation(incarnation=A))
    assert list(script.state.brokers) == [2]
    assert script.register(13, "new") == Done(3)
    assert script.register(14, "agent-11") == Done(1)
    assert refused(script.register(14), Code.DUPLICATE_BROKER_REGISTRATION), "once per incarnation"
    wanted = RegisterAgent(name="other", node_id=1, feature_min=1, feature_max=LEVEL_MAX)
    assert refused(script.one(15, wanted), Code.DUPLICATE_BROKER_REGISTRATION), "held by a live agent"
    wanted.node_id = 40
    assert script.one(16, wanted) == Done(40)
    assert script.register(17, "after") == Done(41)


def test_a_dead_agents_node_id_goes_to_the_one_that_asks_for_it_for_good(script: Script) -> None:
    script.one(B, FenceIncarnation(incarnation=A))
    wanted = RegisterAgent(name="other", node_id=1, feature_min=1, feature_max=LEVEL_MAX)
    assert script.one(13, wanted) == Done(1)
    assert script.register(14, "agent-11") == Done(3), "its name has none any more"
    script.one(B, FenceIncarnation(incarnation=13))
    assert script.register(15, "other") == Done(1)


def test_brokers_show_what_they_registered(script: Script) -> None:
    listeners = [{"name": "PLAIN", "host": "h", "port": 9092}]
    agent = RegisterAgent(
        name="x",
        node_id=-1,
        listeners=listeners,
        zone="z",
        http_address="h:1",
        version="v",
        feature_max=LEVEL_MAX,
    )
    script.one(13, agent)
    assert script.state.brokers[3] == Broker(3, "x", 13, (Endpoint("PLAIN", "h", 9092),), "z", "h:1", "v")


def test_nothing_counts_from_fenced_and_unregistered_authors(script: Script) -> None:
    script.topic(A, "t")
    script.one(B, FenceIncarnation(incarnation=A))
    before = script.state.topics["t"].partitions[0].high_watermark
    assert refused(script.one(A, chunk(1, (0, 5))), Code.STALE_BROKER_EPOCH)
    assert refused(script.one(99, chunk(1, (0, 5))), Code.BROKER_ID_NOT_REGISTERED)
    assert script.state.topics["t"].partitions[0].high_watermark == before
    assert refused(script.register(A), Code.DUPLICATE_BROKER_REGISTRATION), "a number is never live again"
    assert script.state.incarnations[A].sequence == 4, "and its last entry is remembered"


def test_a_new_run_takes_its_name_over(script: Script) -> None:
    script.one(A, Claim(name="job"))
    applied = script.apply(
        13, RegisterAgent(name="agent-11", node_id=-1, feature_min=1, feature_max=LEVEL_MAX)
    )
    assert applied.results == (Done(1),)
    assert applied.fenced == [A]
    assert script.state.brokers[1].incarnation == 13
    assert not script.state.claims
    assert not script.state.is_live(A)


def test_registering_and_more_in_one_entry(script: Script) -> None:
    agent = RegisterAgent(name="x", node_id=-1, feature_min=1, feature_max=LEVEL_MAX)
    applied = script.apply(13, Claim(name="early"), agent, Claim(name="late"))
    assert refused(applied.results[0], Code.BROKER_ID_NOT_REGISTERED)
    assert list(script.state.claims) == ["late"]


def test_an_agent_that_leaves_metadata_still_writes(script: Script) -> None:
    script.topic(A, "t")
    script.one(A, Claim(name="job"))
    script.one(A, LeaveMetadata())
    assert list(script.state.brokers) == [2]
    assert not script.state.claims
    script.through_snapshot()
    assert list(script.state.brokers) == [2]
    assert script.commit(A, (0, 1)).errors == [0]


def test_a_joining_agent_is_named_only_once_it_enters(script: Script) -> None:
    """It registers so that it may write; clients are sent to it when it is warm."""
    script.one(13, RegisterAgent(name="x", node_id=-1, feature_max=LEVEL_MAX, joining=True))
    assert not script.state.brokers[3].serving
    script.through_snapshot()
    assert not script.state.brokers[3].serving
    assert script.one(13, EnterMetadata()) == Done()
    assert script.state.brokers[3].serving
    script.through_snapshot()
    assert script.state.brokers[3].serving
    script.one(13, LeaveMetadata())
    assert refused(script.one(13, EnterMetadata()), Code.BROKER_ID_NOT_REGISTERED), "it left for good"
    assert 3 not in script.state.brokers


def test_while_nobody_has_entered_metadata_clients_are_sent_to_who_is_joining(script: Script) -> None:
    """Seed 807 of the simulation: an agent answers while it warms up, and it may be the only one."""

    def sent_to() -> list[int]:
        return [broker.node_id for broker in serving_of(script.state.brokers.values())]

    roles = {13: [], 14: ["background"]}
    for author, given in roles.items():
        joining = RegisterAgent(
            name=f"new-{author}", node_id=-1, feature_min=1, feature_max=LEVEL_MAX, joining=True, roles=given
        )
        assert isinstance(script.one(author, joining), Done)
    assert sent_to() == [1, 2]
    script.one(A, LeaveMetadata())
    script.one(B, LeaveMetadata())
    assert sent_to() == [3], "the other one is not for clients"
    script.one(13, JudgeAgent(incarnation=13, unwell="store: gone"))
    assert sent_to() == [3]
    script.one(13, EnterMetadata())
    assert sent_to() == [3]


def test_an_unwell_agent_is_not_named_while_another_is_well(script: Script) -> None:
    """Its claims go to others, its commands count; while none is well, all stay."""
    state = script.state
    script.one(A, Claim(name="job"))
    assert script.one(A, JudgeAgent(incarnation=A, unwell="store: gone")) == Done()
    assert not state.claims
    script.through_snapshot()
    state = script.state
    assert [broker.node_id for broker in serving_of(state.brokers.values())] == [2]
    assert [runs_jobs(state, number) for number in (A, B)] == [False, True]
    script.topic(A, "t")
    assert script.commit(A, (0, 1)).errors == [0]
    assert script.one(B, JudgeAgent(incarnation=B, unwell="store: gone")) == Done()
    assert [broker.node_id for broker in serving_of(state.brokers.values())] == [1, 2], (
        "none is well: all serve"
    )
    assert [runs_jobs(state, number) for number in (A, B)] == [True, True]
    assert script.one(A, JudgeAgent(incarnation=A)) == Done()
    assert [broker.node_id for broker in serving_of(state.brokers.values())] == [1]


def test_how_fast_an_agent_says_it_is_is_repeated_within_bounds_and_not_kept(script: Script) -> None:
    before = script.state.brokers[2]
    told = Heartbeat(append_us=900, append_late_us=2**32 - 1, put_us=5_000)
    assert script.one(B, told) == Done(Pace(900, PACE_US_MAX, 5_000, 0))
    assert script.one(B, Heartbeat()) == Done()
    assert script.state.brokers[2] is before
    old = Script()
    old.register(A, level=1)
    assert old.one(A, told) == Done(), "below its level an entry means what it meant"


def test_of_another_an_agent_only_says_that_nothing_is_heard_of_it(script: Script) -> None:
    """What the other wrote since makes it void, and only itself says that it is well."""
    heard = script.state.incarnations[B].sequence
    script.one(B, Heartbeat())
    silent = JudgeAgent(incarnation=B, unwell="silent", heard=heard)
    assert refused(script.one(A, silent), Code.INVALID_UPDATE_VERSION)
    assert not script.state.brokers[2].unwell
    silent.heard += 1
    assert script.one(A, silent) == Done()
    assert script.state.brokers[2].unwell == "silent"
    assert refused(script.one(A, JudgeAgent(incarnation=B, heard=heard + 1)), Code.INVALID_REQUEST)
    assert refused(script.one(A, JudgeAgent(incarnation=99, unwell="x")), Code.BROKER_ID_NOT_REGISTERED)
    assert refused(script.one(A, JudgeAgent(incarnation=A, unwell="x" * 501)), Code.INVALID_REQUEST)
    script.one(B, LeaveMetadata())
    assert refused(script.one(B, JudgeAgent(incarnation=B, unwell="x")), Code.BROKER_ID_NOT_REGISTERED)


def test_roles_say_who_serves_and_who_runs_jobs(script: Script) -> None:
    for number, roles in ((13, ["background"]), (14, ["fetch"]), (15, [])):
        agent = RegisterAgent(name=f"r{number}", node_id=number, feature_max=LEVEL_MAX, peer_address="h:2")
        agent.roles.extend(roles)
        assert script.one(number, agent) == Done(number)
    script.through_snapshot()
    brokers = script.state.brokers
    assert [brokers[n].serving for n in (13, 14, 15)] == [False, True, True]
    assert brokers[13].peer_address == "h:2"
    assert [runs_jobs(script.state, n) for n in (13, 14, 15)] == [True, False, True]
    for number in (A, B, 13, 15):
        script.one(number, LeaveMetadata())
    assert runs_jobs(script.state, 14), "nobody with the role lives: somebody has to"
    odd = RegisterAgent(name="odd", node_id=-1, feature_max=LEVEL_MAX, roles=["barista"])
    assert refused(script.one(16, odd), Code.INVALID_REGISTRATION)
