"""Confluent's Schema Registry API, as its reference has it: paths, answers, codes and words."""

from __future__ import annotations

import asyncio
import base64
import math
from typing import Any

import httpx
import pytest
from google.protobuf import descriptor_pb2

from agent.http.registry import subjects, writes
from coordination.commands import BindSchema, RegisterSchema
from coordination.state import Done
from schema.registry.kinds import KINDS
from tests.unit.agent.http.conftest import Edge
from tests.unit.agent.http.registry_rig import A2, A3, BROKEN, USES, A, Registry, reference


async def test_registered_and_read_in_every_way(registry: Registry) -> None:
    told = await registry.register("s", A)
    assert (told["id"], told["version"]) == (1, 1)
    version = {
        "subject": "s", "version": 1, "id": 1, "guid": told["guid"], "schemaType": "PROTOBUF", "schema": A,
    }  # fmt: skip
    for number in ("1", "latest", "-1"):
        assert await registry.get(f"/subjects/s/versions/{number}") == version
    assert await registry.get("/subjects") == ["s"]
    assert await registry.get("/subjects/s/versions") == [1]
    schema = {"guid": told["guid"], "schemaType": "PROTOBUF", "schema": A}
    assert await registry.get("/schemas/ids/1") == schema
    assert await registry.get(f"/schemas/guids/{told['guid']}") == schema
    assert (await registry.get("/schemas/ids/1?fetchMaxId=true"))["maxId"] == 1
    assert await registry.get(f"/schemas/guids/{told['guid']}/ids") == [{"context": ".", "id": 1}]
    assert await registry.get("/schemas/ids/1/subjects") == ["s"]
    assert await registry.get("/schemas/ids/1/versions") == [{"subject": "s", "version": 1}]
    assert await registry.get("/schemas") == [version]
    assert await registry.get("/schemas/types") == [*KINDS]
    for path in ("/schemas/ids/1/schema", "/subjects/s/versions/1/schema"):
        answer = await registry.client.get(path)
        assert (answer.status_code, answer.text) == (200, A)
    shown = await registry.get("/schemas/ids/1?format=serialized")
    file = descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(shown["schema"]))
    assert [message.name for message in file.message_type] == ["A"]


async def test_formats(registry: Registry) -> None:
    """Each names what its type has; of others, and of unknown names, the text is told as it is."""
    custom = (
        'syntax = "proto3"; import "google/protobuf/descriptor.proto"; '
        "extend google.protobuf.FieldOptions { string why = 50001; } "
        'message M { string m = 1 [(why) = "not", deprecated = true]; }'
    )
    await registry.register("p", custom)
    plain = (await registry.get("/subjects/p/versions/1?format=ignore_extensions"))["schema"]
    assert "string m = 1 [deprecated = true];" in plain
    assert "why" not in plain
    rules = (
        'syntax = "proto3"; import "buf/validate/validate.proto"; '
        "message M { int32 m = 1 [(buf.validate.field).int32.gt = 0]; }"
    )
    await registry.register("r", rules)
    plain = (await registry.get("/subjects/r/versions/1?format=ignore_extensions"))["schema"]
    assert "int32 m = 1;" in plain, "custom options of what it imports are left out, too"
    for name in ("resolved", "odd", ""):
        assert (await registry.get(f"/subjects/p/versions/1?format={name}"))["schema"] == custom
    money = '{"type":"record","name":"shop.Money","fields":[{"name":"n","type":"long"}]}'
    uses = (
        '{"type":"record","name":"O","fields":[{"name":"a","type":"shop.Money"},'
        '{"name":"b","type":["null","shop.Money"]}]}'
    )
    await registry.register("m", money, schemaType="AVRO")
    referring = [reference("m", 1, "shop.Money")]
    told = await registry.register("o", uses, schemaType="AVRO", references=referring)
    whole = uses.replace('"a","type":"shop.Money"', f'"a","type":{money}')
    asked = f"/schemas/ids/{told['id']}"
    assert (await registry.get(asked))["schema"] == uses
    assert (await registry.get(f"{asked}?format=resolved"))["schema"] == whole
    assert (await registry.client.get(f"{asked}/schema?format=resolved")).text == whole
    assert (await registry.get("/subjects/o/versions/1?format=resolved"))["schema"] == whole
    shown = await registry.get("/schemas?format=resolved")
    assert [one["schema"] for one in shown] == [money, whole, custom, rules]


async def test_again_elsewhere_and_newer(registry: Registry) -> None:
    for _ in range(2):
        assert (await registry.register("s", A))["id"] == 1
    assert (await registry.register("t", A))["id"] == 1, "one id of one content"
    assert (await registry.register("s", f"// words\n{A}"))["version"] == 1, "which means the same"
    assert (await registry.register("s", A2))["version"] == 2
    assert await registry.get("/subjects/s/versions") == [1, 2]
    found = await registry.look_up("s", A)
    assert (found["id"], found["version"], found["subject"]) == (1, 1, "s")
    await registry.look_up("s", A3, 40403)
    await registry.look_up("nobody", A, 40401)


async def test_what_is_there_is_not_written_again(edge: Edge, registry: Registry) -> None:
    """Clients that register by themselves do so with every start."""
    await registry.register("s", A)
    before = edge.replica.state.revision
    await registry.register("s", A)
    assert edge.replica.state.revision == before


async def test_ids_are_those_of_bindings_too(edge: Edge, registry: Registry) -> None:
    await edge.topic("t")
    bind = BindSchema(topic="t", descriptor_set=b"x", message="m")
    assert await edge.replica.propose(bind) == Done(1)
    assert (await registry.register("s", A))["id"] == 2
    await registry.get("/schemas/ids/1", 40403)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"schema": "message A {", "schemaType": "PROTOBUF"}, "schema.proto:1:12"),
        ({"schema": "  ", "schemaType": "PROTOBUF"}, "Empty schema"),
        ({"schema": A, "schemaType": "XML"}, "schema type 'XML' is unknown"),
        ({"schema": A, "schemaType": "PROTOBUF", "references": [{"name": "x"}]}, "references.0.subject"),
        (
            {"schema": USES, "schemaType": "PROTOBUF", "references": [reference("a", 1)]},
            "No schema reference",
        ),
        ({"schema": A, "schemaType": "PROTOBUF", "metadata": "x"}, "metadata"),
        ({"schema": A, "schemaType": "PROTOBUF", "version": 2}, "with an id only"),
        ({"schema": 7, "schemaType": "PROTOBUF"}, "schema: Input should be a valid string"),
    ],
)
async def test_what_is_no_schema(registry: Registry, body: dict[str, Any], words: str) -> None:
    for path in ("/subjects/s/versions", "/compatibility/subjects/s/versions"):
        if path.startswith("/compat") and "version" in body:
            continue
        told = await registry.ask("POST", path, body, 42201)
        assert words in told["message"]
    assert await registry.get("/subjects") == []


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        (
            "POST",
            "/subjects/s/versions",
            {"schema": A, "schemaType": "PROTOBUF", "metadata": {"a": "\ud800"}},
        ),
        ("POST", "/subjects/s/versions", {"schema": "\udfff", "schemaType": "PROTOBUF"}),
        (
            "POST",
            "/subjects/s/versions",
            {"schema": A, "schemaType": "PROTOBUF", "metadata": {"a": math.nan}},
        ),
        ("PUT", "/config/s", {"alias": "\ud800"}),
        ("PUT", "/config/s", {"\ud800": "x", "normalize": True}),
        ("PUT", "/mode/s", {"mode": "\ud800"}),
    ],
    ids=str,
)
async def test_bodies_that_nothing_could_keep(
    registry: Registry, method: str, path: str, body: object
) -> None:
    """Half a surrogate pair is no character, and NaN no number of JSON."""
    told = await registry.ask(method, path, body, 400)
    assert told["message"].startswith("the body is not JSON: ")
    assert await registry.get("/subjects") == []
    await registry.get("/config/s", 40408)


async def test_bodies_that_are_none(registry: Registry) -> None:
    for content in (b"{", b'{"a": "\xff"}', b'{"a": "\xed\xa0\x80"}', b"9" * 5_000, b"[" * 5_000):
        answer = await registry.client.post("/subjects/s/versions", content=content)
        assert (answer.status_code, answer.json()["error_code"]) == (400, 400)
    await registry.ask("POST", "/subjects/s/versions", [1], 422)
    answer = await registry.client.post("/subjects/s/versions", content=b"x" * 70_000)
    assert (answer.status_code, answer.json()["error_code"]) == (422, 42209)


async def test_compatibility_is_asked_and_kept(registry: Registry) -> None:
    await registry.register("s", A)
    told = await registry.register("s", BROKEN, 409)
    assert 'incompatible with an earlier schema for subject "s", details: [' in told["message"]
    assert 'errorType:"FIELD_SCALAR_KIND_CHANGED"' in told["message"]
    assert "(path '#/A/1')" in told["message"]
    path = "/compatibility/subjects/s/versions"
    body = {"schema": BROKEN, "schemaType": "PROTOBUF"}
    for end in ("", "/latest", "/1"):
        assert await registry.ask("POST", path + end, body) == {"is_compatible": False}
        answer = await registry.ask("POST", f"{path}{end}?verbose=true", body)
        assert (answer["is_compatible"], len(answer["messages"])) == (False, 4)
        good = await registry.ask("POST", f"{path}{end}?verbose=true", {**body, "schema": A2})
        assert good == {"is_compatible": True, "messages": []}
    await registry.ask("POST", path + "/7", body, 40402)
    await registry.ask("POST", path + "/0", body, 42202)
    nobody = "/compatibility/subjects/nobody/versions"
    assert await registry.ask("POST", nobody + "/latest", body) == {"is_compatible": True}
    await registry.ask("POST", nobody + "/1", body, 40402)
    for end in ("", "/1", "/latest"):
        none = {**body, "schema": "no schema"}
        await registry.ask("POST", path + end, none, 42201)
        told = await registry.ask("POST", f"{path}{end}?verbose=true", none)
        assert (told["is_compatible"], len(told["messages"])) == (False, 1)
        assert told["messages"][0].startswith("Invalid schema: ")
    assert await registry.put("/config/s", compatibility="none") == {"compatibility": "NONE"}
    assert (await registry.register("s", BROKEN))["version"] == 2


async def test_transitive_levels(registry: Registry) -> None:
    """1: a number, 2: nothing, 3: text; only the transitive levels remember the first."""
    first, second, third = (
        f'syntax = "proto3"; message A {{ {fields} }}' for fields in ("int32 a = 1;", "", "string a = 1;")
    )
    await registry.put("/config", compatibility="BACKWARD_TRANSITIVE")
    await registry.register("s", first)
    await registry.register("s", second)
    await registry.register("s", third, 409)
    await registry.delete("/subjects/s/versions/1")
    assert (await registry.register("s", third))["version"] == 3, "a deleted version counts no more"


async def test_references(registry: Registry) -> None:
    await registry.register("a", A)
    told = await registry.register("b", USES, references=[reference("a", -1)])
    assert told["id"] == 2
    shown = await registry.get("/subjects/b/versions/1")
    assert shown["references"] == [reference("a", 1)]
    assert await registry.get("/subjects/a/versions/1/referencedby") == [2]
    assert (await registry.look_up("b", USES, references=[reference("a", 1)]))["version"] == 1
    await registry.look_up("b", USES, 42201)
    deep = 'syntax = "proto3"; import "b.proto"; message C { B b = 1; }'
    assert (await registry.register("c", deep, references=[reference("b", 1, "b.proto")]))["id"] == 3
    await registry.register("b", USES.replace("= 1", "= 2"), 409, references=[reference("a", 1)])
    await registry.register("a", A2)
    clash = [reference("b", 1, "b.proto"), reference("a", 2)]
    told = await registry.register("d", deep, 42201, references=clash)
    assert "two different files" in told["message"]
    told = await registry.delete("/subjects/a", 42206)
    assert "subject=a,version=1" in told["message"]
    await registry.delete("/subjects/a/versions/1", 42206)
    assert await registry.delete("/subjects/c") == [1]
    assert await registry.delete("/subjects/b") == [1]
    assert await registry.delete("/subjects/a") == [1, 2]
    await registry.delete("/subjects/a?permanent=true", 42206)
    assert await registry.get("/schemas/ids/2") is not None, "records that name it are still read"
    assert await registry.get("/subjects/a/versions/1/referencedby?deleted=true") == [2]


async def test_a_reference_that_changes_meanwhile_is_read_again(
    edge: Edge, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Deleted for good and registered anew while the schema that refers to it is compiled."""
    await registry.register("a", A)
    whole, count = writes.WriteRoutes._judge, 0

    async def judge(self: writes.WriteRoutes, *args: Any) -> int:
        nonlocal count
        count += 1
        if count == 1:
            for end in ("", "?permanent=true"):
                await registry.delete(f"/subjects/a{end}")
            await registry.register("a", A2)
        return await whole(self, *args)

    monkeypatch.setattr(writes.WriteRoutes, "_judge", judge)
    await registry.register("b", USES, references=[reference("a", -1)])
    assert count > 2, "of a again, of b twice"
    held = edge.replica.state.subjects
    assert len(held.schemas) == 2


async def test_two_that_register_at_once_are_judged_one_by_the_other(
    edge: Edge, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another agent's version comes between judgement and log: the schema is judged again, by it too."""
    await registry.register("s", A)
    whole, judged = writes.WriteRoutes._propose, []

    async def propose(self: writes.WriteRoutes, subject: str, *rest: Any) -> Any:
        judged.append(subject)
        if len(judged) == 1:
            other = await registry.register("s", 'syntax = "proto3"; message A { int32 a = 1; int32 b = 2; }')
            assert other["version"] == 2
        return await whole(self, subject, *rest)

    monkeypatch.setattr(writes.WriteRoutes, "_propose", propose)
    told = await registry.register("s", A2, 409)
    assert "(path '#/A/2')" in told["message"], "b is a number in what came first"
    assert judged == ["s", "s"]
    assert list(edge.replica.state.subjects.subjects["s"].versions) == [1, 2]


async def test_who_is_always_overtaken_is_told(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(*_: object) -> None:
        return None

    monkeypatch.setattr(writes.WriteRoutes, "_propose", never)
    answer = await registry.client.post("/subjects/s/versions", json={"schema": A, "schemaType": "PROTOBUF"})
    assert (answer.status_code, answer.json()["error_code"]) == (500, 50001)


async def test_many_at_once_get_one_id_each(edge: Edge, registry: Registry) -> None:
    texts = [A2.replace("string b", f"string b{number}") for number in range(6)]
    told = await asyncio.gather(*(registry.register("s", text) for text in (*texts, *texts)))
    ids = [one["id"] for one in told]
    assert ids[:6] == ids[6:]
    assert sorted(set(ids)) == [1, 2, 3, 4, 5, 6]
    assert len(edge.replica.state.subjects.subjects["s"].versions) == 6


@pytest.mark.parametrize("name", ["__GLOBAL", "__EMPTY", "%00", "x" * 1025, ":.x:"])
async def test_what_is_no_subject(registry: Registry, name: str) -> None:
    await registry.register(name, A, 42208)


async def test_subjects_with_slashes_and_other_letters(registry: Registry) -> None:
    for name in ("a%2Fb", "%C3%A4%20b", "com.x-y_z"):
        await registry.register(name, A)
        assert (await registry.get(f"/subjects/{name}/versions/latest"))["version"] == 1
        assert await registry.get(f"/subjects/{name}/versions") == [1]
    assert await registry.get("/subjects") == ["a/b", "com.x-y_z", "ä b"]


async def test_pages_and_latest(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a", "b", "c"):
        await registry.register(name, A)
        await registry.register(name, A2)
    assert await registry.get("/subjects?offset=1&limit=1") == ["b"]
    assert await registry.get("/subjects?offset=1") == ["b", "c"]
    assert await registry.get("/subjects?limit=-1&offset=-5") == ["a", "b", "c"]
    assert await registry.get("/subjects/a/versions?offset=1&limit=9") == [2]
    await registry.get("/subjects?limit=x", 400)
    rows = await registry.get("/schemas?latestOnly=true&subjectPrefix=b")
    assert [(row["subject"], row["version"]) for row in rows] == [("b", 2)]
    assert len(await registry.get("/schemas")) == 6
    monkeypatch.setattr(subjects, "SCHEMAS_PER_ANSWER", 4)
    assert len(await registry.get("/schemas")) == len(await registry.get("/schemas?limit=5")) == 4
    assert len(await registry.get("/schemas?offset=4")) == 2
    assert len(await registry.get("/schemas/ids/1/versions?limit=2")) == 2


async def test_metadata_and_rules_are_content(registry: Registry) -> None:
    metadata = {"properties": {"owner": "me"}, "tags": {"A.a": ["PII"]}, "sensitive": ["x"]}
    rules = {"domainRules": [{"name": "r", "kind": "CONDITION", "type": "CEL", "expr": "true"}]}
    first = await registry.register("s", A, metadata=metadata, ruleSet=rules)
    other = await registry.register("s", A)
    assert first["id"] != other["id"]
    shown = await registry.get("/subjects/s/versions/1")
    assert (shown["metadata"], shown["ruleSet"]) == (metadata, rules)
    again = await registry.register("s", A, metadata=dict(reversed(metadata.items())), ruleSet=rules)
    assert again["id"] == first["id"]
    assert (await registry.look_up("s", A))["version"] == 2
    assert (await registry.get("/subjects/s/metadata?key=owner&value=me"))["version"] == 1
    assert (await registry.get("/subjects/s/metadata"))["version"] == 2
    await registry.get("/subjects/s/metadata?key=owner&value=you", 40403)


@pytest.mark.parametrize(
    "path", ["/subjects/s/versions/x", "/subjects/s/versions/0", "/subjects/s/versions/-2"]
)
async def test_what_is_no_version(registry: Registry, path: str) -> None:
    told = await registry.get(path, 42202)
    assert "is not a valid version id" in told["message"]
    await registry.get("/subjects/s/versions/99999999999", 42202)


async def test_what_is_not_there(registry: Registry) -> None:
    assert (await registry.get("/subjects/s/versions", 40401))["message"] == "Subject 's' not found."
    assert (await registry.get("/schemas/ids/7", 40403))["message"] == "Schema 7 not found"
    await registry.get("/schemas/ids/9999999999999", 40403)
    await registry.get("/schemas/ids/x", 404)
    await registry.get("/schemas/guids/x", 40403)
    await registry.register("s", A)
    assert (await registry.get("/subjects/s/versions/2", 40402))["message"] == "Version 2 not found."


async def test_reads_are_of_what_other_agents_wrote(edge: Edge, registry: Registry) -> None:
    """Rule 5; and where the log does not answer, that is said."""
    message = RegisterSchema(
        subject="s",
        schema_type="PROTOBUF",
        text=A,
        canonical=b"c",
        judged_revision=edge.replica.state.revision,
    )
    await edge.replica.propose(message)
    assert await registry.get("/subjects") == ["s"]
    edge.log.faults.refused = True
    answer = await registry.client.get("/subjects")
    assert (answer.status_code, answer.json()["error_code"]) == (503, 50001)
    answer = await registry.client.put("/config", json={"compatibility": "NONE"})
    assert (answer.status_code, answer.json()["error_code"]) == (504, 50002), "it may have happened"


async def test_below_its_level_nothing_can_be_registered(edge: Edge, client: httpx.AsyncClient) -> None:
    edge.replica.state.feature_level = 1
    registry = Registry(client)
    told = await registry.register("s", A, 42205)
    assert "needs feature level" in told["message"]
    await registry.put("/config", 42205, compatibility="NONE")
