"""Another `floe.table.name` renames the topic's table with its rows, history and ledger."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from coordination.commands import AlterTopicConfigs, CommitTable, PutNamespace, SetFeatureLevel
from coordination.replica.errors import OutcomeUnknown
from coordination.state.types import Done
from iceberg import maintenance
from iceberg.committer import Committer
from iceberg.folders import folder_of
from iceberg.pointer_commit import TableConflict
from iceberg.service import CommitterService
from iceberg.steps import Steps
from tests.unit.iceberg import rig as rigs
from tests.unit.iceberg.rig import KillAt, Killed, Rig, until
from tests.unit.iceberg.serving import ask, catalog_of
from tests.unit.iceberg.test_tables_service import FAST, committed

NAME = "floe.table.name"
RENAMED = ("rename-table", "load-table", "plan", "store-file", "commit-table", "remember-head")


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    """A cluster of one agent."""
    async with rigs.running(tmp_path) as found:
        yield found


async def call(rig: Rig, name: str, topic: str = "t") -> None:
    """Give the topic's table another name; empty: its own."""
    operation = AlterTopicConfigs.Change.SET if name else AlterTopicConfigs.Change.DELETE
    change = AlterTopicConfigs.Change(name=NAME, operation=operation, value=name)
    result = await rig.replica.propose(AlterTopicConfigs(topic=topic, changes=[change]))
    assert isinstance(result, Done), result


async def with_table(rig: Rig, topic: str = "t", **configs: str) -> Committer:
    """A topic of one row that is in its table."""
    await rig.create_topic(topic, **configs)
    await rig.produce([topic.encode()], topic=topic)
    committer = rig.committer(topic)
    await rig.drain(committer)
    return committer


def tables(rig: Rig) -> list[str]:
    """The names of all tables."""
    return sorted(f"{namespace}.{name}" for namespace, name in rig.replica.state.tables)


async def snapshots(rig: Rig, topic: str = "t") -> list[int]:
    """The history of the topic's table."""
    return [each["snapshot-id"] for each in (await rig.head(topic)).metadata["snapshots"]]


async def test_a_table_is_renamed_with_all_that_it_has(rig: Rig) -> None:
    committer = await with_table(rig)
    history, uuid = await snapshots(rig), (await rig.head()).metadata["table-uuid"]
    await call(rig, "flights")
    await rig.produce([b"later"])
    await rig.drain(committer)
    assert tables(rig) == ["floe.flights"]
    await rig.assert_table_is_topic({0: [b"t", b"later"]})
    assert (await snapshots(rig))[:-1] == history
    assert (await rig.head()).metadata["table-uuid"] == uuid
    catalog = catalog_of(rig)
    status, answer = await ask(catalog, "GET", "/v1/namespaces/floe/tables/t")
    assert (status, answer["error"]["type"]) == (404, "NoSuchTableException")
    assert (await ask(catalog, "GET", "/v1/namespaces/floe/tables/flights"))[0] == 200


async def test_a_chain_of_names_and_back_again(rig: Rig) -> None:
    """By a committer that knows the table and by one that remembers nothing, seen and unseen."""
    committer = await with_table(rig)
    wanted = [b"t"]
    for number, names in enumerate((["a"], ["b", "c"], ["other.d"], ["a"], [""])):
        for name in names:
            await call(rig, name)
        await rig.produce([b"%d" % number])
        wanted.append(b"%d" % number)
        await rig.drain(committer if number % 2 else rig.committer())
        await rig.assert_table_is_topic({0: wanted})
        assert tables(rig) == [f"{'' if '.' in names[-1] else 'floe.'}{names[-1] or 't'}"]
    assert len(await snapshots(rig)) == 6


async def test_a_table_without_a_row_is_renamed_too(rig: Rig) -> None:
    await rig.create_topic()
    committer = rig.committer()
    await committer.run_once()
    uuid = (await rig.head()).metadata["table-uuid"]
    await call(rig, "other")
    await committer.run_once()
    assert tables(rig) == ["floe.other"]
    assert (await rig.head()).metadata["table-uuid"] == uuid


@pytest.mark.parametrize("in_the_way", [False, True])
async def test_killed_between_any_two_steps_of_a_rename(rig: Rig, in_the_way: bool) -> None:
    """What is in the way is the table of a topic that is gone: it is set aside."""
    await with_table(rig)
    if in_the_way:
        await rig.replica.propose(PutNamespace(name="other"))
        await with_table(rig, "old", floe__table__name="other.x")
        await rig.delete_topic("old")
    await call(rig, "other.x")
    await rig.produce([b"more"])
    for step in ("claim", "set-old-table-aside" if in_the_way else "create-namespace", *RENAMED):
        with pytest.raises(Killed, match=step):
            await rig.drain(rig.committer(steps=KillAt(name=step)))
        assert len([name for name in tables(rig) if name in ("floe.t", "other.x")]) >= 1
    await rig.drain(rig.committer())
    await rig.assert_table_is_topic({0: [b"t", b"more"]})
    assert len(await snapshots(rig)) == 2
    assert [name for name in tables(rig) if "__" not in name] == ["other.x"]
    assert len(tables(rig)) == 1 + in_the_way


@pytest.mark.parametrize("landed", ["at once", "after the rename", "never"])
async def test_a_rename_while_a_commit_is_in_doubt(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, landed: str
) -> None:
    """What it was built on is gone, or it is what the table is at: no row is lost or doubled."""
    committer = await with_table(rig)
    await rig.produce([b"more"])
    submit, late = rig.replica.submit, []

    async def doubtful(commands: Any, **more: Any) -> Any:
        if commands[0].WhichOneof("kind") != "commit_table":
            return await submit(commands, **more)
        if landed == "at once":
            await submit(commands, **more)
        late.append((commands, more))
        raise OutcomeUnknown("nobody knows")

    with monkeypatch.context() as patch:
        patch.setattr(rig.replica, "submit", doubtful)
        with pytest.raises(OutcomeUnknown):
            await committer.run_once()
        assert committer.unsure
    await call(rig, "other")
    with pytest.raises(Killed):
        await rig.drain(_stepping(committer, KillAt(name="plan")))
    if landed == "after the rename":
        await submit(late[0][0], **late[0][1])
    await rig.drain(_stepping(committer, Steps()))
    assert tables(rig) == ["floe.other"]
    await rig.assert_table_is_topic({0: [b"t", b"more"]})
    assert not committer.unsure


def _stepping(committer: Committer, steps: Steps) -> Committer:
    """The same committer, told before its steps in another way."""
    committer._steps = steps
    return committer


async def test_two_topics_swap_their_names(rig: Rig) -> None:
    """In either order of their committers, one with a commit under way on the name that it had."""
    await with_table(rig, "a")
    await with_table(rig, "b")
    for number, order in enumerate(("ab", "ba"), 2):
        a, b = ("b", "a") if number == 2 else ("", "")
        await call(rig, "away", "a")
        await call(rig, b, "b")
        await call(rig, a, "a")
        for topic in order:
            await rig.produce([b"%d" % number], topic=topic)
        for topic in order:
            await rig.drain(rig.committer(topic))
        assert tables(rig) == ["floe.a", "floe.b"]
        for topic in "ab":
            values = [topic.encode(), *(b"%d" % each for each in range(2, number + 1))]
            await rig.assert_table_is_topic({0: values}, topic=topic)
            assert len(await snapshots(rig, topic)) == number
    await _swapped_under_a_commit(rig)


async def _swapped_under_a_commit(rig: Rig) -> None:
    await rig.produce([b"x"], topic="b")

    class Late(Steps):
        async def before(self, step: str) -> None:
            if step == "store-metadata":
                await call(rig, "away", "a")
                await call(rig, "a", "b")
                await call(rig, "b", "a")
                await rig.drain(rig.committer("a"))

    await rig.drain(rig.committer("b", Late()))
    assert rig.replica.state.tables["floe", "a"].topic == "b"
    assert len(await snapshots(rig, "b")) == 4
    await rig.assert_table_is_topic({0: [b"b", b"2", b"3", b"x"]}, topic="b")


async def foreign(rig: Rig, name: str) -> None:
    """A table of somebody else's."""
    await rig.replica.propose(PutNamespace(name="floe"))
    location = f"{rig.warehouse.location}/theirs/{name}/metadata/0.json"
    made = CommitTable(namespace="floe", name=name, metadata_location=location)
    assert isinstance(await rig.replica.propose(made), Done)


async def test_a_name_that_is_taken_keeps_the_rows_coming_under_the_old_one(rig: Rig) -> None:
    committer = await with_table(rig)
    await call(rig, "theirs")
    await foreign(rig, "theirs")
    await rig.produce([b"more"])
    await rig.drain(committer)
    assert tables(rig) == ["floe.t", "floe.theirs"]
    assert "floe.t is not renamed to floe.theirs" in committer.conflict
    assert "no topic's" in committer.conflict
    assert "another floe.table.name" in committer.conflict
    await rig.assert_table_is_topic({0: [b"t", b"more"]})
    assert await committer.settled_head() is not None, "its strays go as ever"
    assert (await ask(catalog_of(rig), "DELETE", "/v1/namespaces/floe/tables/theirs"))[0] == 204
    assert await committer.run_once() is None
    assert committer.conflict == ""
    assert tables(rig) == ["floe.theirs"]


async def test_the_service_renames_without_a_record(rig: Rig) -> None:
    """Also one whose new name was taken when it looked first."""
    service = CommitterService(rig.parts, FAST)
    await service.start()
    try:
        await rig.create_topic()
        await rig.produce([b"a"])
        await committed(service, "t", 1)
        await call(rig, "u")
        await until(lambda: tables(rig) == ["floe.u"])
        await call(rig, "theirs")
        await foreign(rig, "theirs")
        await until(lambda: service.committer("t").conflict != "")  # type: ignore[union-attr]  # it has one
        await ask(catalog_of(rig), "DELETE", "/v1/namespaces/floe/tables/theirs")
        await until(lambda: tables(rig) == ["floe.theirs"])
    finally:
        await service.stop()


async def test_a_topic_made_again_with_the_same_table_name(rig: Rig) -> None:
    committer = await with_table(rig, floe__table__name="x")
    await call(rig, "y")
    await rig.drain(committer)
    await rig.delete_topic()
    again = await with_table(rig, floe__table__name="y")
    assert len(tables(rig)) == 2
    assert tables(rig)[1].startswith("floe.y__")
    await rig.assert_table_is_topic({0: [b"t"]})
    await call(rig, "x")
    await rig.drain(again)
    assert "floe.x" in tables(rig)
    await rig.assert_table_is_topic({0: [b"t"]})


async def test_folders_stay_where_they_were_and_are_told_apart(rig: Rig) -> None:
    """The old name is another topic's now: what is removed of one table is none of the other's."""
    committer = await with_table(rig, "t")
    at = folder_of(rig.replica.state.tables["floe", "t"].metadata_location)
    await call(rig, "moved")
    await rig.drain(committer)
    await with_table(rig, "u", floe__table__name="t")
    assert folder_of(rig.replica.state.tables["floe", "moved"].metadata_location) == at
    stray = f"{rig.warehouse.key(at)}/data/stray.parquet"
    await rig.store.put(stray, [b"x"])
    await rig.produce([b"t2"], topic="t")
    await rig.drain(committer)
    head = await committer.settled_head()
    assert head is not None, "it is still known as the topic's, under its new name"
    after_ms = (await rig.store.head(rig.warehouse.key(head.location))).modified_ms + 10_000
    assert await maintenance.collect(rig.store, rig.warehouse, head, after_ms, 0, Steps()) == 1
    await rig.assert_table_is_topic({0: [b"t", b"t2"]}, topic="t")
    await rig.delete_topic("t")
    purge = await ask(catalog_of(rig), "DELETE", "/v1/namespaces/floe/tables/moved", purgeRequested="true")
    assert purge[0] == 204, purge
    assert [each.key async for page in rig.store.list(rig.warehouse.key(at) + "/") for each in page] == []
    await rig.assert_table_is_topic({0: [b"u"]}, topic="u")


async def test_names_that_collide_are_told_and_the_first_is_untouched(rig: Rig) -> None:
    first = await with_table(rig, "a.b-c")
    await rig.create_topic("a-b-c")
    await rig.produce([b"second"], topic="a-b-c")
    second = rig.committer("a-b-c")
    before = rig.replica.state.tables["floe", "a_b_c"]
    with pytest.raises(TableConflict, match=r"that of topic 'a.b-c': .*another floe.table.name"):
        await rig.drain(second)
    assert rig.replica.state.tables["floe", "a_b_c"] == before
    await call(rig, "abc2", "a-b-c")
    await rig.drain(second)
    await rig.drain(first)
    await rig.assert_table_is_topic({0: [b"a.b-c"]}, topic="a.b-c")
    await rig.assert_table_is_topic({0: [b"second"]}, topic="a-b-c")
    assert tables(rig) == ["floe.a_b_c", "floe.abc2"]


async def test_the_second_of_two_names_takes_the_first_ones_place_when_it_leaves(rig: Rig) -> None:
    first = await with_table(rig, "a.b-c")
    await rig.create_topic("a-b-c")
    await call(rig, "abc1", "a.b-c")
    await rig.produce([b"second"], topic="a-b-c")
    with pytest.raises(TableConflict):
        await rig.drain(rig.committer("a-b-c"))
    await rig.drain(first)
    await rig.drain(rig.committer("a-b-c"))
    await rig.assert_table_is_topic({0: [b"a.b-c"]}, topic="a.b-c")
    await rig.assert_table_is_topic({0: [b"second"]}, topic="a-b-c")


async def test_what_a_topic_left_behind_below_the_level_can_be_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There another name made another table: its metadata says that it is the topic's, and it is not."""
    monkeypatch.setattr(rigs, "FEATURE_LEVEL_MAX", 1)
    async with rigs.running(tmp_path) as rig:
        committer = await with_table(rig)
        await call(rig, "second")
        await rig.produce([b"more"])
        await rig.drain(committer)
        assert tables(rig) == ["floe.second", "floe.t"]
    monkeypatch.setattr(rigs, "FEATURE_LEVEL_MAX", 2)
    async with rigs.running(tmp_path, server=rig.server) as rig:
        assert isinstance(await rig.replica.propose(SetFeatureLevel(level=2)), Done)
        catalog = catalog_of(rig)
        assert (await ask(catalog, "DELETE", "/v1/namespaces/floe/tables/second"))[0] == 403
        assert (await ask(catalog, "DELETE", "/v1/namespaces/floe/tables/t"))[0] == 204
        await call(rig, "")
        await rig.drain(rig.committer())
        assert tables(rig) == ["floe.t"]
