"""What clients without clearance are sent of topics with `floe.redact`, and cleared ones."""

from __future__ import annotations

import functools
import io
import json
from dataclasses import dataclass
from typing import Any

import pytest

from agent.config.redaction import RedactionConfig
from agent.kafka.fetch import redacted, rewriting
from agent.rules.quarantine import new_quarantine
from coordination.commands import AlterTopicConfigs, BindSchema, RegisterSchema
from coordination.kafka_codes import Code
from coordination.state.types import Done, Span
from objectstore.batch import NewRecord, Record, build, peek, records
from objectstore.compression import Compression
from objectstore.varint import zigzag
from schema import descriptors, framing
from schema.compiler import compile_protos
from schema.proto import quarantine_pb2
from schema.redaction.marks import Action, Marks
from schema.redaction.messages import redactor
from schema.registry import protobuf
from schema.registry.avro import schema as avro_schema
from schema.registry.json import schema as json_schema
from schema.registry.kinds import KINDS
from tests.unit.agent.conftest import StartAgent
from tests.unit.agent.kafka.test_followed_subjects import VALIDATION, delete, framed, register
from tests.unit.agent.kafka.test_handlers_produce_fetch import create, fetch_request, produce, values
from tests.unit.agent.rig import Agent, batch
from tests.unit.schema import samples

CLEARED = {"redaction": {"cleared_client_ids": "audit, job-*", "hash_key": "k"}}
ONE = (
    'syntax = "proto3"; package shop; message Order { uint64 id = 1; string who = 2 [debug_redact = true]; }'
)
BARE = 'syntax = "proto3"; package shop; message Order { uint64 id = 1; string who = 2; }'
SECRET = b"\x08\x07\x12\x06secret"
LEFT = b"\x08\x07"


@functools.cache
def files(text: str = ONE) -> bytes:
    return compile_protos({"order.proto": text.encode()})


async def bind(agent: Agent, text: str = ONE, role: int = BindSchema.VALUE) -> None:
    message = BindSchema(
        topic="t", descriptor_set=files(text), message="shop.Order", role=role, tombstones=True
    )
    assert isinstance(await agent.services.replica.propose(message), Done)


async def redact(agent: Agent, action: str = "remove") -> None:
    message = AlterTopicConfigs(topic="t")
    message.changes.add(name="floe.redact", value=action)
    assert isinstance(await agent.services.replica.propose(message), Done)


async def read(agent: Agent, client_id: str = "anybody", offset: int = 0, **more: Any) -> Any:
    response = await agent.call("Fetch", fetch_request(offset, **more), 12, client_id=client_id)
    return response.responses[0].partitions[0]


def seen(answer: Any) -> list[Record]:
    return list(records(answer.records))


@pytest.fixture
async def agent(start: StartAgent) -> Agent:
    return await start(**CLEARED)


@pytest.mark.parametrize("codec", Compression)
async def test_marked_fields_are_sent_to_cleared_clients_only(agent: Agent, codec: Compression) -> None:
    await create(agent)
    await bind(agent)
    await redact(agent)
    sent = batch(SECRET, LEFT, SECRET, compression=codec)
    assert (await produce(agent, sent)).error_code == 0
    answer = await read(agent)
    assert values(answer) == [LEFT, LEFT, LEFT]
    assert b"secret" not in bytes(answer.records)
    whole = await read(agent, "audit")
    assert values(whole) == values(await read(agent, "job-7")) == [SECRET, LEFT, SECRET]
    for mine, theirs in zip(seen(answer), seen(whole), strict=True):
        assert mine._replace(value=None) == theirs._replace(value=None)
    assert peek(answer.records).compression is codec
    assert values(await read(agent, "audi")) == values(await read(agent, "", 1)) == [LEFT] * 3


async def test_topics_and_batches_without_marks_stay_closed(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`off` asks nothing at all; where nothing is marked, the batch is sent as it is stored."""
    await create(agent)
    await bind(agent)
    assert (await produce(agent, batch(SECRET))).error_code == 0

    async def opened(*_: object) -> None:
        raise AssertionError("a batch was opened")

    with monkeypatch.context() as patched:
        patched.setattr(rewriting, "opened", opened)
        assert values(await read(agent)) == [SECRET]
        await redact(agent)
        assert values(await read(agent, "audit")) == [SECRET]
    await bind(agent, BARE)
    stored = batch(SECRET, SECRET)
    assert (await produce(agent, stored)).error_code == 0
    sent = bytes((await read(agent, offset=1)).records)
    assert sent[17:] == stored[17:], "from the CRC on, the bytes that were produced"


async def test_a_record_is_read_by_its_own_schema(agent: Agent) -> None:
    """What was bound at its offset counts, or what its frame names, whatever is bound now."""
    await create(agent)
    await bind(agent)
    await redact(agent)
    assert (await produce(agent, batch(SECRET))).error_code == 0
    await bind(agent, BARE)
    first, second = sorted(agent.services.replica.state.schemas)
    sent = batch(SECRET, framing.prefix(first, (0,)) + SECRET, framing.prefix(second, (0,)) + SECRET)
    assert (await produce(agent, sent)).error_code == 0
    assert values(await read(agent)) == [
        LEFT,
        SECRET,
        framing.prefix(first, (0,)) + LEFT,
        framing.prefix(second, (0,)) + SECRET,
    ]


async def test_values_that_no_schema_explains_are_withheld(agent: Agent) -> None:
    """Before a binding, and what is no message: empty, with the reason; null is null, keys stay."""
    await create(agent)
    await redact(agent)
    assert (await produce(agent, batch(b"secret"))).error_code == 0
    (record,) = seen(await read(agent))
    assert (record.key, record.value) == (None, b"")
    assert record.headers == [(redacted.WITHHELD_HEADER, b"no schema says what is in it")]
    assert values(await read(agent, "audit")) == [b"secret"]
    metrics = agent.services.metrics
    assert metrics.fetch_withheld._value.get() == 1


async def test_keys_of_a_bound_key(agent: Agent) -> None:
    await create(agent)
    await bind(agent, role=BindSchema.KEY)
    await bind(agent, BARE)
    await redact(agent, "mask")
    sent = build([NewRecord(1, SECRET, None), NewRecord(2, None, SECRET), NewRecord(3, LEFT, SECRET)])
    assert (await produce(agent, sent)).error_code == 0
    masked = b"\x08\x07\x12\x04****"
    assert [(each.key, each.value) for each in seen(await read(agent))] == [
        (masked, None),
        (None, SECRET),
        (LEFT, SECRET),
    ]


async def test_a_quarantine_redacts_as_its_topic(agent: Agent) -> None:
    """What was set aside has the fields that nobody shall see, whatever it is."""
    await create(agent)
    await bind(agent)
    message = AlterTopicConfigs(topic="t", quarantine=new_quarantine(agent.services.clock))
    message.changes.add(name="floe.value.rules", value="quarantine")
    assert isinstance(await agent.services.replica.propose(message), Done)
    assert (await produce(agent, batch(b"no message of a secret"))).error_code == 0
    assert b"secret" in bytes((await read(agent, name="t.quarantine")).records)
    await redact(agent)
    answer = await read(agent, name="t.quarantine")
    (record,) = seen(answer)
    kept = quarantine_pb2.Record.FromString(record.value or b"")
    assert b"secret" not in bytes(answer.records)
    assert (kept.topic, kept.HasField("value"), kept.violations[0].role) == ("t", False, "value")
    assert b"secret" in bytes((await read(agent, "audit", name="t.quarantine")).records)


QUOTING = samples.ruled(
    """message M {
      option (buf.validate.message).cel = {
        id: "told", expression: "this.user == '' ? '' : 'not to ' + this.user"
      };
      string user = 1 [debug_redact = true];
      map<string, int32> by = 2 [(buf.validate.field).map.values.int32.gt = 0, debug_redact = true];
    }"""
)
BROKEN = QUOTING.message_class(user="secret one", by={"secret two": 0}).SerializeToString()


async def ruled(agent: Agent, policy: str) -> None:
    """Topic t, which redacts and is bound to rules whose texts quote what they are about."""
    await create(agent)
    schema = BindSchema(topic="t", descriptor_set=QUOTING.descriptor_set, message=QUOTING.name)
    assert isinstance(await agent.services.replica.propose(schema), Done)
    message = AlterTopicConfigs(topic="t", quarantine=new_quarantine(agent.services.clock))
    message.changes.add(name="floe.value.rules", value=policy)
    assert isinstance(await agent.services.replica.propose(message), Done)
    await redact(agent)


async def test_what_rules_say_of_a_record_in_quarantine_is_redacted(agent: Agent) -> None:
    """A text may quote what is marked, and a path has the keys of its maps."""
    await ruled(agent, "quarantine")
    assert (await produce(agent, batch(BROKEN))).error_code == 0
    answer = await read(agent, name="t.quarantine")
    kept = quarantine_pb2.Record.FromString(seen(answer)[0].value or b"")
    assert b"secret" not in bytes(answer.records)
    assert [each.rule for each in kept.violations] == ["told", "int32.gt"]
    whole = await read(agent, "audit", name="t.quarantine")
    kept = quarantine_pb2.Record.FromString(seen(whole)[0].value or b"")
    assert kept.violations[0].text == "not to secret one"
    assert kept.violations[1].field == 'by["secret two"]'


@pytest.mark.parametrize("policy", ["reject", "observe"])
async def test_what_rules_say_of_a_record_is_told_to_its_producer_only(
    process_log: io.StringIO, agent: Agent, policy: str
) -> None:
    await ruled(agent, policy)
    answer = await produce(agent, batch(BROKEN))
    noted = agent.services.refusals.newest if policy == "reject" else agent.services.rule_figures.newest
    if policy == "reject":
        assert "not to secret one" in answer.record_errors[0].batch_index_error_message
        assert noted[0].message.startswith("1 records break rules (what it says is left out")
    else:
        assert noted[0].message.startswith("record 0: value breaks rules (what it says is left out")
    assert "secret" not in str(noted)
    told = process_log.getvalue()
    assert "break rules" in told
    assert "secret" not in told


async def test_versions_of_a_subject(start: StartAgent) -> None:
    """Each by its own; one that is gone for good explains nothing, and its id may come to mean another."""
    one, other = await start("a", **CLEARED), await start("b", **CLEARED)
    await create(one, **VALIDATION, floe_redact="remove")
    marked, bare = await register(one, ONE), await register(other, BARE)
    assert (await produce(one, batch(framed(marked, SECRET), framed(bare, SECRET)))).error_code == 0
    for agent in (one, other):
        await agent.services.replica.barrier()
        assert values(await read(agent)) == [framed(marked, LEFT), framed(bare, SECRET)]
    await delete(one, 1)
    assert values(await read(one)) == [framed(marked, LEFT), framed(bare, SECRET)]
    await delete(one, 1, permanent=True)
    withheld, rest = seen(await read(one))
    assert (withheld.value, rest.value) == (b"", framed(bare, SECRET))
    assert withheld.headers == [
        (redacted.WITHHELD_HEADER, f"schema {marked} was deleted from the registry".encode())
    ]


TAGGED = {
    "AVRO": (
        '{"type":"record","name":"O","fields":[{"name":"id","type":"int"},'
        '{"name":"who","type":"string","confluent:tags":["PII"]}]}'
    ),
    "JSON": (
        '{"type":"object","properties":{"id":{"type":"integer"},'
        '"who":{"type":"string","x-floe-redact":"remove"}}}'
    ),
}
DATA = {"AVRO": (b"\x0e\x0csecret", b"\x0e\x00"), "JSON": (b'{"id":7,"who":"secret"}', b'{"id":7}')}


@pytest.mark.parametrize("schema_type", TAGGED)
async def test_subjects_of_other_types(agent: Agent, schema_type: str) -> None:
    """Their marked fields go; what is no record of the schema is withheld, without a word of what it says."""
    await create(agent, **VALIDATION, floe_redact="remove", floe_value_rules="observe")
    parsed = (avro_schema if schema_type == "AVRO" else json_schema).parse(TAGGED[schema_type], {})
    message = RegisterSchema(
        subject="t-value",
        schema_type=schema_type,
        text=parsed.text,
        canonical=parsed.canonical,
        judged_revision=1 << 40,
    )
    done: Any = await agent.services.replica.propose(message)
    frame = framing.prefix(done.value[0], ())[: framing.ID_END]
    whole, left = DATA[schema_type]
    assert (await produce(agent, batch(frame + whole, frame + left))).error_code == 0
    assert values(await read(agent)) == [frame + left] * 2
    assert values(await read(agent, "audit")) == [frame + whole, frame + left]
    (span,) = agent.services.replica.state.topics["t"].partitions[0].spans
    redaction = agent.services.rewriting.redaction
    marks = redacted.Marks(redacted.Action.REMOVE, frozenset({"PII"}))
    bad = memoryview(batch(frame + b"\x01secret", frame + whole))
    answered = bytes(await rewriting.rewritten(bad, [redaction.judge(marks, [span])]))
    first, second = records(answered)
    assert (first.value, second.value) == (b"", frame + left)
    assert first.headers[0][0] == redacted.WITHHELD_HEADER
    assert b"secret" not in answered


BY_PATH = {
    "PROTOBUF": (BARE, "shop.Order.who"),
    "AVRO": (TAGGED["AVRO"].replace(',"confluent:tags":["PII"]', ""), "**.who"),
    "JSON": (TAGGED["JSON"].replace(',"x-floe-redact":"remove"', ""), "$.wh?"),
}


@pytest.mark.parametrize("schema_type", BY_PATH)
async def test_tags_in_metadata_mark_fields_of_the_schema_that_has_them(
    agent: Agent, schema_type: str
) -> None:
    """A version without them shows all; paths of which nobody knows what they mean show nothing."""
    await create(agent, **VALIDATION, floe_redact="remove", floe_redact_tags="PII")
    text, path = BY_PATH[schema_type]
    canonical = KINDS[schema_type].parse(text, {}).canonical
    frames = []
    for tags in ({path: ["PII"]}, {path: ["PUBLIC"]}, {"who[0]": ["PII"]}):
        message = RegisterSchema(
            subject="t-value",
            schema_type=schema_type,
            text=text,
            canonical=canonical,
            metadata=json.dumps({"tags": tags}),
            judged_revision=1 << 40,
        )
        done: Any = await agent.services.replica.propose(message)
        frame = framing.prefix(done.value[0], (0,))
        frames.append(frame if schema_type == "PROTOBUF" else frame[: framing.ID_END])
    whole, left = {**DATA, "PROTOBUF": (SECRET, LEFT)}[schema_type]
    assert (await produce(agent, batch(*(each + whole for each in frames)))).error_code == 0
    gone, shown, withheld = seen(await read(agent))
    assert (gone.value, shown.value, withheld.value) == (frames[0] + left, frames[1] + whole, b"")
    assert withheld.headers[0][0] == redacted.WITHHELD_HEADER
    assert b"tags of its metadata have the path 'who[0]'" in (withheld.headers[0][1] or b"")


async def test_schemas_that_cannot_be_compiled_now_lose_no_record(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The partition answers an error that clients repeat, and goes on when there is room again."""
    await create(agent, **VALIDATION, floe_redact="remove")
    schema_id = await register(agent, ONE)
    assert (await produce(agent, batch(framed(schema_id, SECRET)))).error_code == 0

    def full(*_: object) -> bytes:
        raise OSError("no space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(protobuf, "descriptor_set", full)
        answer = await read(agent)
        assert (answer.error_code, bytes(answer.records)) == (Code.KAFKA_STORAGE_ERROR, b"")
    assert values(await read(agent)) == [framed(schema_id, LEFT)]


async def test_a_batch_that_nobody_can_open_is_sent_without_records(agent: Agent) -> None:
    """Its offsets are passed, as a consumer would otherwise ask for them for ever."""
    await create(agent, floe_produce_check="headers")
    await bind(agent)
    good = batch(SECRET, SECRET, compression=Compression.ZSTD)
    assert (await produce(agent, good)).error_code == 0
    await redact(agent)
    state = agent.services.replica.state
    (span,) = state.topics["t"].partitions[0].spans
    view = memoryview(bytearray(good))
    view[70] ^= 0xFF
    judge = agent.services.rewriting.redaction.judge(redacted.Marks(redacted.Action.REMOVE), [span])
    broken = await rewriting.rewritten(view, [judge])
    assert (peek(broken).record_count, peek(broken).last_offset) == (0, 1)


@dataclass
class _Case:
    listener: str
    client: str | None
    cleared: bool
    principal: str = "ANONYMOUS"


@pytest.mark.parametrize(
    "case",
    [
        _Case("INTERNAL", "x", True),
        _Case("PLAINTEXT", "audit", True),
        _Case("PLAINTEXT", "job-", True),
        _Case("PLAINTEXT", "job", False),
        _Case("PLAINTEXT", "", False),
        _Case("PLAINTEXT", None, False),
        _Case("internal", "AUDIT", False),
        _Case("PLAINTEXT", None, True, "CN=alice,O=Example"),
        _Case("PLAINTEXT", None, True, "bob"),
        _Case("PLAINTEXT", None, False, "CN=alice"),
    ],
)
async def test_who_is_cleared(agent: Agent, case: _Case) -> None:
    services = agent.services
    config = RedactionConfig(
        cleared_listeners="INTERNAL",
        cleared_client_ids="audit,job-*",
        cleared_principals="bob; CN=alice,O=Example; ANONYMOUS",
    )
    found = redacted.Redaction(services.replica, config, services.metrics)
    assert found.cleared(case.listener, case.client, case.principal) is case.cleared
    nobody = redacted.Redaction(services.replica, RedactionConfig(), services.metrics)
    assert not nobody.cleared(case.listener, case.client, case.principal)


def test_what_is_left_is_the_message_without_its_field() -> None:
    """SECRET and LEFT are what the tests take them for."""
    kind = descriptors.load(files(), "shop.Order").message_class
    assert (kind(id=7, who="secret").SerializeToString(), kind(id=7).SerializeToString()) == (SECRET, LEFT)


def test_a_header_with_more_than_a_frame_withholds_the_record() -> None:
    """Where its message begins is then behind what consumers read."""
    kind = descriptors.load(files(), "shop.Order")
    marked = redactor(kind, Marks(Action.REMOVE), b"")
    guid = bytes(range(16))
    judge = redacted.Judge([Span(0, 0, 9)], {(9, (guid, (0,))): marked}, frozenset({9}))
    for more, left in ((b"", LEFT), (b"\x08\x01", b"")):
        content = b"\x01" + guid + b"\x00" + more
        name = framing.ID_HEADERS["value"].encode()
        headers = b"".join(zigzag(len(each)) + each for each in (name, content))
        found = judge(0, None, b"\x12\x06secret" + LEFT, zigzag(1) + headers)
        assert found is not None
        assert found.value == left
        assert bool(found.headers) is bool(more)
