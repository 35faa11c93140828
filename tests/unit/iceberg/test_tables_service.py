"""The service that commits all topics, and the removal of files that nobody names."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from coordination.commands import AlterClusterConfigs, AlterTopicConfigs
from coordination.state.types import Topic
from coordination.trouble import Troubles
from iceberg import history, maintenance
from iceberg import service as service_module
from iceberg.committer import Committer, CommitterOptions
from iceberg.metadata import Retention
from iceberg.service import CommitterService, ServiceOptions
from iceberg.steps import Steps
from objectstore.faulty import FaultyStore
from objectstore.removal import Removal
from objectstore.store import Retryable
from objectstore.tasks import DEFECTS
from tests.unit.iceberg import rig as rigs
from tests.unit.iceberg.rig import KillAt, Killed, Rig, until

FAST = ServiceOptions(interval_s=0.05, retry_s=0.05, writer_process=False)
ALONE = replace(FAST, committers_in_flight_max=1)
TOPICS = ("a", "b", "c")


class BrokenError(BaseException):
    """What native code ends with when it panics: no Exception."""


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    """A cluster of one agent."""
    async with rigs.running(tmp_path) as found:
        yield found


@asynccontextmanager
async def serving(rig: Rig, options: ServiceOptions = FAST) -> AsyncIterator[CommitterService]:
    """A running service."""
    service = CommitterService(rig.parts, options)
    await service.start()
    try:
        yield service
    finally:
        await service.stop()


async def committed(service: CommitterService, topic: str, rows: int) -> None:
    """Wait until the service has committed this many rows of a topic."""
    await until(lambda: topic in service.status() and service.status()[topic].rows >= rows)


async def test_all_topics_are_committed_as_records_come(rig: Rig) -> None:
    async with serving(rig, replace(FAST, writer_process=True)) as service:  # as in an agent
        for number in range(3):
            await rig.create_topic(f"t{number}")
        for number in range(3):
            await rig.produce([b"a", b"b"], topic=f"t{number}")
            await committed(service, f"t{number}", 2)
        await rig.produce([b"c"], topic="t1")
        await committed(service, "t1", 3)
        status = service.status()["t1"]
        assert status.freshness_ms >= 0
        assert status.last_error == ""
    await rig.assert_table_is_topic({0: [b"a", b"b", b"c"]}, topic="t1")
    assert rig.replica.state.claims == {}


async def test_what_was_there_before_the_service_is_committed(rig: Rig) -> None:
    await rig.create_topic()
    await rig.produce([b"a"])
    async with serving(rig) as service:
        await committed(service, "t", 1)


async def test_a_topic_may_opt_out_and_a_deleted_one_gives_its_claim_back(rig: Rig) -> None:
    await rig.create_topic("quiet", floe__table__enabled="false")
    await rig.create_topic("loud")
    async with serving(rig) as service:
        await rig.produce([b"a"], topic="quiet")
        await rig.produce([b"a"], topic="loud")
        await committed(service, "loud", 1)
        await rig.delete_topic("loud")
        await until(lambda: not rig.replica.state.claims)
        assert service.committer("loud") is None
    assert list(rig.replica.state.tables) == [("floe", "loud")]


async def test_the_clusters_default_may_opt_out_and_a_topic_in(rig: Rig) -> None:
    off = AlterTopicConfigs.Change(name="floe.table.enabled", value="false")
    await rig.replica.propose(AlterClusterConfigs(changes=[off]))
    await rig.create_topic("quiet")
    await rig.create_topic("loud", floe__table__enabled="true")
    async with serving(rig) as service:
        await rig.produce([b"a"], topic="quiet")
        await rig.produce([b"a"], topic="loud")
        await committed(service, "loud", 1)
        assert service.committer("quiet") is None
    assert list(rig.replica.state.tables) == [("floe", "loud")]


async def test_a_failing_store_delays_and_loses_nothing(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    await rig.create_topic()
    await rig.produce([b"a"])

    async def refuse(*_: object) -> str:
        raise Retryable("503")

    async with serving(rig) as service:
        with monkeypatch.context() as patch:
            patch.setattr(rig.store, "put", refuse)
            await until(lambda: "t" in service.status() and service.status()["t"].failures > 0)
            assert "503" in service.status()["t"].last_error
        await committed(service, "t", 1)
    await rig.assert_table_is_topic({0: [b"a"]})


@pytest.mark.parametrize("what", ["_refresh", "_start_due"])
async def test_a_defect_in_the_loop_ends_no_table(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """What nobody expected is told, and the loop goes on as fast as ever: it is not begun anew."""
    await rig.create_topic()
    await rig.produce([b"a"])
    met, begun_anew, told = (
        asyncio.Semaphore(0),
        DEFECTS.counts["tables"],
        DEFECTS.counts["look at the tables"],
    )

    def sick(now: float) -> None:
        met.release()
        raise AssertionError("nobody expected this")

    async with serving(rig, ALONE) as service:
        await committed(service, "t", 1)
        with monkeypatch.context() as patch:
            patch.setattr(service, what, sick)
            await rig.produce([b"b"])
            await met.acquire()
            await met.acquire()
        await committed(service, "t", 2)
    assert DEFECTS.counts["tables"] == begun_anew
    assert DEFECTS.counts["look at the tables"] >= told + 2
    await rig.assert_table_is_topic({0: [b"a", b"b"]})


async def test_an_orphan_that_the_store_keeps_keeps_no_other_one(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    await rig.create_topic()
    await rig.produce([b"a"])
    await rig.drain(rig.committer())
    folder = rig.warehouse.key((await rig.head()).metadata["location"])
    names = [f"{folder}/data/left-{number}.parquet" for number in range(5)]
    for key in names:
        await rig.store.put(key, [b"x"])
    await asyncio.sleep(0.005)  # what the next commit makes is younger by the store's clock
    await rig.produce([b"b"])
    await rig.drain(rig.committer())
    head, later_ms, store = await rig.head(), rig.parts.clock.now_ms() + 1000, FaultyStore(rig.store)
    store.held, removal = {names[1], names[3]}, Removal(store.delete)
    for count in (3, 0):
        done = await maintenance.collect(store, rig.warehouse, head, later_ms, 0, Steps(), removal)
        assert done == count
        assert await files(rig) & set(names) == store.held
        assert f"2 files that no table names cannot be deleted; one is {names[1]}" in caplog.text
        caplog.clear()
    last = head.location
    await maintenance.purge(store, rig.warehouse, head.metadata["location"], last)
    assert await files(rig) == store.held
    assert "2 files" in caplog.text


async def three(rig: Rig) -> None:
    """Topics a, b and c, with one record each."""
    for name in TOPICS:
        await rig.create_topic(name)
        await rig.produce([b"1"], topic=name)


async def others_go_on(rig: Rig, service: CommitterService) -> None:
    """Again and again b fails, and whatever comes into a and c is in their tables."""
    for number in (1, 2, 3):
        for name in ("a", "c"):
            await committed(service, name, number)
        failures = service.status()["b"].failures
        await until(lambda failures=failures: service.status()["b"].failures > failures)
        for name in TOPICS:
            await rig.produce([b"%d" % (number + 1)], topic=name)
    for name in ("a", "c"):
        await committed(service, name, 4)
        await rig.assert_table_is_topic({0: [b"1", b"2", b"3", b"4"]}, topic=name)


@pytest.mark.parametrize(
    "error", [AssertionError("nobody expected this"), Retryable("503"), BrokenError("?")]
)
async def test_a_topic_whose_table_fails_holds_up_no_other(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    """Whatever it fails with, and though one commit at a time is all that this agent makes."""
    await three(rig)
    plan = Committer._plan

    async def sick(committer: Committer, topic: Any, head: Any) -> Any:
        if committer.topic == "b":
            raise error
        return await plan(committer, topic, head)

    async with serving(rig, ALONE) as service:
        with monkeypatch.context() as patch:
            patch.setattr(Committer, "_plan", sick)
            await others_go_on(rig, service)
            assert type(error).__name__ in service.status()["b"].last_error
            assert service.status()["b"].rows == 0
        await committed(service, "b", 4)
    await rig.assert_table_is_topic({0: [b"1", b"2", b"3", b"4"]}, topic="b")


@pytest.mark.parametrize("what", ["manifest list", "manifest", "metadata"])
async def test_a_table_with_a_damaged_file_holds_up_no_other(rig: Rig, what: str) -> None:
    """One byte of what b's table is built upon: b waits until it is right again, a and c do not."""
    await three(rig)
    for name in TOPICS:
        await rig.drain(rig.committer(name))
        await rig.produce([b"2"], topic=name)
        await rig.drain(rig.committer(name))
    head = await rig.head("b")
    manifest, _ = head.manifests
    location = {
        "manifest list": head.metadata["snapshots"][-1]["manifest-list"],
        "manifest": manifest.manifest_path,
        "metadata": head.location,
    }[what]
    key = rig.warehouse.key(location)
    sound = await rig.store.get(key)
    await rig.store.put(key, [bytes(sound[:-1]), bytes([sound[-1] ^ 1])])
    rig.options = CommitterOptions(manifests_merged_at=2)  # each commit builds on all that there is
    for name in TOPICS:
        await rig.produce([b"3"], topic=name)
    async with serving(rig, ALONE) as service:
        for name in ("a", "c"):
            await committed(service, name, 1)
        await until(lambda: "b" in service.status() and service.status()["b"].failures > 1)
        assert service.status()["b"].rows == 0
        for name in ("a", "c"):
            await rig.produce([b"4"], topic=name)
            await committed(service, name, 2)
        await rig.store.put(key, [sound])
        await committed(service, "b", 1)
    await rig.assert_table_is_topic({0: [b"1", b"2", b"3", b"4"]}, topic="a")
    await rig.assert_table_is_topic({0: [b"1", b"2", b"3"]}, topic="b")


async def test_a_topic_that_cannot_be_looked_at_keeps_no_other_from_a_table(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even from its first one."""
    found = service_module.enabled
    met = asyncio.Semaphore(0)

    def sick(topic: Topic, cluster: Any) -> bool:
        if topic.name == "b":
            met.release()
            raise AssertionError("nobody expected this")
        return found(topic, cluster)

    async with serving(rig, ALONE) as service:
        with monkeypatch.context() as patch:
            patch.setattr(service_module, "enabled", sick)
            await three(rig)
            for name in ("a", "c"):
                await committed(service, name, 1)
            await met.acquire()
        await committed(service, "b", 1)


async def files(rig: Rig) -> set[str]:
    """Keys of all objects of all tables."""
    return {each.key async for page in rig.store.list("tables/") for each in page}


async def test_what_a_dead_committer_left_is_removed_and_nothing_else(rig: Rig) -> None:
    await rig.create_topic()
    await rig.produce([b"a"])
    await rig.drain(rig.committer())
    await rig.produce([b"b"])
    before = await files(rig)
    for steps in range(1, 9):
        with pytest.raises(Killed):
            await rig.committer(steps=KillAt(steps)).run_once()
    left_behind = await files(rig) - before
    assert left_behind
    head = await rig.head()
    later_ms = rig.parts.clock.now_ms() + 1000
    assert await maintenance.collect(rig.store, rig.warehouse, head, later_ms, 0, Steps()) == 0, "too new"
    await asyncio.sleep(0.005)  # what the next commit makes is younger by the store's clock
    assert await rig.drain(rig.committer()) == 1
    head = await rig.head()
    assert await maintenance.orphans(rig.store, rig.warehouse, head, later_ms, 3600) == []
    there = await files(rig)
    assert await maintenance.collect(rig.store, rig.warehouse, head, later_ms, 0, Steps()) == len(left_behind)
    assert await files(rig) == there - left_behind
    await rig.assert_table_is_topic({0: [b"a", b"b"]})


async def test_a_clock_that_is_years_ahead_removes_nothing_that_a_successor_made(rig: Rig) -> None:
    """Seed 119 of the simulation: by the time the objects were listed the next holder was at work."""
    await rig.create_topic()
    await rig.produce([b"a"])
    await rig.drain(rig.committer())
    head = await rig.head()
    await rig.produce([b"b"])
    years_ahead_ms = rig.parts.clock.now_ms() + 10**12
    with pytest.raises(Killed):
        await rig.committer(steps=KillAt(name="commit-table")).run_once()
    made = await files(rig)
    assert await maintenance.collect(rig.store, rig.warehouse, head, years_ahead_ms, 60, Steps()) == 0
    assert await files(rig) == made


async def test_expired_history_goes_and_every_row_stays(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "FOLD_MIN", 1)
    kept = Retention(snapshots=1, previous_versions=2, history_max=1)
    rig.options = CommitterOptions(retention=kept, manifests_merged_at=3)
    await rig.create_topic()
    committer = rig.committer()
    for number in range(9):
        await rig.produce([b"%d" % number])
        await rig.drain(committer)
    head = committer.head
    assert head is not None
    later_ms = rig.parts.clock.now_ms() + 1000
    assert await maintenance.collect(rig.store, rig.warehouse, head, later_ms, 0, Steps()) > 0
    names = [name.rsplit("/", 1)[-1] for name in await files(rig)]
    assert sum(name.endswith(".metadata.json") for name in names) == 3
    assert sum("-snap.x" in name for name in names) == 1
    assert sum("-base.x" in name for name in names) == 1
    assert sum(name.endswith(".parquet") for name in names) == 9
    await rig.assert_table_is_topic_rows(9)


async def test_the_service_collects_in_its_own_time(rig: Rig) -> None:
    await rig.create_topic()
    await rig.produce([b"a"])
    with pytest.raises(Killed):
        await rig.committer(steps=KillAt(name="store-manifests")).run_once()
    stray = {key for key in await files(rig) if key.endswith(".parquet")}
    assert stray
    rig.options = CommitterOptions(orphan_grace_s=0)
    async with serving(rig, replace(FAST, collect_s=0.01)) as service:
        await committed(service, "t", 1)
        number = 1
        while stray & await files(rig):
            await rig.produce([b"more"])
            number += 1
            await committed(service, "t", number)
    await rig.assert_table_is_topic_rows(number)


async def test_who_was_overtaken_collects_nothing_by_its_old_head(rig: Rig, tmp_path: Path) -> None:
    """Seed 13 of the simulation: an agent stood still, went on and deleted its successor's files."""
    await rig.create_topic()
    await rig.produce([b"a"])
    paused = rig.committer()
    await paused.run_once()
    assert await paused.settled_head() is paused.head
    async with rigs.running(tmp_path, server=rig.server, name="other") as other:
        rig.server.expire(rig.replica.incarnation)
        await until(lambda: "committer/t" not in other.replica.state.claims)
        await other.produce([b"b"])
        successor = other.committer()
        assert await successor.run_once() is not None
        assert paused.head is not None
        assert await paused.settled_head() is None


async def test_whose_table_fails_is_told_by_the_agent_that_commits_it(
    rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It lost the claim before it tried again: an alert would stand for two hours."""
    plan = Committer._plan

    async def sick(committer: Committer, topic: Any, head: Any) -> Any:
        if committer._parts.replica is rig.replica:
            raise Retryable("503")
        return await plan(committer, topic, head)

    monkeypatch.setattr(Committer, "_plan", sick)
    await rig.create_topic()
    await rig.produce([b"a"])
    troubles = Troubles(lambda: 0)
    async with serving(rig, replace(FAST, retry_s=60)) as first:
        first.troubles = troubles
        await until(lambda: [each.name for each in troubles.now()] == ["table of t"])
        async with rigs.running(tmp_path, server=rig.server, name="other") as other, serving(other) as second:
            rig.server.expire(rig.replica.incarnation)
            await committed(second, "t", 1)
            await until(lambda: not troubles.now())


async def test_another_agent_takes_over_when_the_committers_agent_dies(rig: Rig, tmp_path: Path) -> None:
    await rig.create_topic()
    async with rigs.running(tmp_path, server=rig.server, name="other") as other, serving(other) as second:
        await rig.produce([b"a"])
        await committed(second, "t", 1)
        async with serving(rig) as first:
            await rig.produce([b"b"])
            await committed(second, "t", 2)
            holder = rig.replica.state.claims["committer/t"].incarnation
            assert holder == other.replica.incarnation
            rig.server.expire(holder)  # as if it had been killed: it registers again, as somebody new
            await until(lambda: not rig.replica.state.is_live(holder))
            await rig.produce([b"c"])
            await until(lambda: sum_of(first, second) >= 3)
    await rig.assert_table_is_topic({0: [b"a", b"b", b"c"]})


def sum_of(*services: CommitterService) -> int:
    """Rows of topic t that these services committed."""
    return sum(service.status()["t"].rows for service in services if "t" in service.status())
