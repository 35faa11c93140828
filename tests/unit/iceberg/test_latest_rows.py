"""Latest tables: which rows they have, under which columns, and which name: envelopes, bindings, topics."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from coordination.commands import AlterTopicConfigs
from coordination.state.types import Done
from iceberg.committer import CommitError
from iceberg.latest_ids import latest_id
from iceberg.pointer_commit import TableConflict
from iceberg.upsert.committer import SKIPPED_UNUSABLE
from iceberg.upsert.service import UpsertOptions, UpsertService
from tests.unit.iceberg import latest
from tests.unit.iceberg import rig as rigs
from tests.unit.iceberg.latest import UPSERT, Oracle
from tests.unit.iceberg.rig import Rig, until
from tests.unit.iceberg.test_tables_bindings import NEW, OLD, bound, encoded, kind
from tests.unit.iceberg.test_tables_renamed import call, tables

ENVELOPE = b"""syntax = "proto3"; package p;
message Row { int32 id = 1; string name = 2; }
message M { Row before = 1; Row after = 2; string op = 3; int64 ts_ms = 4; }"""
WIDER = b"""syntax = "proto3"; package p;
message Row { int32 id = 1; double price = 3; }
message M { Row before = 1; Row after = 2; string op = 3; int64 ts_ms = 4; }"""
DEBEZIUM = {**UPSERT, "floe__table__envelope": "debezium"}


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    """A cluster of one agent."""
    async with rigs.running(tmp_path) as found:
        yield found


async def values(rig: Rig) -> dict[bytes, dict[str, Any]]:
    """The values by key, without raw bytes and what is null."""
    return {
        row["key"]["__raw__"]: {
            name: each for name, each in row["value"].items() if name != "__raw__" and each is not None
        }
        for row in await latest.rows(rig)
    }


async def columns(rig: Rig) -> list[str]:
    """The names of the value's columns."""
    metadata = (await latest.head(rig)).metadata
    schema = next(x for x in metadata["schemas"] if x["schema-id"] == metadata["current-schema-id"])
    value = next(each for each in schema["fields"] if each["name"] == "value")
    return [each["name"] for each in value["type"]["fields"]]


async def configure(rig: Rig, name: str, value: str) -> None:
    """Set a config of topic t."""
    change = AlterTopicConfigs.Change(name=name, operation=AlterTopicConfigs.Change.SET, value=value)
    assert isinstance(await rig.replica.propose(AlterTopicConfigs(topic="t", changes=[change])), Done)


def change(source: bytes, op: str, before: Any = None, after: Any = None) -> bytes:
    """An envelope."""
    return kind(source).message_class(op=op, before=before, after=after).SerializeToString()


async def test_rows_of_an_envelope_are_what_is_after(rig: Rig) -> None:
    await rig.create_topic(partitions=1, **DEBEZIUM)
    await rig.bind(ENVELOPE, "p.M")
    row, newer = {"id": 1, "name": "a"}, {"id": 1, "name": "b"}
    await rig.produce(
        [
            change(ENVELOPE, "c", after=row),
            change(ENVELOPE, "r", after={"id": 2}),
            change(ENVELOPE, "c", after={"id": 3}),
            change(ENVELOPE, "c", after={"id": 4}),
            change(ENVELOPE, "u", row, newer),
            change(ENVELOPE, "d", {"id": 3}),
            None,  # Debezium's tombstone behind a delete
            change(ENVELOPE, "t"),  # a truncation says no row
            change(ENVELOPE, "u", row),
            b"\xff garbage",
        ],
        keys=[b"1", b"2", b"3", b"4", b"1", b"3", b"3", b"1", b"2", b"4"],
    )
    await latest.catch_up(rig)
    assert await values(rig) == {b"1": newer, b"2": {"id": 2, "name": ""}, b"4": {"id": 4, "name": ""}}
    assert await columns(rig) == ["__raw__", "__err__", "id", "name"]
    summary = (await latest.head(rig)).metadata["snapshots"][-1]["summary"]
    assert summary[SKIPPED_UNUSABLE] == "3"
    await rig.bind(WIDER, "p.M")
    await rig.produce([change(WIDER, "u", after={"id": 2, "price": 0.5}), None], keys=[b"2", b"4"])
    await latest.catch_up(rig)
    assert await values(rig) == {b"1": newer, b"2": {"id": 2, "price": 0.5}}
    assert set(await columns(rig)) == {"__raw__", "__err__", "id", "name", "price"}


async def test_values_that_are_no_envelopes_are_told_with_the_remedy(rig: Rig) -> None:
    await rig.create_topic(partitions=1, **DEBEZIUM)
    await rig.produce([b"plain"])
    with pytest.raises(CommitError, match="no field op of type string: bind the message of the envelope"):
        await latest.catch_up(rig)
    await configure(rig, "floe.table.envelope", "none")
    await latest.catch_up(rig)
    assert len(await latest.rows(rig)) == 1
    await configure(rig, "floe.table.envelope", "debezium")
    await rig.produce([b"plain"])
    with pytest.raises(CommitError, match=r"made with floe\.table\.envelope=none"):
        await latest.catch_up(rig)


async def test_rows_of_several_bindings_stand_in_one_file_under_the_columns_of_now(rig: Rig) -> None:
    await rig.create_topic(partitions=1, **UPSERT)
    await rig.produce([b"free"], keys=[b"a"])
    await latest.catch_up(rig)
    await bound(rig, OLD)
    await rig.produce([encoded(OLD, x=-4, name="old")], keys=[b"b"])
    await latest.catch_up(rig)
    await bound(rig, NEW)
    await rig.produce([encoded(NEW, x=7, price=2.5), b"\xff"], keys=[b"c", b"a"])
    await latest.catch_up(rig)
    found = await values(rig)
    assert "__err__" in found.pop(b"a"), "the newest record of the key, though it is not the message"
    assert found[b"b"]["name"] == "old"
    assert found[b"c"]["price"] == 2.5
    append = (await rig.head()).metadata
    mine = (await latest.head(rig)).metadata
    assert mine["schemas"][-1]["fields"] == append["schemas"][-1]["fields"]
    assert len({each.location for each in await latest.files(rig)}) == 1


async def test_the_name_goes_with_the_topics(rig: Rig) -> None:
    await rig.create_topic(partitions=1, **UPSERT)
    await rig.produce([b"1"])
    await latest.catch_up(rig)
    assert tables(rig) == ["floe.t", "floe.t__latest"]
    await call(rig, "other.name")
    assert latest.committer(rig).misnamed
    await latest.catch_up(rig)
    assert tables(rig) == ["other.name", "other.name__latest"]
    assert len(await latest.rows(rig)) == 1
    own = latest.committer(rig)
    await rig.create_topic("name__latest", floe__table__name="floe.t__latest")
    await rig.drain(rig.committer("name__latest"))
    await call(rig, "")
    assert await own.run_once() is None
    assert "floe.t__latest" in own.conflict, "another topic's table has the name"
    assert "other.name__latest" in tables(rig), "it goes on under the name that it has"


async def test_a_topic_of_that_name_is_not_mixed_with_the_table(rig: Rig) -> None:
    await rig.create_topic(partitions=1, **UPSERT)
    await rig.produce([b"1"])
    await latest.catch_up(rig)
    other = rig.committer("v")
    await rig.create_topic("v")
    await rig.drain(other)
    await call(rig, "t__latest", topic="v")
    await rig.drain(other)
    assert "is no topic's" in other.conflict, "the table of a living topic is not set aside"
    assert "floe.t__latest" in tables(rig)
    await rig.create_topic("t__latest")
    with pytest.raises(TableConflict, match="exists and is no topic's"):
        await rig.drain(rig.committer("t__latest"))
    await rig.create_topic("u__latest")
    await rig.drain(rig.committer("u__latest"))
    await rig.create_topic("u", **UPSERT)
    await rig.produce([b"1"], topic="u")
    with pytest.raises(TableConflict, match="u__latest"):
        await latest.catch_up(rig, "u")


async def test_a_topic_made_again_has_a_table_of_its_own(rig: Rig) -> None:
    old, oracle = await rig.create_topic(partitions=1, **UPSERT), Oracle()
    await rig.produce([b"old"], keys=[b"old"])
    await latest.catch_up(rig)
    await rig.delete_topic()
    await rig.create_topic(partitions=1, **UPSERT)
    oracle.take(0, await rig.produce([b"new"], keys=[b"new"]), [b"new"], [b"new"])
    await latest.catch_up(rig)
    await oracle.assert_is(rig)
    aside = f"floe.t__latest__{latest_id(old.topic_id).hex()[:12]}"
    assert aside in tables(rig)


async def test_the_service_keeps_it_and_leaves_it_when_the_topic_wants_none(rig: Rig) -> None:
    oracle = Oracle()
    await rig.create_topic(partitions=1)
    oracle.take(0, await rig.produce([b"1", b"2"], keys=[b"a", b"a"]), [b"a", b"a"], [b"1", b"2"])
    await rig.drain(rig.committer())
    service = UpsertService(rig.parts, UpsertOptions(interval_s=0.02, busy_percent_max=100))
    await service.start()
    try:
        await configure(rig, "floe.table.mode", "upsert")
        await until(lambda: (status := service.status_of("t")) is not None and status.rows == 2)
        await oracle.assert_is(rig)
        assert service.problems_of("t") == ()
        await configure(rig, "floe.table.mode", "append")
        await until(lambda: "latest/t" not in rig.replica.state.claims)
        assert service.status_of("t") is None
        assert "floe.t__latest" in tables(rig), "its rows stay"
    finally:
        await service.stop()
