"""The schema registry: deleting, config, modes, contexts."""

from __future__ import annotations

import pytest

from agent.version import VERSION
from tests.unit.agent.http.registry_rig import A2, A3, BROKEN, USES, A, Registry, reference


async def test_deleted_first_then_for_good(registry: Registry) -> None:
    for text in (A, A2, A3):
        await registry.register("s", text)
    await registry.delete("/subjects/nobody", 40401)
    await registry.delete("/subjects/s/versions/9", 40402)
    await registry.delete("/subjects/s/versions/0", 42202)
    await registry.delete("/subjects/s/versions/2?permanent=true", 40407)
    assert await registry.delete("/subjects/s/versions/2") == 2
    await registry.delete("/subjects/s/versions/2", 40406)
    assert await registry.get("/subjects/s/versions") == [1, 3]
    assert await registry.get("/subjects/s/versions?deleted=true") == [1, 2, 3]
    assert await registry.get("/subjects/s/versions?deletedOnly=true") == [2]
    assert await registry.get("/subjects/s/versions?deleted=true&deletedAsNegative=true") == [1, -2, 3]
    await registry.get("/subjects/s/versions/2", 40402)
    assert (await registry.get("/subjects/s/versions/2?deleted=true"))["deleted"] is True
    await registry.look_up("s", A2, 40403)
    assert (await registry.look_up("s", A2, query="?deleted=true"))["version"] == 2
    assert await registry.get("/schemas/ids/2/subjects") == []
    assert await registry.get("/schemas/ids/2/subjects?deleted=true") == ["s"]
    assert await registry.delete("/subjects/s/versions/latest") == 3
    await registry.delete("/subjects/s?permanent=true", 40405)
    assert await registry.delete("/subjects/s") == [1]
    await registry.delete("/subjects/s", 40404)
    await registry.get("/subjects/s/versions", 40401)
    await registry.get("/subjects/s/versions/latest", 40401)
    assert await registry.get("/subjects") == []
    assert await registry.get("/subjects?deleted=true") == ["s"]
    assert await registry.get("/subjects?deletedOnly=true") == ["s"]
    assert await registry.delete("/subjects/s/versions/2?permanent=true") == 2
    await registry.get("/schemas/ids/2", 40403)
    assert await registry.delete("/subjects/s?permanent=true") == [1, 3]
    assert await registry.get("/subjects?deleted=true") == []


async def test_config(registry: Registry) -> None:
    assert await registry.get("/config") == {"compatibilityLevel": "BACKWARD"}
    assert await registry.put("/config", compatibility="FULL") == {"compatibility": "FULL"}
    await registry.get("/config/s", 40408)
    assert await registry.get("/config/s?defaultToGlobal=true") == {"compatibilityLevel": "FULL"}
    assert await registry.put("/config/s", compatibility="forward", normalize=True) == {
        "compatibility": "FORWARD", "normalize": True,
    }  # fmt: skip
    assert await registry.get("/config/s") == {"compatibilityLevel": "FORWARD", "normalize": True}
    await registry.put("/config/s", 42203, compatibility="SIDEWAYS")
    await registry.put("/config", 42203)
    told = await registry.put("/config", 42205, compatibility="FULL", overrideMetadata={"tags": {}})
    assert "overrideMetadata" in told["message"]
    deleted = await registry.delete("/config/s")
    assert deleted == {"compatibilityLevel": "FORWARD", "normalize": True}
    await registry.delete("/config/s", 40401)
    assert await registry.delete("/config") == {"compatibilityLevel": "FULL"}
    assert await registry.get("/config") == {"compatibilityLevel": "BACKWARD"}


@pytest.mark.parametrize(
    ("given", "wanted"), [(False, False), ("false", False), ("True", True), (True, True)]
)
async def test_whether_texts_are_normalized_is_true_or_false(
    registry: Registry, given: object, wanted: bool
) -> None:
    """The text "false" switched it on."""
    assert await registry.put("/config/s", normalize=given) == {"normalize": wanted}
    assert await registry.get("/config/s") == {"normalize": wanted}


@pytest.mark.parametrize("given", ["", "no", "0", 0, 1, [], ["false"], {}])
async def test_what_is_neither_true_nor_false_is_refused(registry: Registry, given: object) -> None:
    await registry.put("/config/s", 422, normalize=given)
    await registry.get("/config/s", 40408)


async def test_an_alias_means_another_subject(registry: Registry) -> None:
    assert await registry.put("/config/a", alias="s") == {"alias": "s"}
    assert await registry.get("/config/a") == {"alias": "s"}
    assert (await registry.register("a", A))["version"] == 1
    assert await registry.get("/subjects") == ["s"]
    assert (await registry.get("/subjects/a/versions/1"))["subject"] == "s"
    assert await registry.get("/subjects/a/versions") == [1]
    assert (await registry.look_up("a", A))["subject"] == "s"
    await registry.register("a", BROKEN, 409)
    tested = {"schema": BROKEN, "schemaType": "PROTOBUF"}
    for end in ("", "/latest"):
        told = await registry.ask("POST", f"/compatibility/subjects/a/versions{end}", tested)
        assert told == {"is_compatible": False}
    await registry.put("/config/s", compatibility="FULL")
    assert (await registry.get("/config/a")) == {"alias": "s"}, "configs are each name's own"
    assert await registry.put("/config/b", alias="a") == {"alias": "a"}
    await registry.get("/subjects/b/versions", 40401)  # one step, as there
    assert await registry.delete("/subjects/a/versions/1") == 1
    assert await registry.delete("/subjects/a/versions/1?permanent=true") == 1
    assert (await registry.put("/config/a", alias=""))["alias"] == ""
    await registry.get("/config/a", 40408)
    await registry.get("/subjects/a/versions", 40401)
    for name, given in (("a", 7), ("a", "x" * 2000), ("", "s"), (":.x:", "s")):
        told = await registry.put(f"/config/{name}".rstrip("/"), 42205, alias=given)
        assert "alias" in told["message"]


async def test_versions_are_compared_within_their_group(registry: Registry) -> None:
    """As Confluent's: those with the same value of the property, no value being one."""
    first = {"metadata": {"properties": {"major": "1"}}}
    second = {"metadata": {"properties": {"major": "2"}}}
    await registry.register("s", A, **first)
    await registry.register("s", BROKEN, 409, **second)
    assert await registry.put("/config/s", compatibilityGroup="major") == {"compatibilityGroup": "major"}
    assert await registry.get("/config/s?defaultToGlobal=true") == {
        "compatibilityLevel": "BACKWARD", "compatibilityGroup": "major",
    }  # fmt: skip
    await registry.register("s", BROKEN, **second)
    await registry.register("s", A2, **first)
    await registry.register("s", A2, 409, **second)
    await registry.register("s", BROKEN)  # of no group, in which nobody was
    await registry.register("s", A2, 409)
    path = "/compatibility/subjects/s/versions"
    body = {"schema": A3, "schemaType": "PROTOBUF"}
    for end, more, goes in (
        ("", first, True),
        ("", second, False),
        ("/1", second, True),
        ("/2", second, False),
    ):
        told = await registry.ask("POST", path + end, {**body, **more})
        assert told == {"is_compatible": goes}, (end, more)
    await registry.put("/config/s", compatibility="FULL_TRANSITIVE", compatibilityGroup=None)
    assert await registry.ask("POST", path, {**body, **first}) == {"is_compatible": False}


async def test_who_it_is(registry: Registry) -> None:
    clusters = (await registry.get("/v1/metadata/id"))["scope"]["clusters"]
    assert clusters.keys() == {"kafka-cluster", "schema-registry-cluster"}
    assert (await registry.get("/v1/metadata/version"))["version"] == VERSION


async def test_normalized_text(registry: Registry) -> None:
    odd = 'syntax="proto3";message A{string b=2;int32 a=1;}'
    normal = 'syntax = "proto3";\n\nmessage A {\n  int32 a = 1;\n  string b = 2;\n}\n'
    await registry.register("s", odd)
    assert (await registry.get("/schemas/ids/1"))["schema"] == odd
    other = odd.replace("b=2", "c=2")
    await registry.register("t", other, query="?normalize=True")
    assert (await registry.get("/schemas/ids/2"))["schema"] == normal.replace("b", "c")
    await registry.put("/config/u", normalize=True)
    await registry.register("u", odd.replace("b=2", "d=2"))
    assert (await registry.get("/schemas/ids/3"))["schema"] == normal.replace("b", "d")


async def test_modes(registry: Registry) -> None:
    assert await registry.get("/mode") == {"mode": "READWRITE"}
    await registry.get("/mode/s", 40409)
    assert await registry.get("/mode/s?defaultToGlobal=true") == {"mode": "READWRITE"}
    await registry.register("s", A)
    assert await registry.put("/mode/s", mode="readonly") == {"mode": "READONLY"}
    told = await registry.register("s", A2, 42205)
    assert told["message"] == "Subject s is in read-only mode"
    await registry.delete("/subjects/s", 42205)
    await registry.put("/config/s", 42205, compatibility="NONE")
    assert (await registry.register("s", A))["id"] == 1
    await registry.put("/mode", 42204, mode="SOMETIMES")
    await registry.put("/mode/s", 42204, mode="READONLY_OVERRIDE")
    await registry.put("/mode", 42205, mode="IMPORT")
    assert await registry.delete("/mode/s") == {"mode": "READONLY"}
    await registry.delete("/mode/s", 40401)
    told = await registry.register("s", A2, 42205, id=77)
    assert told["message"] == "Subject s is not in import mode"
    assert await registry.put("/mode?force=true", mode="IMPORT") == {"mode": "IMPORT"}
    told = await registry.register("s", A2, 42205)
    assert told["message"] == "Subject s is not in read-write mode"
    told = await registry.register("s", BROKEN, id=77, version=5)
    assert (told["id"], told["version"]) == (77, 5)
    await registry.register("s", A3, 42205, id=77)
    assert await registry.delete("/mode") == {"mode": "IMPORT"}
    assert (await registry.register("t", A3))["id"] == 78


async def test_contexts(registry: Registry) -> None:
    await registry.register(":.x:s", A)
    await registry.register("s", A)
    body = {"schema": A2, "schemaType": "PROTOBUF"}
    assert (await registry.ask("POST", "/contexts/.y/subjects/s/versions", body))["id"] == 2
    assert await registry.get("/contexts") == [".", ".x", ".y"]
    assert await registry.get("/subjects") == [":.x:s", ":.y:s", "s"]
    assert await registry.get("/subjects?subjectPrefix=:.x:") == [":.x:s"]
    assert await registry.get("/subjects?subjectPrefix=") == ["s"]
    assert await registry.get("/subjects?subjectPrefix=:*:s") == [":.x:s", ":.y:s", "s"]
    assert await registry.get("/subjects?subjectPrefix=t") == []
    assert await registry.get("/contexts/.y/subjects") == [":.y:s"]
    assert await registry.get("/contexts/.y/subjects/s/versions") == [1]
    assert await registry.get("/subjects/:.:s/versions") == [1], "the default context by its name"
    assert (await registry.put("/config/:.x:", compatibility="NONE"))["compatibility"] == "NONE"
    await registry.register(":.x:s", BROKEN)
    await registry.register("s", BROKEN, 409)
    uses = {"references": [reference("s", 1)]}
    await registry.register(":.x:uses", USES, **uses)
    shown = await registry.get("/subjects/:.x:uses/versions/1")
    assert shown["references"] == [reference(":.x:s", 1)], "names are of the context that they are used in"
    metrics = (await registry.client.get("/metrics")).text
    assert 'route="/contexts/{context}/subjects"' in metrics, "a label for all contexts"
    assert ".y" not in metrics
    answer = await registry.client.get("/contexts/bad/subjects")
    assert (answer.status_code, answer.json()["error_code"]) == (422, 42212)
