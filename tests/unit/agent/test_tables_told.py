"""What is wrong with a topic's table is seen at /metrics and /status of a whole agent, fault by fault."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.rest import RestCatalog

from agent.app import App
from coordination.clock import SystemClock
from coordination.commands import AlterTopicConfigs, BindSchema, CommitTable, DropTable, PutNamespace, command
from coordination.memory_log import MemoryLog
from coordination.memory_server import MemoryServer
from coordination.state.types import Done
from iceberg import audited, lag
from iceberg.service import CommitterService
from tests.unit.agent.rig import batch
from tests.unit.agent.test_app import config, connect, http, produce, topic
from tests.unit.iceberg.test_tables_bindings import ALIKE
from tests.unit.schema import samples


def made(folder: Path, server: MemoryServer) -> App:
    """An agent that compacts and commits often."""
    settings = config(
        "a", store={"url": f"file://{folder}/store"}, tables={"interval_ms": 100, "compacted_at_files": 2}
    )
    return App(settings, log=MemoryLog(server, SystemClock(), timeout_s=0.2))


@asynccontextmanager
async def running(folder: Path, server: MemoryServer) -> AsyncIterator[App]:
    """Such an agent, until it is stopped."""
    found = made(folder, server)
    async with asyncio.timeout(20):
        await found.start()
    yield found
    await found.stop()


@pytest.fixture
async def app(tmp_path: Path, often: None) -> AsyncIterator[App]:
    """An agent that looks at its tables often."""
    async with running(tmp_path, MemoryServer()) as found:
        yield found


@pytest.fixture
async def often(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Agents look often, and there is a folder for their store."""
    monkeypatch.setattr(lag, "LOOK_S", 0.05)
    monkeypatch.setattr(audited, "LOOK_S", 0.05)
    await asyncio.to_thread((tmp_path / "store").mkdir)


async def write(app: App, value: bytes = b"x") -> None:
    """Produce a record to topic t."""
    wire = await connect(app)
    answer = await produce(wire, batch(value, timestamp=SystemClock().now_ms()))  # else retention takes it
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
    await shown(app, "table_snapshots", lambda value: value == 1)
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


WIDE = "syntax = 'proto3'; message M { " + " ".join(f"int32 f{n} = {n};" for n in range(1, 2_101)) + " }"


@pytest.mark.parametrize(
    ("source", "message", "words"),
    [(ALIKE, "p.M", "is decoded slowly"), (WIDE.encode(), "M", "has no columns")],
    ids=["the native decoder panics", "too many columns"],
)
async def test_a_message_that_a_table_takes_with_a_problem(
    app: App, source: bytes, message: str, words: str
) -> None:
    """Its records are in the table all the same."""
    await topic(app)
    bound = BindSchema(topic="t", descriptor_set=samples.descriptor_set(source), message=message)
    assert isinstance(await app.replica.propose(bound), Done)
    await write(app, b"")
    await shown(app, "table_problems", lambda value: value == 1)
    known = await row(app, "tables", lambda row: bool(row["problems"]) and row["records_behind"] == 0)
    assert words in known["problems"][0]
    assert known["last_error"] == ""


def damaged(folder: Path, pattern: str) -> None:
    """A byte in the middle of each such file below the store is another one."""
    found = list((folder / "store").rglob(pattern))
    assert found
    for path in found:
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.write_bytes(content)


async def test_a_data_file_that_cannot_be_compacted(app: App, tmp_path: Path) -> None:
    await topic(app)
    await write(app)
    await shown(app, "table_files", lambda value: value == 1)
    await asyncio.to_thread(damaged, tmp_path, "*.parquet")
    await write(app)
    await shown(app, "table_problems", lambda value: value == 1)
    known = await row(app, "tables", lambda row: bool(row["problems"]))
    assert "files stay small: " in known["problems"][0]
    await shown(app, "table_rows_behind", lambda value: value == 0)


@pytest.mark.parametrize(
    ("pattern", "behind"), [("*.metadata.json", True), ("*-m*.avro", False), ("*-snap.*.avro", True)]
)
async def test_what_a_table_is_built_upon_is_damaged(
    tmp_path: Path, often: None, pattern: str, behind: bool
) -> None:
    """By an agent that has just started: compaction fails, and where no commit is possible it is behind."""
    server = MemoryServer()
    async with running(tmp_path, server) as app:
        await topic(app)
        await write(app)
        await shown(app, "table_files", lambda value: value == 1)
    await asyncio.to_thread(damaged, tmp_path, pattern)
    async with running(tmp_path, server) as app:
        await write(app)
        await shown(app, "job_failing_since_seconds", lambda value: value > 0, 'name="table of t"')
        await shown(app, "table_rows_behind", lambda value: value == int(behind))
        known = await row(app, "tables", lambda row: bool(row["last_error"]))
        assert "damaged" in known["last_error"].lower()
        assert known["failing_since"]


async def test_records_that_are_damaged_before_they_are_in_the_table(
    tmp_path: Path, often: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = MemoryServer()
    with monkeypatch.context() as patched:
        patched.setattr(CommitterService, "_start_due", lambda *_: None)
        async with running(tmp_path, server) as app:
            await topic(app)
            await write(app, b"x" * 1_000)
    await asyncio.to_thread(damaged, tmp_path, "*.chunk")
    async with running(tmp_path, server) as app:
        await shown(app, "job_failing_since_seconds", lambda value: value > 0, 'name="table of t"')
        await shown(app, "table_rows_behind", lambda value: value == 1)
        await row(app, "tables", lambda row: bool(row["last_error"]))


async def test_what_audits_found_is_told(app: App) -> None:
    """As the audit writes it: of its snapshot in the catalog's table of audits."""
    await topic(app)
    await write(app)
    await row(app, "tables", lambda row: row["audit_findings"] is None and row["records_behind"] == 0)
    own = app.replica.state.topics["t"].topic_id.hex()
    rows = pa.table({"topic": pa.array(["t"])})

    def keep(findings: int) -> None:
        catalog = RestCatalog("c", uri=f"http://127.0.0.1:{app.http_port}/iceberg")
        catalog.create_namespace_if_not_exists(audited.TABLE[0])
        table = catalog.create_table_if_not_exists(audited.TABLE, rows.schema)
        said = {audited.TOPIC_ID: own, audited.FINDINGS: str(findings), audited.OFFSETS: "0:1"}
        table.append(rows, snapshot_properties=said)

    await asyncio.to_thread(keep, 0)
    await shown(app, "audit_last_equal_seconds", lambda value: value > 0)
    await shown(app, "audit_findings", lambda value: value == 0)
    await shown(app, "audit_records_behind", lambda value: value == 0)
    await write(app)
    await shown(app, "audit_records_behind", lambda value: value == 1)
    await asyncio.to_thread(keep, 3)
    await shown(app, "audit_findings", lambda value: value == 3)
    known = await row(app, "tables", lambda row: row["audit_findings"] == 3)
    assert known["audited_equal"].endswith("+00:00")
    assert known["records_not_audited"] == 1
