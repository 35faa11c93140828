"""A table in the console: snapshots, files, columns and rows as they are in the bucket, for whom they are."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from agent.http.console import table, values
from coordination.commands import AlterTopicConfigs, BindSchema
from coordination.state.acl_types import Operation, ResourceType
from coordination.state.types import Done
from iceberg.committer import CommitterOptions
from iceberg.metadata import Retention
from schema.compiler import compile_protos
from tests.unit.agent.http.conftest import Edge, connect
from tests.unit.agent.http.console_rig import Page, by, console, let, page, table_of
from tests.unit.agent.kafka.test_handlers_produce_fetch import produce
from tests.unit.agent.rig import Agent, batch

PATH = "/console/table?name=floe.t"
ROWS = f"{PATH}&rows=1"
TOPIC = ResourceType.TOPIC


@pytest.fixture
async def both(tmp_path: Path) -> AsyncIterator[tuple[Edge, Agent]]:
    """A topic `t` of one partition; ACLs are not asked."""
    async with console(tmp_path) as made:
        await made[0].topic("t")
        yield made


async def bind(edge: Edge, fields: str, **configs: str) -> None:
    files = compile_protos({"o.proto": f'syntax = "proto3"; message O {{ {fields} }}'.encode()})
    message = BindSchema(topic="t", descriptor_set=files, message="O", role=BindSchema.VALUE, tombstones=True)
    assert isinstance(await edge.replica.propose(message), Done)
    changes = AlterTopicConfigs(topic="t")
    for name, value in configs.items():
        changes.changes.add(name=name.replace("_", "."), value=value)
    assert isinstance(await edge.replica.propose(changes), Done)


async def write(edge: Edge, agent: Agent, *batches: bytes, options: CommitterOptions | None = None) -> None:
    """Each a commit of its own."""
    committer = table_of(edge, "t", options)
    for each in batches:
        assert (await produce(agent, each)).error_code == 0
        assert await committer.run_once() is not None


def following(shown: Page) -> str:
    return next((str(a["href"]) for t, a in shown.elements if t == "a" and a.get("rel") == "next"), "")


async def test_what_a_table_is_and_what_is_in_it(both: tuple[Edge, Agent]) -> None:
    edge, agent = both
    await bind(edge, "uint64 id = 1;")
    await write(edge, agent, batch(b"\x08\x07"), batch(b"\x08\x08", b"\x08\x09"))
    await bind(edge, "uint64 id = 1; string who = 2;")
    await write(edge, agent, batch(b"\x08\x0a\x12\x03ann"))
    async with by(edge, "root") as client:
        assert "/console/table?name=floe.t" in (await page(client, "/console/tables")).links
        shown = await page(client, PATH)
        assert shown.facts["Rows"] == "4"
        assert shown.facts["Data files"] == "3"
        assert shown.facts["Records behind"] == "0"
        assert "Snapshots (3)" in shown.said
        assert "0:1-3" in shown.said, "what the second commit added"
        assert "new: value.who" in shown.said
        assert "kafka.offset" in shown.said
        assert "append" in shown.said
        assert shown.said.count(".parquet") == 3
        assert "<b>" not in shown.said
        rows = await page(client, ROWS)
        assert "ann" in rows.said
        assert '"id": "10"' in rows.said
        for wrong in ("floe.none", "none", ""):
            assert "not exist" in (await page(client, "/console/table", 404, name=wrong)).said


async def test_snapshots_are_paged_over_the_files_of_history(
    both: tuple[Edge, Agent], monkeypatch: pytest.MonkeyPatch
) -> None:
    edge, agent = both
    monkeypatch.setattr(table, "SNAPSHOTS", 3)
    options = CommitterOptions(retention=Retention(snapshots=4))
    await write(edge, agent, *[batch(b"v%d" % number) for number in range(14)], options=options)
    seen: list[str] = []
    ids: list[str] = []
    async with by(edge, "root") as client:
        path = PATH
        while path:
            shown = await page(client, path)
            assert "Snapshots (14)" in shown.said
            seen += [each for each in shown.words if each.startswith("0:")]
            ids += [each for each in shown.words if each.isdigit() and len(each) > 15]
            path = following(shown)
    assert seen == [f"0:{number}-{number + 1}" for number in reversed(range(1, 14))]
    assert len(set(ids)) == len(ids) == 14, "the base, too, which tells no offsets"
    location = edge.replica.state.tables["floe", "t"].metadata_location
    assert "floe.history" in (await edge.store.get(location.removeprefix("memory:/"))).decode()


async def test_what_is_too_large_is_told(both: tuple[Edge, Agent]) -> None:
    edge, agent = both
    await write(edge, agent, *[batch(b"x" * 100_000) for _ in range(2)])
    for change, path, said in (
        ({"table_metadata_bytes_max": 100}, PATH, "100 are looked at"),
        ({"table_file_bytes_max": 1_000}, ROWS, "console.table_file_bytes_max"),
        ({"table_manifests_max": 1}, PATH, "of 1 of 2 manifests"),
    ):
        limits = edge.parts.config.console.model_copy(update=change)
        app = edge.rebuilt(config=edge.parts.config.model_copy(update={"console": limits}))
        async with connect(app) as client:
            answer = await client.get(path, auth=("root", "root's"))
            assert answer.status_code == 200
            assert said in answer.text, change


def test_values_are_cut_before_they_are_written() -> None:
    deep: Any = "end"
    for _ in range(100):
        deep = [deep]
    assert "end" not in values.shown(deep)
    assert len(values.shown({"a": [b"\xff" * 10_000_000] * 1_000})) <= values.CHARS + 2
    assert values.shown({"a": b"text", "b": None}) == '{"a": "text", "b": null}'
    assert values.shown("<plain>") == "<plain>"


async def test_rows_are_for_whom_the_catalog_lets_read_the_table(tmp_path: Path) -> None:
    async with console(tmp_path, "enforce") as (edge, agent):
        await edge.topic("t")
        await write(edge, agent, batch(b"kept"))
        async with by(edge, "ann") as client:
            assert "not exist" in (await page(client, PATH, 404)).said.replace("does not exist", "not exist")
            await let(edge, "ann", Operation.DESCRIBE, TOPIC, "t")
            assert "Show some rows" not in (await page(client, PATH)).said
            assert "Read on topic" in (await page(client, ROWS, 403)).said
            await let(edge, "ann", Operation.READ, TOPIC, "t")
            assert "Show some rows" in (await page(client, PATH)).said
            assert "kept" in (await page(client, ROWS)).said


async def test_rows_with_marked_fields_are_for_whoever_is_cleared(tmp_path: Path) -> None:
    async with console(tmp_path, redaction={"cleared_principals": "root"}) as (edge, agent):
        await edge.topic("t")
        await bind(edge, "string who = 2 [debug_redact = true];", floe_redact="remove")
        await write(edge, agent, batch(b"\x12\x06secret"))
        async with by(edge, "root") as client:
            assert "secret" in (await page(client, ROWS)).said
        async with by(edge, "ann") as client:
            assert "secret" not in (await page(client, PATH)).said
            assert "redaction.cleared_principals" in (await page(client, ROWS, 403)).said
        http = edge.parts.config.http.model_copy(update={"authentication": "none"})
        app = edge.rebuilt(config=edge.parts.config.model_copy(update={"http": http}))
        async with connect(app) as client:
            assert "secret" not in (await client.get(ROWS)).text, "nobody in particular is not cleared"


@pytest.mark.parametrize("told", ["²", "many", "-1", "9" * 30])
def test_a_total_that_another_engine_wrote_as_no_number_is_left_out(told: str) -> None:
    assert table._total({"total-records": told}, "records") is None
    assert table._total({"total-records": "12"}, "records") == 12
