"""How a topic's `__latest` table is, is seen at /metrics and /status of a whole agent, fault by fault."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from agent.app import App
from coordination.clock import SystemClock
from coordination.commands import AlterTopicConfigs, CommitTable, DropTable, command
from coordination.memory_server import MemoryServer
from coordination.state.types import Done
from iceberg import lag
from iceberg.upsert.service import UpsertService
from objectstore.batch import NewRecord, build
from tests.unit.agent.test_app import connect, http, produce, topic
from tests.unit.agent.test_tables_told import damaged, row, running, shown, taken

NAME = "floe.t__latest"
Found = dict[str, Any]


@pytest.fixture
async def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[App]:
    """An agent that looks at its tables often."""
    monkeypatch.setattr(lag, "LOOK_S", 0.05)
    await asyncio.to_thread((tmp_path / "store").mkdir)
    async with running(tmp_path, MemoryServer()) as found:
        yield found


def config(name: str, value: str) -> AlterTopicConfigs:
    """A config of topic t."""
    change = AlterTopicConfigs.Change(name=name, value=value, operation=AlterTopicConfigs.Change.SET)
    return AlterTopicConfigs(topic="t", changes=[change])


async def upsert_topic(app: App) -> None:
    """Topic t, of which there shall be a latest table."""
    await topic(app)
    assert isinstance(await app.replica.propose(config("floe.table.mode", "upsert")), Done)


async def write(app: App, *keys: bytes | None) -> None:
    """A record of each key."""
    wire = await connect(app)
    now_ms = SystemClock().now_ms()  # else retention takes it
    answer = await produce(wire, build([NewRecord(now_ms, key, b"x") for key in keys]))
    assert answer.error_code == 0
    await wire.close()


async def latest(app: App, records_behind: int, kind: str = "tables") -> Found:
    """What /status says of the latest table once it is so far behind."""
    return await row(app, kind, lambda row: row["table"] == NAME and row["records_behind"] == records_behind)


def at_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody keeps latest tables."""
    monkeypatch.setattr(UpsertService, "_is_due", lambda *_: False)


async def test_a_latest_table_that_is_well(app: App) -> None:
    await upsert_topic(app)
    await write(app, b"a", b"b", b"a")
    await latest(app, 0)
    known = await row(app, "tables", lambda row: row["table"] == NAME and row["seconds_behind"] == 0)
    assert (known["latest"], known["committed_by"], known["files"], known["snapshots"]) == (True, "a", 1, 1)
    assert known["bytes"] > 0
    assert known["last_commit"].endswith("+00:00")
    assert (known["last_error"], known["failing_since"], known["problems"]) == ("", "", [])
    await shown(app, "latest_rows_behind", lambda value: value == 0)
    await shown(app, "latest_seconds_behind", lambda value: value == 0)
    await shown(app, "latest_files", lambda value: value == 1)
    await shown(app, "latest_bytes", lambda value: value == known["bytes"])
    await shown(app, "latest_snapshots", lambda value: value == 1)
    assert "floe_latest_problems{" not in (await http(app, "/metrics")).text


async def test_topics_without_one_are_not_told_of(app: App) -> None:
    await topic(app)
    await write(app, b"a")
    await shown(app, "table_rows_behind", lambda value: value == 0)
    text = (await http(app, "/metrics")).text
    assert "floe_latest_rows_behind{" not in text
    assert NAME not in (await http(app, "/status.json")).text


async def test_one_that_nobody_makes_and_one_that_stands_still_are_behind(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By what the log says: there is no claim, no error and no failing job, and it rings all the same."""
    with monkeypatch.context() as patched:
        at_rest(patched)
        await upsert_topic(app)
        await write(app, b"a", b"b")
        await shown(app, "latest_rows_behind", lambda value: value == 2)
        await shown(app, "latest_seconds_behind", lambda value: value > 0)
        known = await latest(app, 2, "tables_not_made")
        assert (known["latest"], known["committed_by"]) == (True, "")
    await latest(app, 0)
    with monkeypatch.context() as patched:
        at_rest(patched)
        await write(app, b"a")
        await shown(app, "latest_rows_behind", lambda value: value == 1)
        await shown(app, "latest_seconds_behind", lambda value: value > 0)
        await shown(app, "table_rows_behind", lambda value: value == 0)
        await latest(app, 1)
    await shown(app, "latest_seconds_behind", lambda value: value == 0)


async def test_one_whose_name_is_anothers_is_told_with_its_error(app: App) -> None:
    await taken(app, "t__latest")
    await upsert_topic(app)
    await write(app, b"a")
    await shown(app, "job_failing_since_seconds", lambda value: value > 0, 'name="latest table of t"')
    known = await row(app, "tables_not_made", lambda row: row["latest"] and bool(row["last_error"]))
    assert "t__latest" in known["last_error"]
    assert known["failing_since"].endswith("+00:00")
    await shown(app, "latest_rows_behind", lambda value: value == 1)
    assert isinstance(await app.replica.propose(DropTable(namespace="floe", name="t__latest")), Done)
    well = await latest(app, 0)
    assert (well["last_error"], well["failing_since"]) == ("", "")


async def test_files_that_are_damaged_stop_it_and_are_told_with_since_when(app: App, tmp_path: Path) -> None:
    """It never builds upon what is not what it stored; the topic's own table goes on."""
    await upsert_topic(app)
    await write(app, b"a")
    await latest(app, 0)
    await asyncio.to_thread(damaged, tmp_path, "*t__latest*/data/**/*.parquet")
    await write(app, b"a")
    await shown(app, "job_failing_since_seconds", lambda value: value > 0, 'name="latest table of t"')
    known = await row(app, "tables", lambda row: row["table"] == NAME and bool(row["last_error"]))
    assert known["failing_since"]
    assert known["records_behind"] == 1
    await shown(app, "table_rows_behind", lambda value: value == 0)


async def test_problems_with_which_it_goes_on(app: App) -> None:
    """Records without a key, and a new name that is taken before it had it."""
    await upsert_topic(app)
    await write(app, b"a", None)
    await shown(app, "latest_problems", lambda value: value == 1)
    known = await latest(app, 0)
    assert known["problems"] == ["records without a key were passed over by this agent: 1; give each a key"]
    theirs = CommitTable(namespace="floe", name="new__latest", metadata_location="theirs/metadata/0.json")
    both = [command(config("floe.table.name", "new")), command(theirs)]
    assert all(isinstance(each, Done) for each in await app.replica.submit(both))
    await write(app, b"a")
    await shown(app, "latest_problems", lambda value: value == 2)
    known = await latest(app, 0)
    assert "not renamed to floe.new__latest" in known["problems"][0]
    assert known["last_error"] == ""
