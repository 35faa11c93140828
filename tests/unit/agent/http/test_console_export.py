"""Records as a file: all that is asked for, as its reader is shown it, within bounds, with its end told."""

from __future__ import annotations

import asyncio
import csv
import io
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from crc32c import crc32c

from agent.http.console import export, records
from coordination.state.acl_types import Operation, ResourceType
from tests.unit.agent.http.conftest import Edge
from tests.unit.agent.http.console_rig import by, console, let, page
from tests.unit.agent.http.test_console_records import SECRET, bind, write
from tests.unit.agent.kafka.test_handlers_produce_fetch import produce
from tests.unit.agent.rig import Agent, batch

PATH = "/console/topics/t/export"
OLDEST = {"start": "oldest"}


@pytest.fixture
async def both(tmp_path: Path) -> AsyncIterator[tuple[Edge, Agent]]:
    """A topic `t` of 40 partitions; ACLs are not asked."""
    async with console(tmp_path) as made:
        await made[0].topic("t", partitions=40)
        yield made


async def fill(agent: Agent, *indexes: int, count: int = 5) -> None:
    for index in indexes:
        raw = batch(*[b"p%d-%d" % (index, number) for number in range(count)])
        assert (await produce(agent, raw, index=index)).error_code == 0


def lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(each) for each in text.splitlines()]


def limited(edge: Edge, **change: int) -> None:
    limits = edge.parts.config.console.model_copy(update=change)
    edge.have(config=edge.parts.config.model_copy(update={"console": limits}))


async def test_all_partitions_come_in_order_and_the_end_is_told(
    both: tuple[Edge, Agent], monkeypatch: pytest.MonkeyPatch
) -> None:
    edge, agent = both
    monkeypatch.setattr(export, "STEP_ROWS", 2)
    await fill(agent, 0, 35)
    async with by(edge, "root") as client:
        answer = await client.get(PATH, params=OLDEST)
        assert 'filename="t.jsonl"' in answer.headers["content-disposition"]
        assert answer.headers["x-content-type-options"] == "nosniff"
        *rows, end = lines(answer.text)
        assert [row["value"] for row in rows] == [f"p{index}-{n}" for index in (0, 35) for n in range(5)]
        assert [row["offset"] for row in rows] == [0, 1, 2, 3, 4] * 2
        assert end["export"] == "complete"
        assert end["next_offsets"]["35"] == 5
        *rows, _ = lines((await client.get(PATH, params={**OLDEST, "search": "-3"})).text)
        assert [row["value"] for row in rows] == ["p0-3", "p35-3"]
        *rows, _ = lines(
            (await client.get(PATH, params={"start": "offset", "at": "3", "partition": "35"})).text
        )
        assert [row["value"] for row in rows] == ["p35-3", "p35-4"]
        assert (await client.get(PATH, params={"format": "xml"})).status_code == 400
        assert (await client.get(PATH, params={"partition": "40"})).status_code == 404


async def test_cells_of_a_table_are_text_and_nothing_is_computed(both: tuple[Edge, Agent]) -> None:
    edge, agent = both
    hostile = '=HYPERLINK("http://x","y")\n"quoted", and more'
    assert (await produce(agent, batch(hostile.encode()))).error_code == 0
    async with by(edge, "root") as client:
        answer = await client.get(PATH, params={**OLDEST, "format": "csv"})
    head, row, end = csv.reader(io.StringIO(answer.text))
    assert head == list(export.COLUMNS)
    assert row[:3] == ["t", "0", "0"]
    assert row[5] == f"'{hostile}"
    assert end[0].startswith("# export complete")


async def test_each_bound_ends_it(both: tuple[Edge, Agent]) -> None:
    edge, agent = both
    for _ in range(6):
        await fill(agent, 0, 1, count=50)
    for change, said in (
        ({"export_records_max": 120}, "console.export_records_max"),
        ({"export_bytes_max": 1_000}, "console.export_bytes_max"),
        ({"export_ms_max": 0}, "console.export_ms_max"),
    ):
        limited(edge, export_records_max=10_000, export_bytes_max=1 << 20, export_ms_max=60_000)
        limited(edge, **change)
        async with by(edge, "root") as client:
            *rows, end = lines((await client.get(PATH, params=OLDEST)).text)
        assert end["export"] == f"stopped by {said}"
        assert len(rows) < 600
        if "export_records_max" in change:
            assert len(rows) == 120
            assert end["next_offsets"] == {"0": 120}, "so it can be gone on with"


async def test_marked_fields_stay_away_and_so_do_strangers(tmp_path: Path) -> None:
    async with console(tmp_path, "enforce", redaction={"cleared_principals": "root"}) as (edge, agent):
        await edge.topic("t")
        await bind(edge, floe_redact="remove")
        await write(agent, (b"k", SECRET))
        async with by(edge, "ann") as client:
            assert (await client.get(PATH, params=OLDEST)).status_code == 403
            await let(edge, "ann", Operation.READ, ResourceType.TOPIC, "t")
            answer = await client.get(PATH, params=OLDEST)
            assert '\\"id\\": \\"7\\"' in answer.text
            assert "secret" not in answer.text
        async with by(edge, "root") as client:
            assert "secret" in (await client.get(PATH, params=OLDEST)).text


def unreadable() -> bytes:
    """A batch whose checksum fits, and whose records are not the gzip that it says they are."""
    raw = bytearray(batch(b"v" * 20))
    raw[22] |= 1  # gzip
    raw[61:] = b"\xff" * (len(raw) - 61)
    raw[17:21] = crc32c(bytes(raw[21:])).to_bytes(4, "big")
    return bytes(raw)


async def test_what_lies_behind_an_unreadable_batch_comes_too_and_what_is_missing_is_told(
    both: tuple[Edge, Agent], monkeypatch: pytest.MonkeyPatch
) -> None:
    edge, agent = both
    monkeypatch.setattr(export, "STEP_ROWS", 3)
    monkeypatch.setattr(export, "PROBLEMS_TOLD_MAX", 1)
    for _ in range(2):
        await fill(agent, 0)
        assert (await produce(agent, unreadable())).error_code == 0
        await fill(agent, 0)
    async with by(edge, "root") as client:
        *rows, end = lines((await client.get(PATH, params=OLDEST)).text)
    assert [row["offset"] for row in rows] == [*range(5), *range(6, 16), *range(17, 22)]
    assert end["next_offsets"]["0"] == 22
    assert end["export"].startswith("incomplete: partition 0: offsets 5 to 5: records cannot be decompressed")
    assert end["export"].endswith("; and 1 more")


async def test_a_place_is_given_back_however_an_export_ends(both: tuple[Edge, Agent]) -> None:
    edge, agent = both
    await fill(agent, 0)
    async with by(edge, "root") as client:
        for _ in range(edge.parts.config.console.searches_in_flight_max + 1):
            assert (await client.get(PATH, params=OLDEST)).status_code == 200
            cut = asyncio.create_task(client.get(PATH, params=OLDEST))
            await asyncio.sleep(0)
            cut.cancel()
            await asyncio.gather(cut, return_exceptions=True)
        assert (await client.get(PATH, params=OLDEST)).status_code == 200


async def test_a_look_at_many_partitions_is_gone_on_with(both: tuple[Edge, Agent]) -> None:
    edge, agent = both
    await fill(agent, 0, 39, count=1)
    assert records.PARTITIONS_AT_ONCE < 40
    async with by(edge, "root") as client:
        first = await page(client, "/console/topics/t/records", start="oldest")
        assert "p0-0" in first.said
        assert "p39-0" not in first.said
        (following,) = (str(a["href"]) for t, a in first.elements if t == "a" and a.get("rel") == "next")
        second = await page(client, following)
        assert "p39-0" in second.said
        assert "p0-0" not in second.said
        assert "Partitions 32 to 39 of 40" in second.said
