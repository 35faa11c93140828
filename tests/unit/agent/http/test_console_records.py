"""Records in the console: where one looks, what they are, what is kept from whom, and when a look ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from agent.http.console import decoding, records
from agent.http.console.looking import Asked
from agent.http.console.markup import PIECE_CHARS
from agent.http.console.searching import Budget, Filter, Found, Look, Search
from agent.telemetry.shown import RecordsRead
from coordination.commands import AlterTopicConfigs, BindSchema
from coordination.state.acl_types import Operation, ResourceType
from coordination.state.types import Done
from objectstore.batch import NewRecord, build
from objectstore.compression import Compression
from schema import framing
from schema.compiler import compile_protos
from tests.unit.agent.http.conftest import Edge, connect
from tests.unit.agent.http.console_rig import by, console, let, page
from tests.unit.agent.http.registry_rig import Registry
from tests.unit.agent.kafka.test_handlers_produce_fetch import produce
from tests.unit.agent.rig import Agent

ORDER = (
    'syntax = "proto3"; package shop; message Order { uint64 id = 1; string who = 2 [debug_redact = true]; }'
)
SECRET = b"\x08\x07\x12\x06secret"
WHEN = 1_700_000_000_000
PATH = "/console/topics/t/records"


@pytest.fixture
async def both(tmp_path: Path) -> AsyncIterator[tuple[Edge, Agent]]:
    """A topic `t` of one partition; ACLs are not asked."""
    async with console(tmp_path) as made:
        await made[0].topic("t")
        yield made


async def write(agent: Agent, *rows: tuple[bytes | None, bytes | None], **more: Any) -> None:
    raw = build([NewRecord(WHEN + n, *row) for n, row in enumerate(rows)], **more)
    assert (await produce(agent, raw)).error_code == 0


async def bind(edge: Edge, **configs: str) -> None:
    files = compile_protos({"order.proto": ORDER.encode()})
    message = BindSchema(
        topic="t", descriptor_set=files, message="shop.Order", role=BindSchema.VALUE, tombstones=True
    )
    assert isinstance(await edge.replica.propose(message), Done)
    changes = AlterTopicConfigs(topic="t")
    for name, value in configs.items():
        changes.changes.add(name=name.replace("_", "."), value=value)
    assert isinstance(await edge.replica.propose(changes), Done)


async def test_where_one_looks(both: tuple[Edge, Agent]) -> None:
    edge, agent = both
    await write(agent, *[(b"k%d" % (n % 3), b"value-%d" % n) for n in range(100)])
    async with by(edge, "root") as client:

        async def seen(**query: object) -> list[int]:
            shown = await page(client, PATH, **query)
            return [n for n in range(100) if f"value-{n}" in shown.said.split()]

        assert await seen(rows=3) == [97, 98, 99]
        assert await seen(rows=2, start="oldest", partition=0) == [0, 1]
        assert await seen(rows=2, start="offset", at=41, partition=0) == [41, 42]
        assert await seen(rows=2, start="time", at=WHEN + 50) == [50, 51]
        assert await seen(rows=2, start="time", at="2023-11-14T22:13:20.060Z") == [60, 61]
        assert await seen(start="time", at=WHEN + 1_000) == []
        assert await seen(start="oldest", key="k1", rows=200) == list(range(1, 100, 3))
        assert await seen(start="oldest", search="VALUE-77") == [77]
        for wrong in ({"start": "now"}, {"start": "time", "at": "noon"}, {"partition": "x"}):
            await page(client, PATH, 400, **wrong)
        assert "has the partitions 0 to 0" in (await page(client, PATH, 404, partition=1)).said


async def test_a_look_ends_and_is_gone_on_with(both: tuple[Edge, Agent]) -> None:
    """In records here; bytes and time are bounds of the same loop."""
    edge, agent = both
    for start in range(0, 1_000, 100):
        await write(
            agent, *[(None, b"value-%d" % n) for n in range(start, start + 100)], compression=Compression.ZSTD
        )
    limits = edge.parts.config.console.model_copy(update={"search_records_max": 250})
    edge.have(config=edge.parts.config.model_copy(update={"console": limits}))
    async with by(edge, "root") as client:
        shown = await page(client, PATH, partition=0, start="oldest", search="value-6", rows=200)
        looks, found = 1, shown.said.count("value-6")
        while following := [str(a["href"]) for t, a in shown.elements if t == "a" and a.get("rel") == "next"]:
            assert "of 250 records looked at" in shown.said
            shown = await page(client, following[0])
            looks, found = looks + 1, found + shown.said.count("value-6")
    assert looks == 4
    assert found == 111


async def test_bytes_and_time_end_a_look_too(both: tuple[Edge, Agent]) -> None:
    edge, agent = both
    for _ in range(20):
        await write(agent, (None, b"x" * 10_000))
    console_config = edge.parts.config.console
    for change, said in (
        ({"search_bytes_max": 65_536}, "7 records looked at"),
        ({"search_ms_max": 0}, "time is over"),
    ):
        limits = console_config.model_copy(update=change)
        edge.have(config=edge.parts.config.model_copy(update={"console": limits}))
        async with by(edge, "root") as client:
            assert said in (await page(client, PATH, partition=0, start="oldest", search="none")).said


class Hanging:
    """Kafka's side that does not answer."""

    async def read(self, *_: object) -> None:
        await asyncio.Event().wait()


async def test_a_look_ends_in_its_time_though_a_read_does_not(both: tuple[Edge, Agent]) -> None:
    edge, _ = both
    none: Any = None
    hanging: Any = Hanging()
    search = Search(edge.parts, hanging, "t", none, none, 100)
    assert 0 < search.left_s <= 0.1
    look = await search.partition(0, 0, Budget(rows=1, records=1, size=1))
    assert look.problems == ["stopped: its time is over"]


async def test_records_are_decoded_by_what_they_are(both: tuple[Edge, Agent]) -> None:
    edge, agent = both
    async with by(edge, "root") as client:
        schema = '{"type":"record","name":"V","fields":[{"name":"city","type":"string"}]}'
        registry = Registry(client)
        avro = await registry.ask("POST", "/subjects/u-value/versions", {"schema": schema})
        json_ = await registry.ask(
            "POST", "/subjects/j-value/versions", {"schema": '{"type":"object"}', "schemaType": "JSON"}
        )
        await write(
            agent,
            (b"\xff\xfe", framing.prefix(avro["id"], ())[:5] + b"\x0aParis"),
            (None, framing.prefix(json_["id"], ())[:5] + b'{"town": "Rome"}'),
            (None, None),
        )
        shown = (await page(client, PATH)).said
        assert '"city": "Paris"' in shown
        assert '"town": "Rome"' in shown
        assert "base64" in shown
        assert "null" in shown
        await bind(edge)
        await write(agent, (None, SECRET))
        assert '"who": "secret"' in (await page(client, PATH)).said


async def test_a_schema_is_used_for_those_only_who_may_describe_it(tmp_path: Path) -> None:
    async with console(tmp_path, "enforce") as (edge, agent):
        await edge.topic("t")
        async with by(edge, "root") as client:
            schema = '{"type":"record","name":"V","fields":[{"name":"city","type":"string"}]}'
            avro = await Registry(client).ask("POST", "/subjects/u-value/versions", {"schema": schema})
            await write(agent, (None, framing.prefix(avro["id"], ())[:5] + b"\x0aParis"))
            assert '"city"' in (await page(client, PATH)).said
        await let(edge, "ann", Operation.READ, ResourceType.TOPIC, "t")
        async with by(edge, "ann") as client:
            assert '"city"' not in (await page(client, PATH)).said
            await let(edge, "ann", Operation.DESCRIBE, ResourceType.TOPIC, "u")
            assert '"city"' in (await page(client, PATH)).said


async def test_marked_fields_are_neither_shown_nor_found(tmp_path: Path) -> None:
    async with console(tmp_path) as (edge, agent):
        await edge.topic("t")
        await bind(edge, floe_redact="remove")
        await write(agent, (b"k", SECRET))
        async with by(edge, "root") as client:
            shown = await page(client, PATH)
            assert '"id": "7"' in shown.said
            assert "secret" not in shown.said
            assert "0 shown of 1 records" in (await page(client, PATH, search="secret")).said
            assert "1 shown of 1 records" in (await page(client, PATH, search='"7"')).said


async def test_whoever_is_cleared_sees_all(tmp_path: Path) -> None:
    async with console(tmp_path, redaction={"cleared_principals": "root"}) as (edge, agent):
        await edge.topic("t")
        await bind(edge, floe_redact="remove")
        await write(agent, (b"k", SECRET))
        async with by(edge, "root") as client:
            assert "secret" in (await page(client, PATH)).said
        async with by(edge, "ann") as client:
            assert "secret" not in (await page(client, PATH)).said


async def test_hostile_records_are_text(both: tuple[Edge, Agent]) -> None:
    edge, agent = both
    hostile = b"</pre><script>alert(1)</script>\x00\xe2\x80\xae"
    raw = build([NewRecord(WHEN, hostile, hostile, [(hostile[:20].decode(), hostile)])])
    assert (await produce(agent, raw)).error_code == 0
    await write(agent, (None, b"y" * 900_000))
    async with by(edge, "root") as client:
        answer = await client.get(PATH)
        assert "<script>" not in answer.text
        assert answer.text.count("&lt;script&gt;") == 4
        assert len(answer.content) < 50_000, "long values are cut"
        alone = await client.get(PATH, params={"start": "offset", "at": "1", "rows": "1", "partition": "0"})
        assert records.CHARS_OF_ONE < len(alone.content) < records.CHARS_OF_ONE + decoding.DECODED_BYTES_MAX


async def test_so_many_looks_go_on_at_once(both: tuple[Edge, Agent]) -> None:
    edge, agent = both
    await write(agent, (None, b"x"))
    showing, asked, go_on = edge.parts.kafka(), asyncio.Semaphore(0), asyncio.Event()
    assert showing is not None
    read = showing.read

    class Slow:
        async def read(self, *given: Any) -> RecordsRead | None:
            asked.release()
            await go_on.wait()
            return await read(*given)

    edge.have(kafka=Slow)
    async with by(edge, "root") as client:
        most = edge.parts.config.console.searches_in_flight_max
        looks = [asyncio.create_task(client.get(PATH)) for _ in range(most)]
        for _ in looks:
            await asked.acquire()
        assert "searches_in_flight_max" in (await page(client, PATH, 503)).said
        go_on.set()
        assert [(await each).status_code for each in looks] == [200] * most
        assert (await client.get(PATH)).status_code == 200


@pytest.mark.parametrize(
    ("mode", "protocol", "status"),
    [
        ("off", "PLAINTEXT", 200),
        ("shadow", "PLAINTEXT", 200),
        ("enforce", "PLAINTEXT", 403),
        ("off", "SASL_PLAINTEXT", 403),
    ],
)
async def test_records_are_not_for_whom_no_listener_lets_in(
    tmp_path: Path, mode: str, protocol: str, status: int
) -> None:
    """Where HTTP asks nobody who he is, it gives nobody more than Kafka's listeners do."""
    async with console(tmp_path, mode) as (edge, agent):
        await edge.topic("t")
        await write(agent, (None, b"kept"))
        config = edge.parts.config
        http = config.http.model_copy(update={"authentication": "none"})
        listeners = (config.listeners[0].model_copy(update={"protocol": protocol}),)
        edge.have(config=config.model_copy(update={"http": http, "listeners": listeners}))
        async with connect(edge.app) as client:
            assert ("kept" in (await page(client, PATH, status)).said) == (status == 200)


async def test_others_have_their_turns_while_what_does_not_print_is_written_out(
    both: tuple[Edge, Agent],
) -> None:
    edge, _ = both
    odd = "\0" * 3 * PIECE_CHARS
    found = Found(0, 0, WHEN, decoding.Text(odd, odd, odd, len(odd)))
    look = Asked(0, "oldest", 0, 1, False, Filter(), "")
    topic = edge.replica.state.topics["t"]
    assert len(list(records._shown(topic, look, [Look(0, 1, 1, [found], 1, 1)]))) >= 3 * 2
