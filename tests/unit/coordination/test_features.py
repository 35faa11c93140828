"""Finalized features: Kafka's rules for levels, Floe's own level, and agents that do not know it."""

from __future__ import annotations

import pytest

from coordination.commands import (
    CommitTable,
    DeleteTopic,
    DropTable,
    FenceIncarnation,
    InitTransactions,
    PutNamespace,
    RegisterAgent,
    SetFeatureLevel,
    UpdateFeatures,
    command,
)
from coordination.kafka_codes import Code
from coordination.replica.errors import RegistrationRefused
from coordination.state import Done, Refused, Result
from coordination.state.errors import UnsupportedFeature
from coordination.state.features import GROUP_VERSION, LEVEL, SUPPORTED, TRANSACTION_VERSION, finalized
from tests.unit.coordination.conftest import Agents, registration
from tests.unit.coordination.kit import Script

A, B = 11, 12
Update = UpdateFeatures.Update
UP, SAFE, UNSAFE = Update.UPGRADE, Update.SAFE_DOWNGRADE, Update.UNSAFE_DOWNGRADE


@pytest.fixture
def script() -> Script:
    script = Script()
    script.register(A)
    return script


def update(script: Script, *updates: tuple[str, int, int]) -> Result:
    return update_by(script, A, *updates)


def update_by(script: Script, author: int, *updates: tuple[str, int, int]) -> Result:
    rows = [Update(name=name, level=level, kind=kind) for name, level, kind in updates]  # type: ignore[arg-type]  # open enum
    return script.one(author, UpdateFeatures(updates=rows))


def test_the_group_protocol_goes_off_and_on_again(script: Script) -> None:
    assert finalized(script.state) == {LEVEL: 2, GROUP_VERSION: 1, TRANSACTION_VERSION: 2}
    assert update(script, (GROUP_VERSION, 0, SAFE)) == Done(1)
    assert finalized(script.state) == {LEVEL: 2, TRANSACTION_VERSION: 2}, (
        "a feature that is off is not listed"
    )
    assert update(script, (GROUP_VERSION, 0, SAFE)) == Done(1), "nothing changed: the same epoch"
    assert update(script, (GROUP_VERSION, 1, UP)) == Done(2)
    assert update(script, (GROUP_VERSION, 0, UNSAFE)) == Done(3)


@pytest.mark.parametrize(
    ("name", "level", "kind"),
    [
        ("no.such", 1, UP),
        ("no.such", 0, SAFE),
        ("metadata.version", 30, UP),
        (GROUP_VERSION, 2, UP),
        (GROUP_VERSION, 0, UP),
        (GROUP_VERSION, 0, 0),
        (GROUP_VERSION, 0, 9),
        (LEVEL, 0, SAFE),
        (LEVEL, 0, UNSAFE),
        (LEVEL, 1, SAFE),
        (LEVEL, 1, UNSAFE),
        (LEVEL, 3, UP),
    ],
)
def test_what_cannot_be_is_refused_and_nothing_changes(
    script: Script, name: str, level: int, kind: int
) -> None:
    before = finalized(script.state)
    result = update(script, (GROUP_VERSION, 1, UP), (name, level, kind))
    assert isinstance(result, Refused)
    assert result.code == Code.INVALID_UPDATE_VERSION
    assert name in result.message
    assert (finalized(script.state), script.state.features_epoch) == (before, 0)


def test_a_refused_update_takes_the_others_with_it(script: Script) -> None:
    assert isinstance(update(script, (GROUP_VERSION, 0, SAFE), ("no.such", 1, UP)), Refused)
    assert finalized(script.state)[GROUP_VERSION] == 1


def test_the_level_waits_for_the_last_agent_that_does_not_know_it() -> None:
    script = Script()
    script.register(B, "old", level=1)
    script.register(A, "new", level=3)
    assert finalized(script.state) == {LEVEL: 1, GROUP_VERSION: 1}
    refused = update(script, (LEVEL, 2, UP))
    assert isinstance(refused, Refused)
    assert "'old' does not know it" in refused.message
    script.one(A, FenceIncarnation(incarnation=B))
    assert update(script, (LEVEL, 2, UP)) == Done(1)
    assert finalized(script.state) == {LEVEL: 2, GROUP_VERSION: 1, TRANSACTION_VERSION: 2}
    with pytest.raises(UnsupportedFeature, match="raises the feature level to 3, this code knows 1 to 2"):
        update(script, (LEVEL, 3, UP))


def test_a_level_that_was_finalized_never_goes_back_and_the_answer_says_what_to_do(script: Script) -> None:
    for kind in (SAFE, UNSAFE):
        refused = update(script, (LEVEL, 1, kind))
        assert isinstance(refused, Refused)
        assert "never goes back" in refused.message
        assert "run versions that know level 2" in refused.message


def test_transactions_wait_for_their_level() -> None:
    script = Script()
    script.register(A, level=1)
    init = InitTransactions(transactional_id="x", timeout_ms=1000, producer_id=-1, producer_epoch=-1)
    for message in (init, UpdateFeatures(updates=[Update(name=TRANSACTION_VERSION, level=1, kind=UP)])):
        assert isinstance(script.one(A, message), Refused)
    script.one(A, FenceIncarnation(incarnation=A))
    script.register(B, level=2)
    assert isinstance(script.one(B, init), Refused)
    update_by(script, B, (LEVEL, 2, UP))
    assert script.one(B, init) == Done((0, 0))


def test_the_level_of_this_code_is_finalized_from_the_start(script: Script) -> None:
    assert update(script, (LEVEL, SUPPORTED[LEVEL].high, UP)) == Done(0)


async def test_an_agent_that_does_not_know_the_level_is_not_taken(agents: Agents) -> None:
    await agents.start("now")
    later = agents.make("later")
    with pytest.raises(RegistrationRefused, match="applies feature levels 2 to 2, the cluster is at 1"):
        await later.start(registration("later", level=2))


async def test_an_agent_that_meets_a_level_it_does_not_know_stops_and_says_so(agents: Agents) -> None:
    """What it said of itself was wrong: only then can the level rise above what its code knows."""
    agent = agents.make("boastful")
    await (await agents.start("first")).stop()
    await agent.start(RegisterAgent(name="boastful", node_id=-1, feature_min=1, feature_max=3))
    row = Update(name=LEVEL, level=3, kind=Update.UPGRADE)
    proposed = agent.submit([command(UpdateFeatures(updates=[row]))])
    with pytest.raises(UnsupportedFeature, match="run a newer version"):
        await agent.failed
    proposed.cancel()


def test_transactions_v2_go_off_and_on_again(script: Script) -> None:
    for level, kind in ((1, SAFE), (0, UNSAFE), (1, UP), (2, UP)):
        assert isinstance(update(script, (TRANSACTION_VERSION, level, kind)), Done)
        assert finalized(script.state).get(TRANSACTION_VERSION, 0) == level
    refused = update(script, (TRANSACTION_VERSION, 3, UP))
    assert isinstance(refused, Refused)
    assert "0-2" in refused.message


def test_a_table_that_was_set_aside_is_not_of_the_topic_that_was_made_again() -> None:
    """Compaction waits for all tables of a topic: one that nobody writes any more would hold it up."""
    script = Script()
    script.register(A, level=1)
    script.state.incarnations[A].feature_max = 2
    script.topic(A, "t")
    script.one(A, PutNamespace(name="n"))
    for place in ("before", "now"):
        assert isinstance(
            script.one(A, CommitTable(namespace="n", name="t", metadata_location=place, topic="t")), Done
        )
        if place == "before":
            aside = DropTable(namespace="n", name="t", rename_namespace="n", rename_name="z_set_aside")
            assert isinstance(script.one(A, aside), Done)
    script.through_snapshot()  # which has them in the order of their names
    assert script.one(A, SetFeatureLevel(level=2)) == Done(2)
    ids = {name: table.topic_id for (_, name), table in script.state.tables.items()}
    assert ids == {"t": script.state.topics["t"].topic_id, "z_set_aside": b""}


@pytest.mark.parametrize("set_aside", [False, True])
def test_the_table_of_a_topic_before_is_not_tied_to_the_one_that_was_made_again(set_aside: bool) -> None:
    """The level rises after the topic was made again, and before its own table is there."""
    script = Script()
    script.register(A, level=1)
    script.state.incarnations[A].feature_max = 2
    script.topic(A, "t")
    script.one(A, PutNamespace(name="n"))
    folder = f"s3://b/n/t-{script.state.topics['t'].topic_id.hex()[:12]}"
    first = CommitTable(namespace="n", name="t", metadata_location=f"{folder}/metadata/1.json", topic="t")
    assert isinstance(script.one(A, first), Done)
    script.one(A, DeleteTopic(name="t"))
    script.topic(A, "t", 1, b"+")
    aside = DropTable(namespace="n", name="t", rename_namespace="n", rename_name="t__before")
    if set_aside:
        assert isinstance(script.one(A, aside), Done)
    assert script.one(A, SetFeatureLevel(level=2)) == Done(2)
    assert [table.topic_id for table in script.state.tables.values()] == [b""]
    if not set_aside:
        assert isinstance(script.one(A, aside), Done)
    now = script.state.topics["t"].topic_id
    location = f"s3://b/n/t-{now.hex()[:12]}/metadata/1.json"
    made = CommitTable(namespace="n", name="t", metadata_location=location, topic="t", topic_id=now)
    assert isinstance(script.one(A, made), Done)
    ids = {name: table.topic_id for (_, name), table in script.state.tables.items()}
    assert ids == {"t": now, "t__before": b""}
