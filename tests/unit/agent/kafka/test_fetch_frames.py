"""Messages are read with or without Confluent's frame, as topic and listener say, whatever was sent."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from agent.kafka.fetch import frames, rewriting
from agent.net.wire.generated import fetch as f
from agent.net.wire.generated import incremental_alter_configs as i
from coordination.commands import AlterTopicConfigs, BindSchema, RegisterSchema
from coordination.kafka_codes import Code
from coordination.state.types import Done
from objectstore.batch import NewRecord, Record, build, check_crc, peek, records, split
from objectstore.compression import Compression
from schema import framing
from schema.registry.avro import schema as avro_schema
from tests.unit.agent.conftest import StartAgent
from tests.unit.agent.kafka.test_fetch_redacted import CLEARED, LEFT, ONE, SECRET, bind, redact
from tests.unit.agent.kafka.test_followed_subjects import VALIDATION, delete, framed, register
from tests.unit.agent.kafka.test_handlers_produce_fetch import create, fetch, fetch_request, produce, values
from tests.unit.agent.rig import Agent, batch

TWO = ONE.replace("string who = 2 [debug_redact = true];", "string who = 2; string note = 3;")
NOTED = b"\x08\x07\x1a\x01n"
GUID_HEADER = "__value_schema_id"


async def configure(agent: Agent, frames: str, name: str = "t") -> None:
    message = AlterTopicConfigs(topic=name)
    message.changes.add(name="floe.frames", value=frames)
    assert isinstance(await agent.services.replica.propose(message), Done)


def seen(answer: Any) -> list[Record]:
    return list(records(answer.records))


def own(agent: Agent, role: int = BindSchema.VALUE) -> int:
    """The id of the topic's newest binding to a message of its own."""
    schemas = agent.services.replica.state.schemas.values()
    return max(each.schema_id for each in schemas if each.role == role)


@pytest.mark.parametrize("codec", Compression)
async def test_bare_messages_are_framed_by_their_subject_s_version(agent: Agent, codec: Compression) -> None:
    """Each with the version that has the message it was judged as; all else of the batch stays."""
    await create(agent)
    await bind(agent)
    first, second = await register(agent, ONE), await register(agent, TWO)
    await configure(agent, "confluent")
    rows = [
        NewRecord(5, b"k", SECRET, [("h", b"1")]),
        NewRecord(7, None, framing.prefix(own(agent), (0,)) + LEFT),
        NewRecord(6, b"k2", b""),
    ]
    assert (await produce(agent, build(rows, compression=codec))).error_code == 0
    await bind(agent, TWO)
    assert (await produce(agent, batch(NOTED))).error_code == 0
    answer = await fetch(agent, 0)
    for at, size in split(answer.records):
        assert check_crc(answer.records, at, at + size)
    assert peek(answer.records).compression is codec
    assert [tuple(each) for each in seen(answer)[:3]] == [
        (0, 5, b"k", framed(first, SECRET), [("h", b"1")]),
        (1, 7, None, framed(first, LEFT), []),
        (2, 6, b"k2", framed(first, b""), []),
    ]
    assert values(answer)[3] == framed(second, NOTED)
    assert agent.services.metrics.fetch_reframed._value.get() == 4


async def test_framed_messages_are_read_bare(agent: Agent) -> None:
    """Of every type of schema; null is null, and what was written bare stays."""
    await create(agent, **VALIDATION, floe_frames="bare")
    one = await register(agent, ONE)
    sent = build([NewRecord(1, b"k", framed(one, SECRET)), NewRecord(2, b"k", None)])
    assert (await produce(agent, sent)).error_code == 0
    assert values(await fetch(agent, 0)) == [SECRET, None]
    await delete(agent, 1)
    await delete(agent, 1, permanent=True)
    assert values(await fetch(agent, 0)) == [framed(one, SECRET), None], "nobody knows what it is by now"


async def test_keys_are_read_so_too(agent: Agent) -> None:
    await create(agent)
    await bind(agent, role=BindSchema.KEY)
    one = await register(agent, ONE, "t-key")
    await configure(agent, "confluent")
    assert (await produce(agent, build([NewRecord(1, LEFT, b"text")]))).error_code == 0
    assert [tuple(each) for each in seen(await fetch(agent, 0))] == [(0, 1, framed(one, LEFT), b"text", [])]
    await configure(agent, "bare")
    framed_key = framing.prefix(own(agent, BindSchema.KEY), (0,)) + LEFT
    assert (await produce(agent, build([NewRecord(1, framed_key, b"x")]))).error_code == 0
    assert [each.key for each in seen(await fetch(agent, 0))] == [LEFT, LEFT]


async def test_what_no_version_has_stays_bare_and_says_why(agent: Agent) -> None:
    """Until it is registered, through any agent."""
    await create(agent)
    await bind(agent)
    await register(agent, TWO)
    await configure(agent, "confluent")
    assert (await produce(agent, batch(SECRET))).error_code == 0
    (record,) = seen(await fetch(agent, 0))
    assert record.value == SECRET
    ((name, why),) = record.headers
    assert name == frames.UNFRAMED_HEADER
    assert b"floe schema register t-value" in (why or b"")
    assert agent.services.metrics.fetch_unframed._value.get() == 1
    found = await register(agent, ONE)
    (record,) = seen(await fetch(agent, 0))
    assert (record.value, record.headers) == (framed(found, SECRET), [])


async def test_the_strategy_says_which_subject(agent: Agent) -> None:
    strategy = "io.confluent.kafka.serializers.subject.RecordNameStrategy"
    await create(agent, confluent_value_subject_name_strategy=strategy, floe_frames="confluent")
    await bind(agent)
    await register(agent, ONE)
    found = await register(agent, TWO.replace("string note = 3;", "").replace("2;", "2; "), "shop.Order")
    assert (await produce(agent, batch(SECRET))).error_code == 0
    assert values(await fetch(agent, 0)) == [framed(found, SECRET)]


async def test_records_that_nobody_judged(agent: Agent) -> None:
    """A topic that says so has registered frames taken off its values; nothing else of it is touched."""
    await create(agent)
    one = await register(agent, ONE, "elsewhere")
    rows = [
        NewRecord(1, framed(one, LEFT), framed(one, SECRET)),
        NewRecord(1, None, framed(one + 50, SECRET)),
        NewRecord(1, None, b"\x00text"),
        NewRecord(1, None, SECRET),
    ]
    assert (await produce(agent, build(rows))).error_code == 0
    await configure(agent, "confluent")
    stored = [(each.key, each.value) for each in rows]
    assert [each[2:4] for each in seen(await fetch(agent, 0))] == stored
    await configure(agent, "bare")
    assert [each[2:4] for each in seen(await fetch(agent, 0))] == [(framed(one, LEFT), SECRET), *stored[1:]]


async def read_by(agent: Agent, listener: str, request: f.FetchRequest | None = None) -> Any:
    """A Fetch by a listener's client."""
    client = replace(agent.client, listener=listener)
    answer = await agent.call("Fetch", request or fetch_request(0), 12, client=client)
    return answer.responses[0].partitions[0]


def listeners(**frames: str) -> dict[str, Any]:
    return {"listeners": [{"name": name, "port": 0, "frames": each} for name, each in frames.items()]}


async def test_a_listener_counts_before_the_topic(start: StartAgent) -> None:
    agent = await start(**listeners(PLAINTEXT="topic", LEGACY="bare", REGISTRY="confluent", RAW="as-written"))
    await create(agent)
    await create(agent, "open")
    await bind(agent)
    one = await register(agent, ONE)
    written = [SECRET, framing.prefix(own(agent), (0,)) + SECRET]
    assert (await produce(agent, batch(*written))).error_code == 0
    assert values(await read_by(agent, "PLAINTEXT")) == written
    assert values(await read_by(agent, "LEGACY")) == [SECRET, SECRET]
    assert values(await read_by(agent, "REGISTRY")) == [framed(one, SECRET)] * 2
    await configure(agent, "bare")
    assert values(await read_by(agent, "PLAINTEXT")) == [SECRET, SECRET]
    assert values(await read_by(agent, "RAW")) == written
    assert values(await read_by(agent, "REGISTRY")) == [framed(one, SECRET)] * 2
    unjudged = framed(one, SECRET)
    assert (
        await produce(agent, batch(unjudged), name="open", topic_id=b"OPEN".ljust(16, b"T"))
    ).error_code == 0
    for listener in ("LEGACY", "REGISTRY"):
        answer = await read_by(agent, listener, fetch_request(0, name="open"))
        assert values(answer) == [unjudged], "a listener says nothing of what nobody judged"


async def test_batches_that_need_no_change_stay_closed(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    """`as-written` opens nothing, nor does a topic without bindings; what is as wanted is sent as stored."""
    await create(agent)
    await create(agent, "open", floe_frames="confluent")
    await bind(agent)
    stored = batch(SECRET, compression=Compression.LZ4)
    assert (await produce(agent, stored)).error_code == 0
    assert (await produce(agent, stored, name="open")).error_code == 0

    async def opened(*_: object) -> None:
        raise AssertionError("a batch was opened")

    with monkeypatch.context() as patched:
        patched.setattr(rewriting, "opened", opened)
        assert values(await fetch(agent, 0)) == [SECRET]
        assert values(await fetch(agent, 0, name="open")) == [SECRET]
        await configure(agent, "bare")
        told = await fetch(agent, 0)
        assert (told.error_code, told.records) == (Code.UNKNOWN_SERVER_ERROR, b""), "of that topic alone"
        assert values(await fetch(agent, 0, name="open")) == [SECRET]
    assert bytes((await fetch(agent, 0)).records)[17:] == stored[17:]


async def test_redacted_records_are_framed_in_the_same_pass(start: StartAgent) -> None:
    """Withheld ones stay empty."""
    agent = await start(**CLEARED)
    await create(agent)
    assert (await produce(agent, batch(b"nobody knows"))).error_code == 0
    await bind(agent)
    one = await register(agent, ONE)
    await redact(agent)
    await configure(agent, "confluent")
    assert (await produce(agent, batch(SECRET, LEFT))).error_code == 0
    assert values(await fetch(agent, 0)) == [b"", framed(one, LEFT), framed(one, LEFT)]
    response = await agent.call("Fetch", fetch_request(1), 12, client_id="audit")
    assert values(response.responses[0].partitions[0]) == [framed(one, SECRET), framed(one, LEFT)]


async def test_answers_keep_within_their_bounds(agent: Agent) -> None:
    """Framed batches are larger: those that fit no more are left, the first is sent however large."""
    await create(agent)
    await bind(agent)
    await register(agent, ONE)
    for _ in range(6):
        assert (await produce(agent, batch(*[LEFT] * 20))).error_code == 0
    bare = len((await fetch(agent, 0)).records) // 6
    await configure(agent, "confluent")
    whole = len((await fetch(agent, 0)).records) // 6
    assert whole > bare + 100
    for limit in (1, bare, 3 * bare, 3 * whole, 4 * whole - 1):
        for request in (fetch_request(0, bytes_max=limit), fetch_request(0, max_bytes=limit)):
            response = await agent.call("Fetch", request, 12)
            answer = response.responses[0].partitions[0]
            assert len(answer.records) == whole * max(1, limit // whole), limit
            assert values(answer)[-1] != LEFT
    assert [each.offset for each in seen(await fetch(agent, 60))][:1] == [60], "and go on behind them"


async def test_a_header_s_frame_is_put_before_the_record(start: StartAgent) -> None:
    """For readers that know no header; the header goes, as it would count twice."""
    agent = await start(**CLEARED)
    await create(agent, **VALIDATION, floe_redact="remove")
    one = await register(agent, ONE)
    identity = agent.services.replica.state.subjects.schemas[one].identity
    header = (GUID_HEADER, b"\x01" + identity + b"\x00")
    rows = [NewRecord(1, None, SECRET, [("a", b"1"), header]), NewRecord(2, None, framed(one, LEFT))]
    answer = await produce(agent, build(rows))
    assert answer.error_code == 0, answer
    assert [(each.value, list(each.headers)) for each in seen(await fetch(agent, 0))] == [
        (LEFT, [("a", b"1"), header]), (framed(one, LEFT), []),
    ]  # fmt: skip
    await configure(agent, "confluent")
    assert [(each.value, list(each.headers)) for each in seen(await fetch(agent, 0))] == [
        (framed(one, LEFT), [("a", b"1")]), (framed(one, LEFT), []),
    ]  # fmt: skip
    await configure(agent, "bare")
    assert [(each.value, list(each.headers)) for each in seen(await fetch(agent, 0))] == [
        (LEFT, [("a", b"1"), header]), (LEFT, []),
    ]  # fmt: skip


async def test_headers_name_versions_of_the_subject_only(agent: Agent) -> None:
    await create(agent, **VALIDATION)
    one, other = await register(agent, ONE), await register(agent, TWO, "u-value")
    schemas = agent.services.replica.state.subjects.schemas

    def sent(identity: bytes) -> bytes:
        return build([NewRecord(1, None, LEFT, [(GUID_HEADER, b"\x01" + identity + b"\x00")])])

    assert (await produce(agent, sent(schemas[one].identity))).error_code == 0
    refused = await produce(agent, sent(schemas[other].identity))
    assert refused.error_code == Code.INVALID_RECORD
    assert "which is a version of u-value" in refused.record_errors[0].batch_index_error_message
    refused = await produce(agent, sent(bytes(16)))
    assert "registered nowhere" in refused.record_errors[0].batch_index_error_message
    await delete(agent, 1)
    assert (await produce(agent, sent(schemas[one].identity))).error_code == Code.INVALID_RECORD


async def test_the_config_is_refused_where_nothing_could_be_framed(agent: Agent) -> None:
    await create(agent)
    await bind(agent)

    async def ask(value: str) -> Any:
        config = i.AlterableConfig(name="floe.frames", config_operation=0, value=value)
        resource = i.AlterConfigsResource(resource_type=2, resource_name="t", configs=[config])
        response = await agent.call(
            "IncrementalAlterConfigs", i.IncrementalAlterConfigsRequest(resources=[resource]), 1
        )
        return response.responses[0]

    refused = await ask("confluent")
    assert refused.error_code == Code.INVALID_CONFIG
    assert "no version of subject t-value has the message shop.Order" in refused.error_message
    assert "floe schema register t-value FILE.proto" in refused.error_message
    assert (await ask("bare")).error_code == 0
    assert (await ask("framed")).error_code == Code.INVALID_CONFIG
    await register(agent, ONE)
    assert (await ask("confluent")).error_code == 0


async def test_what_has_its_frame_in_a_header_loses_nothing(agent: Agent) -> None:
    """A datum of AVRO that begins with zeros looks like a frame, and is none."""
    await create(agent, **VALIDATION)
    fields = [{"name": name, "type": "long"} for name in "abcdef"]
    text = json.dumps({"type": "record", "name": "R", "fields": fields})
    message = RegisterSchema(
        subject="t-value",
        schema_type="AVRO",
        text=text,
        canonical=avro_schema.parse(text, {}).canonical,
        judged_revision=1 << 40,
    )
    assert isinstance(await agent.services.replica.propose(message), Done)
    (known,) = agent.services.replica.state.subjects.schemas.values()
    data = bytes([0, 0, 0, 0, known.schema_id, 14])
    rows = [
        NewRecord(1, None, data, [(GUID_HEADER, b"\x01" + known.identity)]),
        NewRecord(2, None, framing.first_bytes(known.schema_id) + data),
    ]
    assert (await produce(agent, build(rows))).error_code == 0
    await configure(agent, "bare")
    assert values(await fetch(agent, 0)) == [data, data]
