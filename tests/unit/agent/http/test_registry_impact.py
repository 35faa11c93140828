"""What a schema would touch as a subject's next version, asked before it is one. Nothing is written."""

from __future__ import annotations

from typing import Any

from coordination.commands import BindSchema, CommitOffsets
from coordination.state import Done
from schema.compiler import compile_protos
from tests.unit.agent.http.conftest import Edge
from tests.unit.agent.http.registry_rig import A2, BROKEN, USES, A, Registry, reference

NAMING = "io.confluent.kafka.serializers.subject."


async def asked(registry: Registry, subject: str, text: str, code: int = 200, **more: Any) -> Any:
    body = {"schema": text, "schemaType": "PROTOBUF", **more}
    return await registry.ask("POST", f"/admin/subjects/{subject}/impact", body, code)


async def test_it_is_judged_and_not_written(edge: Edge, registry: Registry) -> None:
    told = await asked(registry, "s", A)
    assert (told["version"], told["registered_as"], told["compatible"]) == (1, None, True)
    await registry.register("s", A)
    await registry.register("uses", USES, references=[reference("s", 1)])
    before = edge.replica.state.revision
    told = await asked(registry, "s", A)
    assert (told["version"], told["registered_as"]) == (1, 1)
    told = await asked(registry, "s", A2)
    assert (told["version"], told["registered_as"], told["compatible"]) == (2, None, True)
    assert told["referenced_by"] == [{"subject": "uses", "version": 1}]
    told = await asked(registry, "s", BROKEN)
    assert told["compatible"] is False
    assert "FIELD_SCALAR_KIND_CHANGED" in told["problems"][0]
    await asked(registry, "s", "message {", 42201)
    assert edge.replica.state.revision == before


async def test_topics_by_how_they_are_bound(edge: Edge, registry: Registry) -> None:
    """Each way of binding; a topic that has nothing to do with it is not told."""
    for name in ("follows", "stays", "own", "plain", "other"):
        await edge.topic(name, partitions=2)
    by_name = {f"confluent.value.{key}": value for key, value in (
        ("schema.validation", "true"), ("subject.name.strategy", f"{NAMING}RecordNameStrategy"),
    )}  # fmt: skip
    await edge.topic("named", **by_name)
    await registry.register("plain-value", A)
    for bind in (
        BindSchema(topic="follows", subject="plain-value"),
        BindSchema(topic="stays", subject="plain-value", subject_version=1, role=BindSchema.KEY),
        BindSchema(topic="own", descriptor_set=compile_protos({"a.proto": A.encode()}), message="A"),
        BindSchema(topic="other", subject="elsewhere"),
    ):
        assert isinstance(await edge.replica.propose(bind), Done), bind
    topics = {each["topic"]: each for each in (await asked(registry, "plain-value", A2))["topics"]}
    assert {name: (each["how"], each["role"]) for name, each in topics.items()} == {
        "follows": ("follows", "value"), "stays": ("stays", "key"), "own": ("own", "value"),
        "plain": ("unbound", "value"),
    }  # fmt: skip
    assert topics["stays"]["subject_version"] == 1
    named = {each["topic"]: each["how"] for each in (await asked(registry, "A", A2))["topics"]}
    assert named == {"named": "named", "own": "own"}
    added = topics["follows"]["table"]["columns"]["added"]
    assert [row["column"] for row in added] == ["value.a", "value.b"], "it has no table yet: all is new"
    assert topics["follows"]["table"]["made"] is False
    assert topics["stays"]["table"] is None
    avro = (await asked(registry, "follows-key", '"string"', schemaType="AVRO"))["topics"]
    assert avro == [] or all(each["table"] is None for each in avro)


async def test_columns_of_several_types(edge: Edge, registry: Registry) -> None:
    """Of every kind of schema, inside the type's struct; of a subject's own file the first one's are told."""
    by_name = {f"confluent.value.{key}": value for key, value in (
        ("schema.validation", "true"), ("subject.name.strategy", f"{NAMING}TopicRecordNameStrategy"),
    )}  # fmt: skip
    await edge.topic("t", **by_name)
    await edge.topic("f", **{"confluent.value.schema.validation": "true"})
    avro = '{"type": "record", "name": "x.R", "fields": [{"name": "n", "type": ["null", "int"]}]}'
    json_ = '{"title": "S", "type": "object", "properties": {"p": {"type": "number"}}}'
    proto = 'syntax = "proto3"; message One { int32 a = 1; } message Two { int32 b = 1; }'
    wanted = {
        ("t-x.R", "AVRO", avro): [("value.R", "struct"), ("value.R.n", "int")],
        ("f-value", "AVRO", avro): [("value.n", "int")],
        ("t-S", "JSON", json_): [("value.S", "struct"), ("value.S.p", "double")],
        ("t-Two", "PROTOBUF", proto): [("value.Two", "struct"), ("value.Two.b", "int")],
        ("f-value", "PROTOBUF", proto): [("value.a", "int")],
    }
    for (subject, kind, text), due in wanted.items():
        (told,) = (await asked(registry, subject, text, schemaType=kind))["topics"]
        assert [(row["column"], row["type"]) for row in told["table"]["columns"]["added"]] == due, subject
    assert (await asked(registry, "t-R", avro, schemaType="AVRO"))["topics"] == [], "another name"


async def test_groups_that_read(edge: Edge, registry: Registry) -> None:
    await edge.topic("t")
    await edge.topic("u")
    for group, topic in (("one", "t"), ("two", "t"), ("far", "u")):
        handle = edge.replica.state.topics[topic].partitions[0].handle
        commit = CommitOffsets(group=group, generation=-1, partition=[handle], offset=[1])
        await edge.replica.propose(commit)
    (told,) = (await asked(registry, "t-value", A))["topics"]
    assert told["groups"] == ["one", "two"]
