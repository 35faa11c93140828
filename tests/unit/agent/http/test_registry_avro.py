"""Confluent's Schema Registry API with AVRO, the type that is meant where none is named."""

from __future__ import annotations

import json
from typing import Any

from tests.unit.agent.http.registry_rig import A2, Registry, reference

MONEY = '{"type":"record","name":"shop.Money","fields":[{"name":"units","type":"long"}]}'
ORDER = '{"type":"record","name":"shop.Order","fields":[{"name":"total","type":"Money"}]}'
WIDER = ORDER.replace("}]}", '},{"name":"note","type":"string","default":""}]}')
BROKEN = WIDER.replace(',"default":""', "")
MONEY_1 = reference("money", 1, "shop.Money")


async def register(registry: Registry, subject: str, text: str, code: int = 200, **more: Any) -> Any:
    """As clients do that know one type only."""
    path = f"/subjects/{subject}/versions{more.pop('query', '')}"
    return await registry.ask("POST", path, {"schema": text, **more}, code)


async def test_without_a_type_it_is_avro(registry: Registry) -> None:
    assert (await register(registry, "money", MONEY))["id"] == 1
    assert (await register(registry, "money", MONEY, schemaType="AVRO"))["id"] == 1
    assert (await register(registry, "money", MONEY, schemaType=None))["id"] == 1
    assert (await register(registry, "other", json.dumps(json.loads(MONEY), indent=2)))["id"] == 1
    for path in ("/subjects/money/versions/1", "/schemas/ids/1"):
        shown = await registry.get(path)
        assert ("schemaType" in shown, shown["schema"]) == (False, MONEY)
    assert (await registry.ask("POST", "/subjects/money", {"schema": MONEY}))["version"] == 1
    await registry.ask("POST", "/subjects/money", {"schema": ORDER.replace("Money", "Order")}, 40403)
    told = await register(registry, "money", A2, 42201)
    assert "line 1, column 1" in told["message"]
    told = await register(registry, "money", ORDER, 42201)
    assert 'fields[0] "total" type: "Money" is no known type' in told["message"]


async def test_references_and_compatibility(registry: Registry) -> None:
    await register(registry, "money", MONEY)
    await register(registry, "orders", ORDER, references=[MONEY_1])
    shown = await registry.get("/subjects/orders/versions/1")
    assert shown["references"] == [MONEY_1]
    assert await registry.get("/subjects/money/versions/1/referencedby") == [shown["id"]]
    assert (await register(registry, "orders", WIDER, references=[MONEY_1]))["version"] == 2
    path = "/compatibility/subjects/orders/versions/1?verbose=true"
    body: dict[str, Any] = {"schema": BROKEN, "references": [MONEY_1]}
    told = await registry.ask("POST", path, body)
    assert told["is_compatible"] is False
    assert told["messages"][0].startswith('{errorType:"READER_FIELD_MISSING_DEFAULT_VALUE", description:"')
    assert "(path '/fields/1')" in told["messages"][0]
    good = await registry.ask("POST", path, {**body, "schema": WIDER})
    assert good == {"is_compatible": True, "messages": []}
    broken = BROKEN.replace("note", "more")
    assert "/fields/1" in (await register(registry, "orders", broken, 409, references=[MONEY_1]))["message"]
    told = await registry.register("orders", A2, 409)
    assert "different schema type: PROTOBUF after AVRO" in told["message"]
    await registry.delete("/subjects/money/versions/1", 42206)


async def test_references_of_references(registry: Registry) -> None:
    """The type of a type is there for who names it, too."""
    await register(registry, "money", MONEY)
    await register(registry, "orders", ORDER, references=[MONEY_1])
    both = '["shop.Order","shop.Money"]'
    orders = reference("orders", 1, "shop.Order")
    assert (await register(registry, "all", both, references=[orders]))["id"] == 3
    await register(registry, "all", '["shop.Order","shop.Cent"]', 42201, references=[orders])


async def test_normalized_and_commented_texts(registry: Registry) -> None:
    text = '// money\n{"name": "Money", "namespace": "shop", "type": "record", "fields": []}'
    canonical = '{"type":"record","name":"shop.Money","fields":[]}'
    await register(registry, "money", text)
    shown = await registry.get("/subjects/money/versions/1")
    assert shown["schema"] == canonical, "clients read no comments"
    text = '{"name": "Other", "type": "record", "fields": []}'
    await register(registry, "other", text, query="?normalize=true")
    shown = await registry.get("/subjects/other/versions/1")
    assert shown["schema"] == '{"type":"record","name":"Other","fields":[]}'


async def test_a_schema_with_all_types_in_it_is_the_one_with_references(registry: Registry) -> None:
    """So Java's serializer asks, whose schemas know no references."""
    await register(registry, "money", MONEY)
    one = await register(registry, "orders", ORDER, references=[MONEY_1])
    await register(registry, "orders", WIDER, references=[MONEY_1])
    whole = ORDER.replace('"Money"', MONEY.replace("shop.Money", "Money"))
    found = await registry.ask("POST", "/subjects/orders", {"schema": whole})
    assert (found["id"], found["version"], found["references"]) == (one["id"], 1, [MONEY_1])
    again = await register(registry, "orders", whole)
    assert (again["id"], again["version"], again["guid"]) == (one["id"], 1, one["guid"])
    other = whole.replace('"units"', '"cents"')
    await registry.ask("POST", "/subjects/orders", {"schema": other}, 40403)
    await registry.ask(
        "POST", "/subjects/orders", {"schema": whole, "metadata": {"tags": {"a": ["b"]}}}, 40403
    )
    await registry.delete("/subjects/orders/versions/1")
    await registry.ask("POST", "/subjects/orders", {"schema": whole}, 40403)
    assert (await registry.ask("POST", "/subjects/orders?deleted=true", {"schema": whole}))["version"] == 1
