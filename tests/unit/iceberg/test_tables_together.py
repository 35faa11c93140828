"""Several tables in one commit (`transactions/commit`): all of them change, or none."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import requests
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.schema import Schema
from pyiceberg.table import CommitTableRequest, Namespace, TableIdentifier, Transaction
from pyiceberg.table.update import AssertCreate
from pyiceberg.types import LongType, NestedField, StringType

from coordination.commands import CommitTables, PutNamespace
from coordination.log import Unavailable
from coordination.replica.errors import OutcomeUnknown
from coordination.state.tables import MOVES_MAX
from iceberg import rest_transaction
from iceberg.catalog import ENDPOINTS, Catalog
from tests.unit.iceberg import rig as rigs
from tests.unit.iceberg import serving
from tests.unit.iceberg.rig import Rig
from tests.unit.iceberg.serving import ask, catalog_of

COMMIT = "/v1/transactions/commit"
ROWS = pa.table({"name": ["a", "b"], "number": pa.array([1, 2], pa.int64())})
SCHEMA = Schema(NestedField(1, "name", StringType()), NestedField(2, "number", LongType()))
CREATE = {"requirements": [{"type": "assert-create"}]}


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    """A cluster of one agent with the namespace `ns`."""
    async with rigs.running(tmp_path) as found:
        await found.replica.propose(PutNamespace(name="ns"))
        yield found


@pytest.fixture
async def catalog(rig: Rig) -> Catalog:
    """With the tables ns.a and ns.b."""
    found = catalog_of(rig)
    for name in "ab":
        body = {"name": name, "schema": SCHEMA.model_dump(mode="json", by_alias=True)}
        assert (await ask(found, "POST", "/v1/namespaces/ns/tables", body))[0] == 200
    return found


def change(name: str, *updates: Any, namespace: str = "ns", requirements: Any = ()) -> dict[str, Any]:
    """One table's part of a commit; without updates its property `p` becomes its name."""
    updates = updates or (setting(p=name),)
    place = {"namespace": [namespace], "name": name}
    return {"identifier": place, "requirements": list(requirements), "updates": list(updates)}


def setting(**properties: str) -> dict[str, Any]:
    return {"action": "set-properties", "updates": properties}


def creating(name: str, location: str) -> dict[str, Any]:
    """A staged creation of a table."""
    schema = SCHEMA.model_dump(mode="json", by_alias=True)
    return change(
        name,
        {"action": "assign-uuid", "uuid": f"00000000-0000-0000-0000-{ord(name[-1]):012}"},
        {"action": "upgrade-format-version", "format-version": 2},
        {"action": "add-schema", "schema": schema, "last-column-id": 2},
        {"action": "set-current-schema", "schema-id": -1},
        {"action": "add-spec", "spec": {"spec-id": 0, "fields": []}},
        {"action": "set-default-spec", "spec-id": -1},
        {"action": "add-sort-order", "sort-order": {"order-id": 0, "fields": []}},
        {"action": "set-default-sort-order", "sort-order-id": -1},
        {"action": "set-location", "location": location},
        requirements=[{"type": "assert-create"}],
    )


async def commit(catalog: Catalog, *changes: Any) -> tuple[int, str]:
    """Status, and the kind and words of a refusal."""
    status, answer = await ask(catalog, "POST", COMMIT, {"table-changes": list(changes)})
    return status, "" if answer is None else f"{answer['error']['type']}: {answer['error']['message']}"


async def properties(catalog: Catalog, name: str) -> dict[str, str]:
    _, answer = await ask(catalog, "GET", f"/v1/namespaces/ns/tables/{name}")
    found: dict[str, str] = answer["metadata"]["properties"]
    return found


def places(rig: Rig) -> dict[str, str]:
    return {".".join(key): each.metadata_location for key, each in rig.replica.state.tables.items()}


async def files(rig: Rig) -> set[str]:
    return {each.key async for page in rig.store.list("tables/") for each in page}


async def test_rows_of_two_tables_become_visible_at_once(rig: Rig) -> None:
    """pyiceberg's own transactions, of which one commit is made; then the same with one that is stale."""

    def request(one: Transaction) -> dict[str, Any]:
        *namespace, name = one._table.name()
        place = TableIdentifier(namespace=Namespace(namespace), name=name)
        needs = (AssertCreate(),) if name == "c" else one._requirements
        made = CommitTableRequest(identifier=place, updates=one._updates, requirements=needs)
        found: dict[str, Any] = made.model_dump(mode="json", by_alias=True)
        return found

    def story(url: str) -> None:
        with serving.client(url) as found:
            tables = [found.create_table(f"ns.{name}", SCHEMA) for name in "ab"]
            staged = found.create_table_transaction("ns.c", SCHEMA)
            for answer in (204, 409):
                pending = [*(each.transaction() for each in tables), staged]
                for each in pending:
                    each.append(ROWS)
                body = {"table-changes": [request(each) for each in pending]}
                told = requests.post(f"{url}{COMMIT}", json=body, timeout=60)
                assert told.status_code == answer, told.text
                assert [rows(found, name) for name in "abc"] == [2, 2, 2]
            assert told.json()["error"]["type"] == "CommitFailedException"
            assert "table ns.a: Requirement failed" in told.json()["error"]["message"]

    def rows(found: RestCatalog, name: str) -> int:
        return found.load_table(f"ns.{name}").scan().to_arrow().num_rows

    async with serving.served(catalog_of(rig)) as url:
        await asyncio.to_thread(story, url)
    assert len({each.revision for each in rig.replica.state.tables.values()}) == 1


async def test_one_requirement_that_does_not_hold_changes_nothing(rig: Rig, catalog: Catalog) -> None:
    """Nor does it leave a file: the others were not stored yet."""
    before, stored = places(rig), await files(rig)
    old = {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": 7}
    kept = {"type": "assert-current-schema-id", "current-schema-id": 0}
    told = await commit(catalog, change("a", requirements=[kept]), change("b", requirements=[old]))
    assert told[0] == 409
    assert told[1].startswith("CommitFailedException: table ns.b: Requirement failed: ")
    assert (places(rig), await files(rig)) == (before, stored)
    assert await commit(catalog, change("a", requirements=[kept]), change("b")) == (204, "")
    assert {name: (await properties(catalog, name))["p"] for name in "ab"} == {"a": "a", "b": "b"}


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        ({}, 400, "table-changes: a list of objects is needed, one for each table"),
        ({"table-changes": [7]}, 400, "table-changes: a list of objects"),
        ({"table-changes": [{}]}, 400, "table-changes[0]: identifier: an object with namespace and name"),
        ({"table-changes": [change("a"), change("")]}, 400, "table-changes[1]: table name ''"),
        ({"table-changes": [change("a"), change("b"), change("a")]}, 400, "[2]: table ns.a is named twice"),
        ({"table-changes": [change("a"), change("b", {"action": "?"})]}, 400, "table-changes[1]: commit"),
        ({"table-changes": [change(f"t{n}") for n in range(MOVES_MAX + 1)]}, 400, "101 tables, 100 at most"),
        ({"table-changes": [change("a"), change("no")]}, 404, "Table does not exist: ns.no"),
        ({"table-changes": [change("a"), change("v")]}, 404, "Table does not exist: ns.v"),
        (
            {"table-changes": [change("a"), change("n", namespace="no", **CREATE)]},
            404,
            "table no.n: Namespace does not exist: no",
        ),
        ({"table-changes": [change("a"), change("v", **CREATE)]}, 409, "View with same name already"),
        ({"table-changes": [change("a"), change("b", **CREATE)]}, 409, "table ns.b: Requirement failed"),
        ({"table-changes": [change("a"), change("b", setting(**{"floe.x": "1"}))]}, 403, "table ns.b: prop"),
        (
            {"table-changes": [change("a"), change("b", {"action": "set-current-schema", "schema-id": 9})]},
            400,
            "table ns.b: the updates cannot be applied",
        ),
    ],
)
async def test_what_cannot_be_is_said_and_changes_nothing(
    rig: Rig, catalog: Catalog, body: Any, status: int, words: str
) -> None:
    version = {
        "version-id": 1,
        "timestamp-ms": 1_700_000_000_000,
        "schema-id": 0,
        "summary": {},
        "default-namespace": ["ns"],
        "representations": [{"type": "sql", "sql": "select 1", "dialect": "spark"}],
    }
    view = {
        "name": "v",
        "schema": SCHEMA.model_dump(mode="json", by_alias=True),
        "view-version": version,
        "properties": {},
    }
    assert (await ask(catalog, "POST", "/v1/namespaces/ns/views", view))[0] == 200
    before, stored = places(rig), await files(rig)
    found, answer = await ask(catalog, "POST", COMMIT, body)
    assert (found, words in answer["error"]["message"]) == (status, True), answer
    assert (places(rig), await files(rig)) == (before, stored)


async def test_tables_are_made_with_others_each_in_its_own_folder(rig: Rig, catalog: Catalog) -> None:
    at = rig.warehouse.location
    assert await commit(catalog) == (204, ""), "of nothing all is done"
    told = await commit(catalog, creating("new1", f"{at}/ns/n"), creating("new2", f"{at}/ns/n/inner"))
    assert told[0] == 400
    assert "table ns.new2: location" in told[1]
    assert "overlaps" in told[1]
    moved = [setting(**{"write.data.path": f"{at}/ns/n/data"})]
    told = await commit(catalog, creating("new1", f"{at}/ns/n"), change("a", *moved))
    assert (told[0], "table ns.a: write.data.path" in told[1]) == (400, True), told
    assert sorted(places(rig)) == ["ns.a", "ns.b"]
    told = await commit(
        catalog, creating("new1", f"{at}/ns/n1"), change("a"), creating("new2", f"{at}/ns/n2")
    )
    assert told == (204, "")
    assert sorted(places(rig)) == ["ns.a", "ns.b", "ns.new1", "ns.new2"]
    again = await commit(catalog, change("b"), creating("new1", f"{at}/ns/n3"))
    assert (again[0], "table ns.new1: Requirement failed: table already exists" in again[1]) == (409, True)
    assert "p" not in await properties(catalog, "b")


async def test_two_commits_over_the_same_tables_in_either_order(rig: Rig, catalog: Catalog) -> None:
    """What both only add to stays of both; of two that need it as it was one is refused, whole."""
    done = await asyncio.gather(
        *(
            commit(catalog, *(change(name, setting(**{f"p{number}": "x"})) for name in names))
            for number, names in enumerate(("ab", "ba", "ab"))
        )
    )
    assert done == [(204, "")] * 3
    for name in "ab":
        assert await properties(catalog, name) == {"p0": "x", "p1": "x", "p2": "x"}

    def adding(number: int) -> dict[str, Any]:
        schema = SCHEMA.model_dump(mode="json", by_alias=True)
        schema["fields"].append({"id": 3, "name": f"more{number}", "type": "long", "required": False})
        return {"action": "add-schema", "schema": schema, "last-column-id": 3}

    needs = [{"type": "assert-last-assigned-field-id", "last-assigned-field-id": 2}]
    done = await asyncio.gather(
        *(
            commit(
                catalog, *(change(name, adding(n), setting(won=str(n)), requirements=needs) for name in names)
            )
            for n, names in enumerate(("ab", "ba"))
        )
    )
    assert sorted(status for status, _ in done) == [204, 409]
    won = str([status for status, _ in done].index(204))
    assert [(await properties(catalog, name))["won"] for name in "ab"] == [won, won]


async def test_what_moved_on_is_looked_at_again_and_nothing_else(
    rig: Rig, catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table's own commit comes first: the other table's metadata file is stored once and used."""
    propose, stored = rig.replica.propose, await files(rig)

    async def late(message: Any, **more: Any) -> Any:
        if isinstance(message, CommitTables):
            monkeypatch.setattr(rig.replica, "propose", propose)
            body = {"requirements": [], "updates": [setting(q="between")]}
            assert (await ask(catalog, "POST", "/v1/namespaces/ns/tables/b", body))[0] == 200
        return await propose(message, **more)

    monkeypatch.setattr(rig.replica, "propose", late)
    assert await commit(catalog, change("a"), change("b")) == (204, "")
    assert await properties(catalog, "a") == {"p": "a"}
    assert await properties(catalog, "b") == {"p": "b", "q": "between"}
    folders = sorted(key.split("/")[2][0] for key in await files(rig) - stored)
    assert folders == ["a", "b", "b", "b"], "b's own, the one that came too late, and the next"


async def test_one_that_is_always_late_is_told_to_try_again(
    rig: Rig, catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    propose, count = rig.replica.propose, 0

    async def late(message: Any, **more: Any) -> Any:
        nonlocal count
        if isinstance(message, CommitTables):
            count += 1
            body = {"requirements": [], "updates": [setting(q=str(count))]}
            assert (await ask(catalog, "POST", "/v1/namespaces/ns/tables/b", body))[0] == 200
        return await propose(message, **more)

    monkeypatch.setattr(rig.replica, "propose", late)
    told = await commit(catalog, change("a"), change("b"))
    assert (told[0], count) == (409, 4)
    assert told[1].startswith("CommitFailedException: table ns.b is at ")
    assert await properties(catalog, "a") == {}


@pytest.mark.parametrize("lands", [True, False])
async def test_a_lost_answer_is_looked_for(
    rig: Rig, catalog: Catalog, monkeypatch: pytest.MonkeyPatch, *, lands: bool
) -> None:
    """Another commit to one of the tables has come since: that the other one moved tells all the same."""
    propose = rig.replica.propose

    async def doubtful(message: Any, **more: Any) -> Any:
        if not isinstance(message, CommitTables):
            return await propose(message, **more)
        if lands:
            await propose(message, **more)
        body = {"requirements": [], "updates": [setting(q="since")]}
        assert (await ask(catalog, "POST", "/v1/namespaces/ns/tables/a", body))[0] == 200
        raise OutcomeUnknown("nobody knows")

    with monkeypatch.context() as patch:
        patch.setattr(rig.replica, "propose", doubtful)
        status, words = await commit(catalog, change("a"), change("b"))
    if lands:
        assert (status, words) == (204, "")
    else:
        assert (status, words) == (504, "CommitStateUnknownException: tables ns.a, ns.b: nobody knows")
    assert ("p" in await properties(catalog, "a"), "p" in await properties(catalog, "b")) == (lands, lands)


async def test_without_the_log_nothing_is_changed(
    rig: Rig, catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = places(rig)

    async def away(message: Any, **_: Any) -> Any:
        raise Unavailable("away")

    monkeypatch.setattr(rig.replica, "propose", away)
    assert await commit(catalog, change("a"), change("b")) == (
        503,
        "ServiceUnavailableException: tables ns.a, ns.b: away",
    )
    assert places(rig) == before


async def test_a_topic_s_table_takes_what_it_takes_from_a_commit_of_its_own(
    rig: Rig, catalog: Catalog
) -> None:
    """A tag on what was read, with what was written of it; rows from outside are refused with all else."""
    await rig.create_topic()
    await rig.produce([b"1"])
    committer = rig.committer()
    assert await rig.drain(committer) == 1
    await rig.produce([b"2"])
    assert await rig.drain(committer) == 1
    _, loaded = await ask(catalog, "GET", "/v1/namespaces/floe/tables/t")
    read = loaded["metadata"]["current-snapshot-id"]
    tag = {"action": "set-snapshot-ref", "ref-name": "read", "type": "tag", "snapshot-id": read}
    assert await commit(catalog, change("a"), change("t", tag, namespace="floe")) == (204, "")
    await rig.produce([b"3"])
    assert await rig.drain(committer) == 1
    _, loaded = await ask(catalog, "GET", "/v1/namespaces/floe/tables/t")
    assert loaded["metadata"]["refs"]["read"]["snapshot-id"] == read
    assert await properties(catalog, "a") == {"p": "a"}
    before = places(rig)
    main = {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": read}
    told = await commit(catalog, change("b"), change("t", main, namespace="floe"))
    assert told[0] == 403
    assert "table floe.t: set-snapshot-ref refused: this table is written by Floe alone" in told[1]
    assert places(rig) == before
    await rig.assert_table_is_topic({0: [b"1", b"2", b"3"]})


async def test_metadata_in_memory_is_bounded(
    rig: Rig, catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = await files(rig)
    monkeypatch.setattr(rest_transaction, "METADATA_BYTES_MAX", 1_500)
    told = await commit(catalog, change("a"), change("b"))
    assert told[0] == 400
    assert "the metadata of 2 of the 2 tables has " in told[1]
    assert await files(rig) == stored
    assert (await commit(catalog, change("a")))[0] == 204


async def test_below_the_level_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An older agent would stop at the command."""
    monkeypatch.setattr(rigs, "FEATURE_LEVEL_MAX", 1)
    async with rigs.running(tmp_path) as rig:
        found, before = catalog_of(rig), rig.replica.state.revision
        told = await commit(found, change("a"))
        assert rig.replica.state.revision == before
    assert told == (
        400,
        "BadRequestException: a commit of several tables needs feature level 2: once no older agent runs, "
        "raise it",
    )
    assert "POST /v1/{prefix}/transactions/commit" in ENDPOINTS
