"""Tables are published to another catalog: its entries follow Floe's pointers, and never go back.

The other catalog is a real SQL one (SQLite), read through pyiceberg's SqlCatalog.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from coordination.commands import DropTable, PutNamespace, ReleaseClaim
from coordination.state.types import Done
from iceberg.publish.other import Pointer
from iceberg.publish.plan import Published, Rules, due
from iceberg.publish.publisher import WHOLE
from tests.unit.iceberg import rig as rigs
from tests.unit.iceberg.publishing import (
    KillAt,
    configure,
    location,
    look,
    publisher_of,
    reading,
    rows,
    sql,
)
from tests.unit.iceberg.rig import Killed, Rig
from tests.unit.iceberg.serving import ask, catalog_of


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    async with rigs.running(tmp_path) as found:
        yield found


async def committed(rig: Rig, topic: str = "t", count: int = 1) -> str:
    """Some records more in the topic's table; where its metadata is then."""
    if topic not in rig.replica.state.topics:
        await rig.create_topic(topic)
    await rig.produce([b"x"] * count, topic=topic)
    await rig.drain(rig.committer(topic))
    return location(rig, topic)


def entries(folder: Path) -> dict[str, str]:
    """Name → location, of all of the other catalog."""
    with sqlite3.connect(folder / "catalog.db") as connection:
        found = connection.execute(
            "SELECT table_namespace, table_name, metadata_location FROM iceberg_tables"
        )
        names = {f"{namespace}.{name}": where for namespace, name, where in found}
    connection.close()
    return names


def is_there(where: str) -> bool:
    return Path(where.removeprefix("file://")).exists()


async def test_an_entry_follows_its_table_and_is_read_there(rig: Rig, tmp_path: Path) -> None:
    publisher = publisher_of(rig, sql(tmp_path))
    first = await committed(rig)
    await look(publisher, 2)
    assert entries(tmp_path) == {"floe.t": first}
    second = await committed(rig, count=2)
    await look(publisher)
    assert entries(tmp_path) == {"floe.t": second}
    async with reading(tmp_path) as catalog:
        assert await rows(catalog, "floe.t") == [0, 1, 2]
        assert catalog.list_namespaces() == [("floe",)]
    assert not publisher.failures
    assert publisher.late() == {"t": 0.0}
    await publisher.stop()


async def test_dropped_renamed_and_switched_off_tables_lose_their_entries(rig: Rig, tmp_path: Path) -> None:
    publisher = publisher_of(rig, sql(tmp_path))
    for topic in ("a", "b", "c"):
        await committed(rig, topic)
    await look(publisher, 2)
    assert set(entries(tmp_path)) == {"floe.a", "floe.b", "floe.c"}

    await rig.delete_topic("a")
    assert isinstance(await rig.replica.propose(DropTable(namespace="floe", name="a")), Done)
    await configure(rig, "b", floe__table__name="other")
    await rig.committer("b").run_once()
    await configure(rig, "c", floe__table__publish="false")
    await look(publisher, 2)
    assert entries(tmp_path) == {"floe.other": location(rig, "other")}

    await configure(rig, "c", floe__table__publish="true")
    await look(publisher)
    assert set(entries(tmp_path)) == {"floe.other", "floe.c"}
    await publisher.stop()


async def test_names_that_two_topics_swap_are_swapped_there(rig: Rig, tmp_path: Path) -> None:
    publisher = publisher_of(rig, sql(tmp_path))
    await configure_new(rig, "a", "x")
    await configure_new(rig, "b", "y")
    await look(publisher, 2)
    before = entries(tmp_path)
    await configure(rig, "a", floe__table__name="z")
    await configure(rig, "b", floe__table__name="x")
    await configure(rig, "a", floe__table__name="y")
    for topic in ("a", "b"):
        await rig.committer(topic).run_once()
    await look(publisher, 3)
    assert entries(tmp_path) == {"floe.x": before["floe.y"], "floe.y": before["floe.x"]}
    await publisher.stop()


async def configure_new(rig: Rig, topic: str, name: str) -> None:
    """A topic with one record in a table of that name."""
    await rig.create_topic(topic, floe__table__name=name)
    await rig.produce([b"x"], topic=topic)
    await rig.drain(rig.committer(topic))


async def test_the_table_of_a_deleted_topic_keeps_its_entry(rig: Rig, tmp_path: Path) -> None:
    publisher = publisher_of(rig, sql(tmp_path))
    old = await committed(rig)
    await look(publisher, 2)
    await rig.delete_topic()
    await look(publisher)
    assert entries(tmp_path) == {"floe.t": old}
    await publisher.stop()

    new = await committed(rig, count=2)  # another topic of that name: the old table is set aside
    later = publisher_of(rig, sql(tmp_path))  # after a start, that knows nothing
    await look(later, 3)
    found = entries(tmp_path)
    assert found.pop("floe.t") == new
    assert list(found.values()) == [old]
    await later.stop()


async def test_what_was_dropped_while_nobody_published_goes(rig: Rig, tmp_path: Path) -> None:
    publisher = publisher_of(rig, sql(tmp_path))
    await committed(rig)
    await look(publisher, 2)
    await publisher.stop()
    await rig.delete_topic()
    assert isinstance(await rig.replica.propose(DropTable(namespace="floe", name="t")), Done)
    later = publisher_of(rig, sql(tmp_path))
    await look(later, 2)
    assert entries(tmp_path) == {}
    await later.stop()


async def test_what_is_not_floes_is_left_alone_and_told(rig: Rig, tmp_path: Path) -> None:
    catalog = sql(tmp_path)
    publisher = publisher_of(rig, catalog)
    await asyncio.to_thread(catalog.names, "floe")
    foreign = {
        "floe.t": "s3://others/t/metadata/1.metadata.json",
        "floe.mine": "s3://others/m/metadata/1.json",
    }
    own = {"type": "struct", "schema-id": 0, "fields": []}
    await rig.replica.propose(PutNamespace(name="floe"))
    _, made = await ask(catalog_of(rig), "POST", "/v1/namespaces/floe/tables", {"name": "own", "schema": own})
    foreign["floe.own"] = made["metadata-location"]  # in the warehouse, and no topic's
    with sqlite3.connect(tmp_path / "catalog.db") as connection:
        for name, where in foreign.items():
            row = ("lake", *name.split("."), where)
            connection.execute("INSERT INTO iceberg_tables VALUES (?, ?, ?, ?, NULL, NULL)", row)
    connection.close()
    await committed(rig)
    await committed(rig, "u")
    await look(publisher, 3)
    assert entries(tmp_path) == {**foreign, "floe.u": location(rig, "u")}
    (name,) = publisher.failures
    assert name == "table floe.t"
    assert "is not Floe's" in publisher.failures[name].error
    assert "of topic t" in publisher.failures[name].error
    assert publisher.late()["t"] > 0
    await publisher.stop()


@pytest.mark.parametrize("step", ["list", "look", "barrier", "create", "replace", "drop"])
async def test_killed_before_any_step_the_next_one_goes_on(rig: Rig, tmp_path: Path, step: str) -> None:
    await committed(rig, "a")
    await committed(rig, "b")
    first = publisher_of(rig, sql(tmp_path))
    await look(first, 2)
    await first.stop()
    await committed(rig, "a")  # is to be moved
    await committed(rig, "c")  # is to be made
    await rig.delete_topic("b")  # is to be dropped
    assert isinstance(await rig.replica.propose(DropTable(namespace="floe", name="b")), Done)
    steps = KillAt(step)
    killed = publisher_of(rig, sql(tmp_path), steps=steps)
    with pytest.raises(Killed):
        await look(killed, 3)
    await killed.stop()
    assert all(is_there(where) for where in entries(tmp_path).values())
    after = publisher_of(rig, sql(tmp_path))
    await look(after, 3)
    assert entries(tmp_path) == {"floe.a": location(rig, "a"), "floe.c": location(rig, "c")}
    await after.stop()


class Paused(KillAt):
    """Stops before a step until it is let go."""

    def __init__(self, step: str) -> None:
        super().__init__()
        self.at = step
        self.here, self.go = asyncio.Event(), asyncio.Event()

    async def before(self, step: str) -> None:
        await super().before(step)
        if step == self.at:
            self.here.set()
            await self.go.wait()


@pytest.mark.parametrize("step", ["replace", "drop", "create"])
async def test_a_publisher_that_lost_its_claim_moves_nothing_back(tmp_path: Path, step: str) -> None:
    async with (
        rigs.running(tmp_path) as one,
        rigs.running(tmp_path, server=one.server, name="other") as two,
    ):
        await committed(one)
        if step != "create":
            before = publisher_of(one, sql(tmp_path))
            await look(before, 2)
            await before.stop()
        if step == "replace":
            await committed(one)
        if step == "drop":
            await configure(one, "t", floe__table__publish="false")
        steps = Paused(step)
        slow = publisher_of(one, sql(tmp_path), steps=steps)
        passing = asyncio.create_task(look(slow))
        await steps.here.wait()

        held = slow.held()
        assert held is not None
        await one.replica.propose(ReleaseClaim(name=slow.claim, claim_revision=held.revision))
        if step == "drop":
            await configure(one, "t", floe__table__publish="true")
        newest = await committed(one)
        await two.replica.barrier()
        quick = publisher_of(two, sql(tmp_path))
        await look(quick, 3)
        assert entries(tmp_path) == {"floe.t": newest}

        steps.go.set()
        await passing
        assert entries(tmp_path) == {"floe.t": newest}
        await slow.stop()
        await quick.stop()


async def test_what_changed_while_it_looked_counts(rig: Rig, tmp_path: Path) -> None:
    before = publisher_of(rig, sql(tmp_path))
    await committed(rig)
    await look(before, 2)
    await before.stop()
    await configure(rig, "t", floe__table__publish="false")
    steps = Paused("barrier")
    publisher = publisher_of(rig, sql(tmp_path), steps=steps)
    passing = asyncio.create_task(look(publisher))
    await steps.here.wait()
    await configure(rig, "t", floe__table__publish="true")
    newest = await committed(rig)
    steps.go.set()
    await passing
    assert entries(tmp_path) == {"floe.t": newest}
    await publisher.stop()


async def test_of_two_agents_one_publishes_and_the_other_goes_on_after_it(tmp_path: Path) -> None:
    async with (
        rigs.running(tmp_path) as one,
        rigs.running(tmp_path, server=one.server, name="other") as two,
    ):
        publishers = [publisher_of(each, sql(tmp_path)) for each in (one, two)]
        await committed(one)
        for _ in range(3):
            await asyncio.gather(*(look(each) for each in publishers))
        assert [each.publishes for each in publishers].count(True) == 1
        active = next(each for each in publishers if each.publishes)
        passive = next(each for each in publishers if not each.publishes)
        held = active.held()
        assert held is not None
        await active.replica.propose(ReleaseClaim(name=active.claim, claim_revision=held.revision))
        newest = await committed(one)
        await passive.replica.barrier()
        await look(passive, 3)
        assert passive.publishes
        assert not active.publishes
        assert entries(tmp_path) == {"floe.t": newest}
        for each in publishers:
            await each.stop()


async def test_an_entry_that_is_ahead_is_never_moved_back(rig: Rig, tmp_path: Path) -> None:
    publisher = publisher_of(rig, sql(tmp_path))
    await committed(rig)
    await look(publisher, 2)
    ahead = location(rig).replace("/metadata/0", "/metadata/9")
    with sqlite3.connect(tmp_path / "catalog.db") as connection:
        connection.execute("UPDATE iceberg_tables SET metadata_location = ?", (ahead,))
    connection.close()
    await look(publisher, 2)
    assert entries(tmp_path) == {"floe.t": ahead}
    assert "is not moved back" in publisher.failures["table floe.t"].error
    await publisher.stop()


async def test_an_entry_that_somebody_moved_or_dropped_is_mended(rig: Rig, tmp_path: Path) -> None:
    publisher = publisher_of(rig, sql(tmp_path))
    old = await committed(rig)
    new = await committed(rig)
    await committed(rig, "u")
    await look(publisher, 2)
    with sqlite3.connect(tmp_path / "catalog.db") as connection:
        connection.execute("UPDATE iceberg_tables SET metadata_location = ? WHERE table_name = 't'", (old,))
        connection.execute("DELETE FROM iceberg_tables WHERE table_name = 'u'")
    connection.close()
    await look(publisher, 2)
    assert entries(tmp_path) == {"floe.t": new, "floe.u": location(rig, "u")}
    await publisher.stop()


async def test_a_catalog_that_is_away_is_told_and_reached_again(rig: Rig, tmp_path: Path) -> None:
    away = tmp_path / "later"
    publisher = publisher_of(rig, sql(away))
    newest = await committed(rig)
    await look(publisher, 2)
    failure = publisher.failures[WHOLE]
    assert failure.count == 2
    assert "unable to open database file" in failure.error
    assert "look at its uri, user and password" in failure.error
    assert publisher.late()["t"] > 0
    away.mkdir()
    await look(publisher)
    assert entries(away) == {"floe.t": newest}
    assert not publisher.failures
    assert publisher.late() == {"t": 0.0}
    await publisher.stop()


async def test_a_catalog_that_fails_is_left_alone_for_longer_each_time(rig: Rig, tmp_path: Path) -> None:
    publisher = publisher_of(rig, sql(tmp_path / "nowhere"), retry_s=1000.0, retry_s_max=1500.0)
    await committed(rig)
    await look(publisher, 5)
    assert publisher.failures[WHOLE].count == 1
    await publisher.stop()


async def test_a_pass_is_bounded_and_topics_are_chosen(rig: Rig, tmp_path: Path) -> None:
    for topic in ("a1", "a2", "a3", "b1"):
        await committed(rig, topic)
    rules = Rules("lake_{namespace}", "a*, c")
    publisher = publisher_of(rig, sql(tmp_path), rules=rules, entries_per_pass_max=2)
    await look(publisher)
    assert len(entries(tmp_path)) == 2
    await look(publisher)
    assert set(entries(tmp_path)) == {"lake_floe.a1", "lake_floe.a2", "lake_floe.a3"}
    await publisher.stop()


def test_two_tables_make_their_namespace_at_the_same_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = sql(tmp_path), sql(tmp_path)
    asked = one._rows

    def too_early(query: str, **values: str) -> list[tuple[Any, ...]]:
        found = asked(query, **values)
        if "iceberg_namespace_properties" in query:
            other.create(("floe", "b"), Pointer("s3://b", {}))
        return found

    monkeypatch.setattr(one, "_rows", too_early)
    one.create(("floe", "a"), Pointer("s3://a", {}))
    assert entries(tmp_path) == {"floe.a": "s3://a", "floe.b": "s3://b"}
    one.close()
    other.close()


def test_names_of_others_are_learnt_last() -> None:
    """A catalog may have very many of them, and a pass is bounded."""
    mine = Published(("n", "new"), "floe.new", "file:///w/new-0/metadata/1", "new", True)
    seen = {("n", "theirs"): None, ("n", "left"): "", ("n", "old"): "file:///w/old-0/metadata/1"}
    assert [name for _, name in due({mine.key: mine}, seen)] == ["old", "new", "theirs"]


async def test_two_tables_that_come_to_one_name_are_told(rig: Rig, tmp_path: Path) -> None:
    await configure_new(rig, "a", "one.t")
    await configure_new(rig, "b", "two.t")
    publisher = publisher_of(rig, sql(tmp_path), rules=Rules("all"))
    await look(publisher, 3)
    assert len(entries(tmp_path)) == 1
    (failure,) = publisher.failures.values()
    assert "would both be all.t there" in failure.error
    await configure(rig, "b", floe__table__name="two.u")
    await rig.committer("b").run_once()
    await look(publisher, 2)
    assert set(entries(tmp_path)) == {"all.t", "all.u"}
    assert not publisher.failures
    await publisher.stop()


async def test_without_sqlalchemy_it_says_what_is_missing(
    rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "sqlalchemy", None)
    publisher = publisher_of(rig, sql(tmp_path))
    await committed(rig)
    await look(publisher, 2)
    assert "install floe-streaming[sql]" in publisher.failures[WHOLE].error
    await publisher.stop()
