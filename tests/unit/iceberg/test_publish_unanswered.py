"""One entry, one namespace or one call that another catalog does not answer stops nothing else."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from iceberg.publish import publisher as publishing
from iceberg.publish.glue import GlueCatalog, GlueOptions
from iceberg.publish.other import CatalogAway, EntryUnanswered
from iceberg.publish.publisher import WHOLE
from iceberg.publish.rest import RestCatalog, RestOptions
from iceberg.publish.sql import SqlCatalog, SqlOptions, _bounds
from tests.equipment.glue import Glue, served
from tests.equipment.listening import listening
from tests.unit.iceberg import rig as rigs
from tests.unit.iceberg.publishing import database, location, look, publisher_of
from tests.unit.iceberg.rig import Rig

Told = tuple[int, str]
"""Status and type of an error."""


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    async with rigs.running(tmp_path) as found:
        yield found


async def committed(rig: Rig, *topics: str) -> None:
    for topic in topics:
        if topic not in rig.replica.state.topics:
            await rig.create_topic(topic)
        await rig.produce([b"x"], topic=topic)
        await rig.drain(rig.committer(topic))


@dataclass
class Rest:
    """As much of an Iceberg REST catalog as a publisher asks, by the specification. It has no `overwrite`.

    `refuse`: what to answer instead, by method and name of a table (empty: of the whole list).
    """

    tables: dict[str, str] = field(default_factory=dict)
    refuse: Callable[[str, str], Told | None] = lambda method, name: None

    async def config(self, request: Request) -> Response:
        return JSONResponse({"defaults": {}, "overrides": {}})

    async def named(self, request: Request) -> Response:
        return JSONResponse({"identifiers": [{"namespace": ["floe"], "name": name} for name in self.tables]})

    async def register(self, request: Request) -> Response:
        body = json.loads(await request.body())
        name, where = body["name"], body["metadata-location"]
        if body.get("overwrite"):
            return _error(406, "UnsupportedOperationException")
        if name in self.tables:
            return _error(409, "AlreadyExistsException")
        self.tables[name] = where
        return JSONResponse({"metadata-location": where, "metadata": {}})

    async def table(self, request: Request) -> Response:
        name = request.path_params["name"]
        told = self.refuse(request.method, name)
        if told is not None:
            return _error(*told)
        if name not in self.tables:
            return _error(404, "NoSuchTableException")
        if request.method == "DELETE":
            del self.tables[name]
            return Response(status_code=204)
        return JSONResponse({"metadata-location": self.tables[name], "metadata": {}})


def _error(status: int, kind: str) -> Response:
    return JSONResponse({"error": {"message": "so it is", "type": kind, "code": status}}, status)


@asynccontextmanager
async def serving(rest: Rest) -> AsyncIterator[RestCatalog]:
    space = "/v1/namespaces/floe"
    routes = [
        Route("/v1/config", rest.config),
        Route(f"{space}/tables", rest.named),
        Route(f"{space}/register", rest.register, methods=["POST"]),
        Route(space + "/tables/{name}", rest.table, methods=["GET", "DELETE"]),
    ]
    async with listening(routes) as url:
        yield RestCatalog(RestOptions(url))


async def test_an_entry_that_a_server_cannot_load_stops_no_other(rig: Rig) -> None:
    rest = Rest()
    async with serving(rest) as catalog:
        await committed(rig, "busy", "sick")
        publisher = publisher_of(rig, catalog)
        await look(publisher)
        assert set(rest.tables) == {"busy", "sick"}
        rest.refuse = lambda method, name: (500, "RuntimeException") if name == "sick" else None
        await committed(rig, "busy", "new", "sick")
        await look(publisher, 3)
        assert rest.tables["busy"] == location(rig, "busy")
        assert rest.tables["new"] == location(rig, "new")
        assert list(publisher.failures) == ["table floe.sick"]
        rest.refuse = lambda method, name: None
        await look(publisher, 2)
        assert rest.tables["sick"] == location(rig, "sick")
        assert not publisher.failures
        await publisher.stop()


async def test_a_server_that_fails_for_all_is_away(rig: Rig) -> None:
    """Nobody asks such a server for five hundred tables in each pass."""
    asked: list[str] = []

    def refuse(method: str, name: str) -> Told:
        asked.append(name)
        return (500, "RuntimeException")

    async with serving(Rest(refuse=refuse)) as catalog:
        await committed(rig, *(f"t{number}" for number in range(8)))
        publisher = publisher_of(rig, catalog, requests_in_flight_max=1, retry_s=1000.0, retry_s_max=1000.0)
        await look(publisher, 3)
        assert len(asked) == publishing.STORE_FAILURES_MAX
        assert "500" in publisher.failures[WHOLE].error
        await publisher.stop()


async def test_an_entry_whose_metadata_is_gone_is_told_with_what_to_do(rig: Rig) -> None:
    rest = Rest()
    async with serving(rest) as catalog:
        await committed(rig, "stood")
        publisher = publisher_of(rig, catalog)
        await look(publisher)
        rest.refuse = lambda method, name: (404, "NotFoundException") if method == "GET" else None
        await committed(rig, "stood")
        await look(publisher, 2)
        error = publisher.failures["table floe.stood"].error
        assert "the metadata that it points to is gone" in error
        assert "drop the entry in that catalog" in error
        rest.refuse = lambda method, name: None
        rest.tables.clear()  # somebody did
        await look(publisher, 2)
        assert rest.tables == {"stood": location(rig, "stood")}
        assert not publisher.failures
        await publisher.stop()


class Denying(Glue):
    """Lake Formation: one table, or one database, is not for these keys."""

    denied = ""

    async def answer(self, request: Request) -> Response:
        body = json.loads(await request.body())
        names = (body.get("Name"), body.get("DatabaseName"), body.get("TableInput", {}).get("Name"))
        if self.denied in names:
            return JSONResponse({"__type": "AccessDeniedException", "Message": "not authorized"}, 400)
        return await super().answer(request)


def glue_client(url: str) -> GlueCatalog:
    return GlueCatalog(GlueOptions("eu-central-1", endpoint=url, access_key="A", secret_key="secret"))


async def test_a_table_that_glue_denies_stops_no_other(rig: Rig) -> None:
    glue = Denying()
    glue.denied = "b"
    async with served(glue) as url:
        await committed(rig, "a", "b", "z")
        publisher = publisher_of(rig, glue_client(url))
        await look(publisher, 2)
        assert set(glue.databases["floe"]) == {"a", "z"}
        assert list(publisher.failures) == ["table floe.b"]
        assert "IAM and Lake Formation" in publisher.failures["table floe.b"].error
        await publisher.stop()


async def test_a_namespace_that_is_denied_stops_no_other(rig: Rig) -> None:
    glue = Denying()
    glue.denied = "secret"
    async with served(glue) as url:
        await rig.create_topic("hidden", floe__table__name="secret.hidden")
        await committed(rig, "a", "hidden")
        publisher = publisher_of(rig, glue_client(url))
        await look(publisher, 2)
        assert set(glue.databases["floe"]) == {"a"}
        assert list(publisher.failures) == ["namespace secret"]
        (hidden,) = [each for each in publisher.seen.wanted.values() if each.topic == "hidden"]
        assert "AccessDenied" in publisher.error_of(hidden)
        glue.denied = ""
        await look(publisher, 2)
        assert not publisher.failures
        assert set(glue.databases["secret"]) == {"hidden"}
        await publisher.stop()


class Silent(SqlCatalog):
    """A driver without a bound of its own, before a database that says nothing (`silent`)."""

    def __init__(self, options: SqlOptions) -> None:
        super().__init__(options)
        self.call_s_max = 0.05
        self.silent, self.over = True, threading.Event()

    def names(self, namespace: str) -> Mapping[str, str | None]:
        if self.silent:
            self.over.wait()
        return super().names(namespace)


@pytest.fixture
def silent(tmp_path: Path) -> Iterator[Silent]:
    """Its threads end with the test, however that ends."""
    catalog = Silent(SqlOptions(database(tmp_path), "lake"))
    yield catalog
    catalog.over.set()


async def test_a_database_that_says_nothing_is_away_and_the_publisher_can_be_stopped(
    rig: Rig, silent: Silent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publishing, "STUCK_MAX", 2)
    await committed(rig, "t")
    publisher = publisher_of(rig, silent)
    await look(publisher, 4)
    assert publisher.late()["t"] > 0
    assert publisher.failures[WHOLE].count == 4
    assert "2 requests to it do not end" in publisher.failures[WHOLE].error
    silent.silent, silent.call_s_max = False, 30.0
    silent.over.set()
    while not all(each.done() for each in publisher._stuck):
        await asyncio.to_thread(next(iter(publisher._stuck)).result)
    await look(publisher)
    assert not publisher.failures
    assert publisher.late() == {"t": 0.0}
    silent.silent, silent.call_s_max = True, 0.05
    silent.over.clear()
    await look(publisher)
    await publisher.stop()  # though that one has not ended


async def test_a_lock_on_one_row_is_the_entrys_and_no_connection_is_the_catalogs(tmp_path: Path) -> None:
    """SQLite's lock is of the whole database: what differs is whether a connection was there."""
    catalog = SqlCatalog(SqlOptions(database(tmp_path), "lake", timeout_s=0.01))
    assert catalog.names("floe") == {}
    holder = sqlite3.connect(tmp_path / "catalog.db", isolation_level=None)
    holder.execute("BEGIN EXCLUSIVE")
    with pytest.raises(EntryUnanswered, match="locked"):
        catalog.names("floe")
    holder.close()
    catalog.close()
    nowhere = SqlCatalog(SqlOptions(database(tmp_path / "nowhere"), "lake"))
    with pytest.raises(CatalogAway, match="not reached"):
        nowhere.names("floe")


@pytest.mark.parametrize(
    ("backend", "driver", "wanted"),
    [
        ("sqlite", "pysqlite", {"timeout"}),
        ("postgresql", "psycopg", {"connect_timeout", "options", "tcp_user_timeout", "keepalives_idle"}),
        ("postgresql", "pg8000", {"timeout"}),
        ("mysql", "pymysql", {"connect_timeout", "read_timeout", "write_timeout"}),
        ("mariadb", "mariadbconnector", {"connect_timeout", "read_timeout", "write_timeout"}),
        ("mysql", "mysqlconnector", {"connect_timeout"}),
        ("oracle", "oracledb", set()),
    ],
)
def test_each_driver_is_told_how_long_to_wait(backend: str, driver: str, wanted: set[str]) -> None:
    assert wanted <= set(_bounds(backend, driver, 5.0))
    assert set(_bounds(backend, driver, 5.0)) <= wanted | {"keepalives_interval", "keepalives_count"}
