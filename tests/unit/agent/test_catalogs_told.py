"""Other catalogs of a whole agent: one that is there and one that is not, at /metrics, /status and floe."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from agent.app import App
from agent.cli.app import app as floe
from agent.config import ConfigError, load
from coordination.clock import SystemClock
from coordination.memory_log import MemoryLog
from coordination.memory_server import MemoryServer
from tests.unit.agent.test_app import config, http, topic
from tests.unit.agent.test_tables_told import shown, write
from tests.unit.iceberg.rig import until


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[App]:
    """An agent with a catalog that works and one that nobody answers for."""
    await asyncio.to_thread((tmp_path / "store").mkdir)
    there = {"name": "there", "type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "interval_ms": 100}
    away = {
        "name": "away",
        "type": "rest",
        "uri": "http://127.0.0.1:9",
        "interval_ms": 100,
        "token": "s3cret",
    }
    settings = config(
        "a",
        store={"url": f"file://{tmp_path}/store"},
        tables={"interval_ms": 100},
        catalogs=[there, away],
    )
    made = App(settings, log=MemoryLog(MemoryServer(), SystemClock(), timeout_s=0.2))
    async with asyncio.timeout(20):
        await made.start()
    yield made
    await made.stop()


def locations(folder: Path) -> list[str]:
    with sqlite3.connect(folder / "catalog.db") as connection:
        found = [where for (where,) in connection.execute("SELECT metadata_location FROM iceberg_tables")]
    connection.close()
    return found


async def status(app: App) -> dict[str, Any]:
    found: dict[str, Any] = (await http(app, "/status.json")).json()
    return found


async def test_one_catalog_is_served_and_the_others_owner_is_told(app: App, tmp_path: Path) -> None:
    await topic(app)
    await write(app)
    await shown(app, "table_publish_seconds_behind", lambda found: found == 0, 'catalog="there",topic="t"')
    await shown(app, "table_publish_seconds_behind", lambda found: found > 0, 'catalog="away",topic="t"')
    await shown(app, "table_publish_moved_total", lambda found: found >= 1, 'catalog="there"')
    await shown(app, "table_publish_failed_total", lambda found: found >= 1, 'catalog="away"')
    await until(lambda: locations(tmp_path) == [app.replica.state.tables["floe", "t"].metadata_location])
    await shown(app, "table_publish_seconds_behind", lambda found: found == 0, 'catalog="there",topic="t"')

    found = await status(app)
    there, away = found["catalogs"]
    assert (there["catalog"], there["published_by"], there["tables"], there["tables_behind"]) == (
        "there",
        "a",
        1,
        0,
    )
    assert "is not reached" in away["last_error"]
    assert away["failing_for_s"] is not None
    (table,) = found["tables"]
    assert [each["error"] == "" for each in table["published"]] == [True, False]
    assert table["last_error"] == ""  # commits do not know of it
    (job,) = found["failing_jobs"]
    assert job["job"] == "publish/away: the catalog"
    assert "s3cret" not in str(found)

    listed = await asyncio.to_thread(
        CliRunner().invoke,
        floe,
        ["table", "list", "--http", f"http://127.0.0.1:{app.http_port}"],
        env={"COLUMNS": "900"},
    )
    assert "there: up to date; away: CatalogAway" in " ".join(listed.output.split())


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"type": "rest"}, "catalogs.0.uri is not set, and a catalog of type rest needs it"),
        ({"type": "glue"}, "catalogs.0.region is not set, and a catalog of type glue needs it"),
        ({"type": "rest", "uri": "ftp://x"}, "catalogs.0.uri 'ftp://x' must begin with http:// or https://"),
        ({"type": "sql", "uri": "postgresql://me:pw@host/db"}, "must not hold a user or password"),
        (
            {"type": "sql", "uri": "sqlite:////x", "token": "s"},
            "catalogs.0.token is not for a catalog of type sql",
        ),
        ({"type": "rest", "uri": "http://x", "token": "s", "credential": "a:b"}, "are both set; remove one"),
        (
            {"type": "glue", "region": "x", "access_key": "a"},
            "access_key and catalogs.0.secret_key go together",
        ),
        ({"type": "hive", "uri": "x"}, "catalogs.0.type: input should be 'rest', 'sql' or 'glue'"),
        (
            {"type": "rest", "uri": "http://x", "namespace": "{n}"},
            "catalogs.0.namespace: string should match",
        ),
    ],
)
def test_what_contradicts_itself_is_refused(given: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        load(environment=variables({"name": "lake", **given}))
    assert message in str(refused.value)
    assert "pw" not in str(refused.value)


def test_two_of_a_name_or_a_place_are_refused() -> None:
    one = {"name": "lake", "type": "rest", "uri": "http://x"}
    with pytest.raises(ConfigError, match="'lake' is used twice"):
        load(environment=variables(one, one))
    with pytest.raises(ConfigError, match="publishes there too"):
        load(environment=variables(one, {**one, "name": "other"}))
    with pytest.raises(ConfigError, match="there is nothing to publish"):
        load(environment={**variables(one), "FLOE_TABLES__ENABLED": "false"})
    found = load(environment=variables(one, {**one, "name": "other", "namespace": "b"}))
    assert [each.name for each in found.config.catalogs] == ["lake", "other"]


def variables(*catalogs: dict[str, str]) -> dict[str, str]:
    """The settings as an environment."""
    found = {"FLOE_LOG__URL": "memory:", "FLOE_STORE__URL": "file:///x"}
    for number, each in enumerate(catalogs):
        found.update({f"FLOE_CATALOGS__{number}__{name.upper()}": value for name, value in each.items()})
    return found
