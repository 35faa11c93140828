"""What the log let go of is waited with until a restore of the cluster would know it, too."""

from __future__ import annotations

import pytest

from coordination.archive import backed
from coordination.archive.backed import Backed, through
from coordination.archive.head import Stored
from coordination.commands import (
    AlterClusterConfigs,
    AlterTopicConfigs,
    DeleteTopic,
    Heartbeat,
    RegisterAgent,
)
from coordination.snapshot_keeper import SnapshotKeeper
from coordination.state import leaving
from coordination.state.data import FEATURE_LEVEL_MAX
from objectstore.naming import PieceId
from tests.unit.coordination.conftest import Agents
from tests.unit.coordination.test_archive import Archives, archives
from tests.unit.coordination.test_replica import topic

__all__ = ["archives"]


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backed, "LOOK_S", 0.01)


@pytest.mark.parametrize(
    ("snapshot", "pieces", "reached"),
    [
        pytest.param(0, [], 0, id="nothing"),
        pytest.param(7, [], 7, id="a snapshot"),
        pytest.param(0, [(1, 4), (5, 9)], 9, id="from the beginning"),
        pytest.param(6, [(1, 4), (5, 9), (10, 12)], 12, id="a snapshot in the midst of a piece"),
        pytest.param(4, [(10, 12), (5, 9)], 12, id="in any order"),
        pytest.param(4, [(1, 4), (6, 9)], 4, id="a gap ends it"),
        pytest.param(9, [(1, 4), (5, 7)], 9, id="the archive is behind the snapshot"),
        pytest.param(0, [(1, 9), (3, 5), (10, 11)], 11, id="a piece beside the chain"),
    ],
)
def test_how_far_a_restore_would_come(snapshot: int, pieces: list[tuple[int, int]], reached: int) -> None:
    assert through(snapshot, [Stored(PieceId("f", *each), 1, 0) for each in pieces]) == reached


async def test_it_waits_for_the_archive(agents: Agents, archives: Archives) -> None:
    one = await agents.start("one")
    job = archives.of("one", one)
    looking = Backed(one, agents.logs["one"], agents.store, wait_s=0.05)
    await one.propose(topic("t"))
    assert "neither a snapshot nor the archived log" in await looking.catches_up()
    await job._look()
    await job._look()
    assert await looking.catches_up() == ""


async def test_what_an_idle_cluster_writes_is_not_waited_for(agents: Agents, archives: Archives) -> None:
    one = await agents.start("one")
    job = archives.of("one", one)
    looking = Backed(one, agents.logs["one"], agents.store, wait_s=0.05)
    await one.propose(topic("t"))
    await job._look()
    await job._look()
    for _ in range(3):
        await one.propose(Heartbeat())
    assert await looking.catches_up() == ""
    await one.propose(topic("u"))
    assert await looking.catches_up() != ""


async def test_a_deleted_topic_leaves_with_whatever_an_idle_cluster_writes(
    agents: Agents, archives: Archives, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leaving, "ROWS_AT_ONCE_MAX", 0)
    one = agents.make("one")
    await one.start(RegisterAgent(name="one", node_id=-1, feature_min=1, feature_max=FEATURE_LEVEL_MAX))
    job = archives.of("one", one)
    looking = Backed(one, agents.logs["one"], agents.store, wait_s=0.05)
    change = AlterTopicConfigs.Change(name="floe.delete.retention.ms", value="0")
    await one.propose(AlterClusterConfigs(changes=[change]))
    await one.propose(topic("t"))
    await one.propose(DeleteTopic(name="t"))
    await job._look()
    await job._look()
    assert one.state.leaving, "it waits for the entries that follow"
    assert await looking.catches_up() == ""
    await one.propose(Heartbeat())
    assert await looking.catches_up() != "", "the heartbeat may have let go of rows"


async def test_a_snapshot_does_where_the_archive_is_behind(agents: Agents) -> None:
    one = await agents.start("one")
    looking = Backed(one, agents.logs["one"], agents.store, wait_s=0.05)
    await one.propose(topic("t"))
    assert await looking.catches_up() != ""
    await SnapshotKeeper(one, agents.logs["one"], agents.store).write()
    assert await looking.catches_up() == ""
