"""The life of a record: from its producer to chunk, segment and row, told from what is really stored."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agent.rules.quarantine import new_quarantine
from coordination.commands import CreateTopic, EndTransaction, MoveLogStart
from coordination.state.acl_types import Operation, ResourceType
from coordination.state.types import Done
from objectstore.batch import peek
from objectstore.naming import CHUNKS
from tests.unit.agent.background.merging_rig import merge_rows, partition_of
from tests.unit.agent.http.conftest import Edge
from tests.unit.agent.http.console_rig import by, console, in_transaction, let, page, table_of
from tests.unit.agent.kafka.test_handlers_produce_fetch import produce
from tests.unit.agent.rig import Agent, batch

PATH = "/console/topics/t/life"


@pytest.fixture
async def both(tmp_path: Path) -> AsyncIterator[tuple[Edge, Agent]]:
    """A topic `t` of one partition; ACLs are not asked."""
    async with console(tmp_path) as made:
        await made[0].topic("t")
        yield made


async def keys(edge: Edge, prefix: str) -> list[str]:
    return [meta.key async for some in edge.store.list(prefix) for meta in some]


async def test_from_its_producer_to_its_bytes(both: tuple[Edge, Agent]) -> None:
    edge, agent = both
    before = edge.replica.state.revision
    first = batch(b"a", b"b", b"c", producer_id=7, producer_epoch=2, base_sequence=0)
    raw = batch(b"d", b"e", producer_id=7, producer_epoch=2, base_sequence=3)
    for each in (first, raw):
        assert (await produce(agent, each)).error_code == 0
    async with by(edge, "root") as client:
        facts = (await page(client, PATH, partition=0, offset=4)).facts
        lone = await page(client, "/console/topics/t/records", partition=0, start="offset", at=4, rows=1)
    assert facts["Producer id"] == "7"
    assert facts["Epoch"] == "2"
    assert facts["Sequence"] == "4"
    assert facts["Batch"] == "offsets 3 to 4, 2 records"
    assert facts["Time"] == "2023-11-14T22:13:20.001Z"
    begin, end = (int(each.replace(",", "")) for each in facts["Bytes in it"].split()[:3:2])
    stored = await edge.store.get_range(facts["Object"], begin, end - begin)
    assert peek(stored).base_sequence == 3, "the very bytes of the batch, as it was sent"
    assert len(stored) == len(raw)
    revision = int(facts["Committed"].split()[1].rstrip(",").replace(",", ""))
    assert before < revision <= edge.replica.state.revision
    assert facts["Object"] in await keys(edge, CHUNKS)
    assert "edge (node" in facts["Written by"]
    assert f"{PATH}?partition=0&offset=4" in lone.links


async def test_what_an_agent_did_not_see_it_bounds(both: tuple[Edge, Agent]) -> None:
    edge, agent = both
    assert (await produce(agent, batch(b"a"))).error_code == 0
    edge.have()  # whoever is asked has just started
    async with by(edge, "root") as client:
        said = (await page(client, PATH, partition=0, offset=0)).facts["Committed"]
    assert "between revisions" in said


async def test_what_is_merged_and_what_is_no_more(both: tuple[Edge, Agent]) -> None:
    edge, agent = both
    for number in range(4):
        assert (await produce(agent, batch(b"v%d" % number))).error_code == 0
    done = await merge_rows(agent, edge.store, 2)
    assert done.swapped
    async with by(edge, "root") as client:
        merged = await page(client, PATH, partition=0, offset=1)
        tail = await page(client, PATH, partition=0, offset=2)
        assert merged.facts["Object"].startswith("segments/")
        assert merged.facts["The segment holds"].startswith("2 records")
        assert merged.facts["Named by"].startswith("manifests/")
        assert "no more" in merged.facts["The chunk it came in"]
        assert tail.facts["Object"].startswith("chunks/")
        assert "not written yet" in (await page(client, PATH, partition=0, offset=4)).said
        handle = partition_of(agent).handle
        moved = await edge.replica.propose(MoveLogStart(partition=[handle], offset=[3]))
        assert isinstance(moved, Done)
        assert "no more: retention" in (await page(client, PATH, partition=0, offset=1)).said
        await edge.store.delete(await keys(edge, CHUNKS))
        gone = await page(client, PATH, partition=0, offset=3)
        assert gone.facts["State of the object"] == "no more"
        for wrong in ({"partition": 1, "offset": 0}, {"partition": 0}, {"offset": "x", "partition": 0}):
            assert (await client.get(PATH, params=wrong)).status_code in (400, 404), wrong


async def test_the_row_of_its_table(both: tuple[Edge, Agent]) -> None:
    edge, agent = both
    await edge.topic("u")
    table = table_of(edge, "t")
    for start in (0, 10):
        for number in range(start, start + 10):
            assert (await produce(agent, batch(b"v%d" % number))).error_code == 0
        assert await table.run_once() is not None
    assert (await produce(agent, batch(b"late"))).error_code == 0
    handle = partition_of(agent).handle
    async with by(edge, "root") as client:
        for _ in range(2):
            facts = (await page(client, PATH, partition=0, offset=13)).facts
            assert facts["Row of the file"] == "3"
            assert facts["File"].endswith(".parquet")
            assert facts["The file holds"].startswith("10 rows")
            snapshots = edge.replica.state.tables["floe", "t"]
            assert facts["Came with snapshot"].split(",")[0].isdigit(), snapshots
            # Rows stay when records go.
            moved = MoveLogStart(partition=[handle], offset=[15])
            assert isinstance(await edge.replica.propose(moved), Done)
        assert "below 20" in (await page(client, PATH, partition=0, offset=20)).facts["State"]
        assert (await produce(agent, batch(b"x"), name="u")).error_code == 0
        assert "has no table" in (await page(client, "/console/topics/u/life", partition=0, offset=0)).said


async def test_whoever_may_not_read_a_topic_sees_no_life_in_it(tmp_path: Path) -> None:
    async with console(tmp_path, "enforce") as (edge, agent):
        await edge.topic("t")
        assert (await produce(agent, batch(b"a"))).error_code == 0
        await let(edge, "ann", Operation.DESCRIBE, ResourceType.TOPIC, "t")
        async with by(edge, "ann") as client:
            assert "may not Read" in (await page(client, PATH, 403, partition=0, offset=0)).said
            await let(edge, "ann", Operation.READ, ResourceType.TOPIC, "t")
            assert "chunks/" in (await page(client, PATH, partition=0, offset=0)).said


async def test_transactions_that_are_open_aborted_and_their_markers(both: tuple[Edge, Agent]) -> None:
    edge, agent = both
    names = await in_transaction(edge, partition_of(agent).handle)
    own = {name: names[name] for name in ("producer_id", "producer_epoch")}
    raw = batch(b"x", transactional=True, base_sequence=0, **own)
    assert (await produce(agent, raw, transactional_id="tx")).error_code == 0
    async with by(edge, "root") as client:
        assert "still open" in (await page(client, PATH, partition=0, offset=0)).said
        assert isinstance(await edge.replica.propose(EndTransaction(**names, commit=False)), Done)
        aborted = await page(client, PATH, partition=0, offset=0)
        marker = await page(client, PATH, partition=0, offset=1)
    assert "that was aborted: readers of committed records" in aborted.said
    assert aborted.facts["In a transaction"] == "yes"
    assert "marker of a transaction that was aborted" in marker.said
    assert "Producer id" not in marker.facts


async def test_a_topic_with_a_quarantine_leads_there(tmp_path: Path) -> None:
    async with console(tmp_path, "enforce") as (edge, agent):
        message = CreateTopic(
            name="t", topic_id=bytes([7] * 16), partitions=1, quarantine=new_quarantine(edge.parts.clock)
        )
        message.configs.add(name="floe.value.rules", value="quarantine")
        assert isinstance(await edge.replica.propose(message), Done)
        assert (
            await produce(agent, batch(b"a", producer_id=5, producer_epoch=0, base_sequence=0))
        ).error_code == 0
        async with by(edge, "root") as client:
            shown = await page(client, PATH, partition=0, offset=0)
            (way,) = (each for each in shown.links if "t.quarantine" in each)
            assert "%22producer_id%22%3A+%225%22" in way
            other = await page(client, "/console/topics/t.quarantine/life", partition=0, offset=0)
            assert "is a quarantine" in other.said
        await let(edge, "ann", Operation.READ, ResourceType.TOPIC, "t")
        async with by(edge, "ann") as client:
            assert "t.quarantine" not in (await page(client, PATH, partition=0, offset=0)).said
