"""What is wrong with a topic's table is seen at /metrics and /status of a whole agent, fault by fault."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from agent.app import App
from coordination.clock import SystemClock
from coordination.commands import AlterTopicConfigs, CommitTable, DropTable, PutNamespace, command
from coordination.memory_log import MemoryLog
from coordination.memory_server import MemoryServer
from coordination.state.types import Done
from iceberg import lag
from iceberg.service import CommitterService
from tests.unit.agent.rig import batch
from tests.unit.agent.test_app import config, connect, http, produce, topic


@pytest.fixture
async def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[App]:
    """An agent that looks at its tables often."""
    monkeypatch.setattr(lag, "LOOK_S", 0.05)
    await asyncio.to_thread((tmp_path / "store").mkdir)
    settings = config(
        "a", store={"url": f"file://{tmp_path}/store"}, tables={"interval_ms": 100, "compacted_at_files": 2}
    )
    made = App(settings, log=MemoryLog(MemoryServer(), SystemClock(), timeout_s=0.2))
    async with asyncio.timeout(20):
        await made.start()
    yield made
    await made.stop()


async def write(app: App) -> None:
    """Produce a record to topic t."""
    wire = await connect(app)
    answer = await produce(wire, batch(b"x"))
    assert answer.error_code == 0
    await wire.close()


async def shown(app: App, metric: str, holds: Callable[[float], bool], name: str = 'topic="t"') -> None:
    """Wait until /metrics says so; the test's own timeout bounds it."""
    while True:
        text = (await http(app, "/metrics")).text
        found = re.search(rf"^floe_{metric}\{{{re.escape(name)}\}} (\S+)$", text, re.MULTILINE)
        if found is not None and holds(float(found[1])):
            return
        await asyncio.sleep(0.02)


async def row(app: App, kind: str, holds: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """Wait until /status has such a row."""
    while True:
        rows = (await http(app, "/status.json")).json()[kind]
        found = next((each for each in rows if each["topic"] == "t" and holds(each)), None)
        if found is not None:
            return dict(found)
        await asyncio.sleep(0.02)


async def taken(app: App, name: str) -> None:
    """A table of somebody else's."""
    await app.replica.propose(PutNamespace(name="floe"))
    made = CommitTable(namespace="floe", name=name, metadata_location=f"theirs/{name}/metadata/0.json")
    assert isinstance(await app.replica.propose(made), Done)


async def test_a_table_that_is_well(app: App) -> None:
    await topic(app)
    await write(app)
    known = await row(app, "tables", lambda row: bool(row["files"]) and row["seconds_behind"] == 0)
    assert (known["files"], known["snapshots"], known["records_behind"]) == (1, 1, 0)
    assert known["bytes"] > 0
    assert known["committed_by"] == "a"
    assert known["last_commit"].endswith("+00:00")
    assert (known["last_error"], known["failing_since"], known["problems"]) == ("", "", [])
    await shown(app, "table_rows_behind", lambda value: value == 0)
    await shown(app, "table_seconds_behind", lambda value: value == 0)
    assert "floe_table_problems{" not in (await http(app, "/metrics")).text


async def test_files_bytes_and_the_last_compaction_are_told(app: App) -> None:
    await topic(app)
    await write(app)
    await shown(app, "table_files", lambda value: value == 1)
    await shown(app, "table_bytes", lambda value: value > 0)
    assert "floe_table_last_compaction_seconds{" not in (await http(app, "/metrics")).text
    await write(app)
    known = await row(app, "tables", lambda row: row["last_compaction"] is not None)
    assert known["last_compaction"].endswith("+00:00")
    assert (known["files"], known["files_compacted"], known["records_behind"]) == (1, 2, 0)
    assert known["bytes_compacted"] == known["bytes"] > 0
    await shown(app, "table_last_compaction_seconds", lambda value: value > 0)
    await shown(app, "table_files", lambda value: value == 1)
    await shown(app, "table_bytes", lambda value: value == known["bytes"])


async def test_a_table_that_nobody_makes_is_behind(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    """No agent does the work: there is no claim, no error and no failing job, and it rings all the same."""
    monkeypatch.setattr(CommitterService, "_start_due", lambda *_: None)
    await topic(app)
    await write(app)
    await write(app)
    await shown(app, "table_rows_behind", lambda value: value == 2)
    await shown(app, "table_seconds_behind", lambda value: value > 0)
    known = await row(app, "tables_not_made", lambda row: row["records_behind"] == 2)
    assert known["table"] == "floe.t"
    assert known["committed_by"] == ""


async def test_a_table_that_stands_still_is_behind(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    await topic(app)
    await write(app)
    await shown(app, "table_rows_behind", lambda value: value == 0)
    monkeypatch.setattr(CommitterService, "_start_due", lambda *_: None)
    await write(app)
    await shown(app, "table_rows_behind", lambda value: value == 1)
    await shown(app, "table_seconds_behind", lambda value: value > 0)
    monkeypatch.undo()
    await shown(app, "table_seconds_behind", lambda value: value == 0)


async def test_a_table_that_fails_to_come_into_being_is_told_with_its_error(app: App) -> None:
    await taken(app, "t")
    await topic(app)
    await write(app)
    await shown(app, "job_failing_since_seconds", lambda value: value > 0, 'name="table of t"')
    await shown(app, "table_rows_behind", lambda value: value == 1)
    known = await row(app, "tables_not_made", lambda row: bool(row["last_error"]))
    assert "theirs/t/metadata" in known["last_error"]
    assert known["failing_since"].endswith("+00:00")
    assert isinstance(await app.replica.propose(DropTable(namespace="floe", name="t")), Done)
    well = await row(app, "tables", lambda row: row["records_behind"] == 0)
    assert (well["last_error"], well["failing_since"]) == ("", "")


async def test_a_table_with_a_problem_goes_on_and_is_told(app: App) -> None:
    """Its new name was taken before it had it."""
    await topic(app)
    await write(app)
    await row(app, "tables", lambda row: row["records_behind"] == 0)
    change = AlterTopicConfigs.Change(name="floe.table.name", value="theirs")
    both = await app.replica.submit(
        [
            command(AlterTopicConfigs(topic="t", changes=[change])),
            command(CommitTable(namespace="floe", name="theirs", metadata_location="theirs/metadata/0.json")),
        ]
    )
    assert all(isinstance(each, Done) for each in both), both
    await write(app)
    await shown(app, "table_problems", lambda value: value == 1)
    known = await row(app, "tables", lambda row: bool(row["problems"]) and row["records_behind"] == 0)
    assert known["table"] == "floe.t"
    assert "not renamed to floe.theirs" in known["problems"][0]
    assert known["last_error"] == ""
