"""Who looks at one table and takes it away takes that one, not what has its name by then."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from coordination.commands import CommitTable, DropTable
from coordination.state.data import FEATURE_LEVEL_MAX
from coordination.state.types import Done
from iceberg.catalog import Catalog
from iceberg.pointer_commit import TableConflict
from objectstore.store import StoreError
from tests.unit.iceberg import rig as rigs
from tests.unit.iceberg import serving
from tests.unit.iceberg.rig import Rig
from tests.unit.iceberg.serving import ask

T = ("floe", "t")


@pytest.fixture(params=[1, FEATURE_LEVEL_MAX])
async def rig(
    tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Rig]:
    """A cluster of one agent, of either level, with the table of topic t, which is deleted."""
    monkeypatch.setattr(rigs, "FEATURE_LEVEL_MAX", request.param)
    async with rigs.running(tmp_path) as found:
        assert found.replica.state.feature_level == request.param
        await found.create_topic()
        await found.produce([b"old"])
        await found.drain(found.committer())
        await found.delete_topic()
        yield found


async def made_again(rig: Rig) -> None:
    """Topic t once more: its committer sets the old table aside and makes a new one."""
    await rig.create_topic()
    await rig.produce([b"new"])
    assert await rig.drain(rig.committer()) == 1


def while_read(rig: Rig, do: Callable[[Rig], Awaitable[None]]) -> None:
    """Do it once, while the next file is read from the store."""
    get = rig.store.get

    async def late(key: str) -> bytes:
        rig.store.get = get  # type: ignore[method-assign]  # once: as it was before
        content = await get(key)
        await do(rig)
        return content

    rig.store.get = late  # type: ignore[method-assign]  # this store is the test's own


def while_proposed(rig: Rig, do: Callable[[Rig], Awaitable[None]]) -> None:
    """Do it once, while the next command that takes a table away is on its way into the log."""
    propose = rig.replica.propose

    async def late(message: Any, **more: Any) -> Any:
        if isinstance(message, DropTable):
            rig.replica.propose = propose  # type: ignore[method-assign]  # once: as it was before
            await do(rig)
        return await propose(message, **more)

    rig.replica.propose = late  # type: ignore[method-assign]  # this replica is the test's own


async def drop(catalog: Catalog) -> tuple[int, Any]:
    return await ask(catalog, "DELETE", "/v1/namespaces/floe/tables/t", purgeRequested="true")


async def rename(catalog: Catalog) -> tuple[int, Any]:
    names = {
        role: {"namespace": ["floe"], "name": name} for role, name in (("source", "t"), ("destination", "v"))
    }
    return await ask(catalog, "POST", "/v1/tables/rename", names)


@pytest.mark.parametrize("take", [drop, rename])
@pytest.mark.parametrize(
    ("rig", "moment"),
    [(1, while_read), (FEATURE_LEVEL_MAX, while_read), (FEATURE_LEVEL_MAX, while_proposed)],
    indirect=["rig"],
)  # below its level the command cannot say what it expects
async def test_a_topic_that_is_made_again_meanwhile_keeps_its_table(
    rig: Rig, take: Callable[[Catalog], Awaitable[tuple[int, Any]]], moment: Callable[..., None]
) -> None:
    """Its pointer was taken: rows whose records are gone were lost from the table."""
    moment(rig, made_again)
    status, answer = await take(serving.catalog_of(rig))
    assert status == 403, answer
    assert "delete the topic first" in answer["error"]["message"]
    await rig.assert_table_is_topic({0: [b"new"]})
    assert sorted(name for _, name in rig.replica.state.tables)[1].startswith("t__"), "the old one is aside"


@pytest.mark.parametrize("take", [drop, rename])
async def test_a_table_that_nobody_has_any_more_is_taken(
    rig: Rig, take: Callable[[Catalog], Awaitable[tuple[int, Any]]]
) -> None:
    assert (await take(serving.catalog_of(rig)))[0] == 204
    assert T not in rig.replica.state.tables
    assert list(rig.replica.state.tables) == ([] if take is drop else [("floe", "v")])


async def test_a_table_that_moves_on_while_it_is_dropped_is_looked_at_again(rig: Rig) -> None:
    """Another engine's commit is no reason to refuse: it is dropped as it is then."""
    catalog = serving.catalog_of(rig)
    before = rig.replica.state.tables[T].metadata_location

    async def commit(_: Rig) -> None:
        updates = [{"action": "set-properties", "updates": {"a": "b"}}]
        body = {"requirements": [], "updates": updates}
        assert (await ask(catalog, "POST", "/v1/namespaces/floe/tables/t", body))[0] == 200

    while_read(rig, commit)
    assert (await drop(catalog))[0] == 204
    assert T not in rig.replica.state.tables
    left = [each.key async for page in rig.store.list("tables/") for each in page]
    assert left == [], "the metadata that came meanwhile is purged too"
    assert before


@pytest.mark.parametrize(
    ("rig", "proposed"), [(1, False), (FEATURE_LEVEL_MAX, False), (FEATURE_LEVEL_MAX, True)], indirect=["rig"]
)
async def test_a_table_that_takes_an_older_ones_name_is_not_set_aside(rig: Rig, *, proposed: bool) -> None:
    """The committer looked at the deleted topic's table; by then a client had dropped it and made its own."""
    theirs = CommitTable(
        namespace="floe", name="t", metadata_location=f"{rig.warehouse.location}/mine/x/metadata/1.json"
    )

    async def made(found: Rig) -> None:
        await found.replica.propose(DropTable(namespace="floe", name="t"))
        assert isinstance(await found.replica.propose(theirs), Done)

    class Meanwhile(rigs.KillAt):
        async def before(self, step: str) -> None:
            await super().before(step)
            if step == "set-old-table-aside":
                if proposed:
                    while_proposed(rig, made)
                else:
                    await made(rig)

    await rig.create_topic()
    with pytest.raises(TableConflict, match=r"is not at|at .*, not at"):
        await rig.committer(steps=Meanwhile()).run_once()
    assert rig.replica.state.tables[T].metadata_location == theirs.metadata_location


async def damaged(rig: Rig, location: str) -> None:
    key = rig.warehouse.key(location)
    content = bytes(await rig.store.get(key))
    await rig.store.put(key, [content[:-40] + b"x" * 40])


async def gone(rig: Rig, location: str) -> None:
    await rig.store.delete([rig.warehouse.key(location)])


async def elsewhere(rig: Rig, location: str) -> None:
    """As a promotion leaves a table that it could not move."""
    there = "s3://source/floe/tables/floe/t-1/metadata/00001-a.metadata.json"
    moved = CommitTable(namespace="floe", name="t", expected=location, metadata_location=there)
    assert isinstance(await rig.replica.propose(moved), Done)


@pytest.mark.parametrize("harm", [damaged, gone, elsewhere])
async def test_a_living_topics_table_that_nobody_can_read_is_dropped_and_made_anew(
    tmp_path: Path, harm: Callable[[Rig, str], Awaitable[None]]
) -> None:
    """Its committer would stand still for ever. What is sound is refused."""
    async with rigs.running(tmp_path) as rig:
        await rig.create_topic()
        await rig.produce([b"a"])
        await rig.drain(rig.committer())
        catalog = serving.catalog_of(rig)
        assert (await drop(catalog))[0] == 403
        await harm(rig, rig.replica.state.tables[T].metadata_location)
        assert T in rig.replica.state.tables
        assert (await drop(catalog))[0] == 204
        await rig.produce([b"b"])
        await rig.drain(rig.committer())
        await rig.assert_table_is_topic({0: [b"a", b"b"]})


async def test_while_the_store_is_away_no_table_is_dropped(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    async def away(key: str) -> bytes:
        raise StoreError(f"{key}: the store does not answer")

    monkeypatch.setattr(rig.store, "get", away)
    assert (await drop(serving.catalog_of(rig)))[0] == 503
    assert T in rig.replica.state.tables
