"""Topics whose records are of several types: each type is a struct column, and keeps it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from coordination.commands import AlterTopicConfigs, BindSchema
from coordination.state.types import Done
from iceberg.committer import CommitterOptions
from tests.unit.iceberg import rig as rigs
from tests.unit.iceberg.rig import Rig
from tests.unit.iceberg.test_tables_avro import ID, Team, ids, order, types
from tests.unit.iceberg.test_tables_bindings import values
from tests.unit.iceberg.test_tables_followed import ONE, TWO, VALIDATION, Registry

STRATEGY = "confluent__value__subject__name__strategy"
NAMING = "io.confluent.kafka.serializers.subject."
BY_RECORD = {**VALIDATION, STRATEGY: f"{NAMING}RecordNameStrategy"}
BY_TOPIC_AND_RECORD = {**VALIDATION, STRATEGY: f"{NAMING}TopicRecordNameStrategy"}
CLICK = 'syntax = "proto3"; package shop; message Click { string url = 1; uint64 id = 2; }'
OTHERS = 'syntax = "proto3"; package web.v1; message Click { bool bot = 1; } message Empty {}'
SALE: dict[str, Any] = {"title": "One sale!", "type": "object", "properties": {"id": {"type": "integer"}}}


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    """A cluster of one agent."""
    async with rigs.running(tmp_path) as found:
        yield found


@pytest.fixture
def registry(rig: Rig) -> Registry:
    return Registry(rig)


@pytest.fixture
def team(registry: Registry) -> Team:
    return Team(registry)


async def test_each_type_is_a_struct(rig: Rig, registry: Registry, team: Team) -> None:
    """Of all three kinds of schema, in one commit and one file; what is bad says so, and null is null."""
    await rig.create_topic(**BY_RECORD)
    shop = await registry.register(CLICK, "shop.Click")
    sale = await registry.register(json.dumps(SALE), "One sale!", "JSON")
    note = await team.register(order(ID, ("text", "string"), name="shop.Note"), "shop.Note")
    head = b"\x00" + sale.to_bytes(4, "big")
    await rig.produce(
        [
            registry.framed(shop, "Click", url="/", id=7),
            team.framed(note, {"id": 8, "text": "t"}),
            head + b'{"id": 9}',
            None,
            registry.framed(shop, "Click") + b"\xff",
            head + b'{"id": "x"}',
        ]
    )
    await rig.drain(rig.committer())
    assert await types(rig) == {
        "Click": {"url": "string", "id": "decimal(20, 0)"},
        "One_sale_": {"id": "long"},
        "Note": {"id": "long", "text": "string"},
    }
    found = await values(rig)
    assert found[:4] == [
        {"Click": {"url": "/", "id": 7}},
        {"Note": {"id": 8, "text": "t"}},
        {"One_sale_": {"id": 9}},
        None,
    ]
    assert [set(each or ()) for each in found[4:]] == [{"__err__"}, {"__err__"}]


async def test_a_new_type_is_a_new_column(rig: Rig, registry: Registry) -> None:
    """Rows that are there stay as they are; of two types of one name the later is called in full."""
    await rig.create_topic(**BY_RECORD)
    shop, web = await registry.register(CLICK, "shop.Click"), await registry.register(OTHERS, "web.v1.Click")
    await registry.register(OTHERS, "web.v1.Empty")
    await rig.produce([registry.framed(shop, "Click", url="/", id=1)])
    await rig.drain(rig.committer())
    before = await ids(rig)
    sent = [
        registry.framed(web, "Click", bot=True),
        registry.framed(web, "Empty"),
        registry.framed(shop, "Click", url="", id=2),
    ]
    await rig.produce(sent)
    await rig.drain(rig.committer())
    after = await ids(rig)
    assert after == {"Click": before["Click"], "web_v1_Click": after["web_v1_Click"]}
    assert await values(rig) == [
        {"Click": {"url": "/", "id": 1}},
        {"web_v1_Click": {"bot": True}},
        {},  # it has no field: no column either
        {"Click": {"url": "", "id": 2}},
    ]


@pytest.mark.parametrize("configs", [BY_RECORD, BY_TOPIC_AND_RECORD], ids=["record", "topic and record"])
async def test_a_type_evolves_inside_its_struct(rig: Rig, registry: Registry, configs: Any) -> None:
    """Ids by number, a rename is a rename by the newest version of its own subject, whoever comes first."""
    await rig.create_topic(**configs)
    beginning = "t-" if configs is BY_TOPIC_AND_RECORD else ""
    one = await registry.register(CLICK, f"{beginning}shop.Click")
    await rig.produce([registry.framed(one, "Click", url="/", id=1)])
    await rig.drain(rig.committer())
    before = (await rig.head()).metadata["schemas"][-1]["fields"][2]["type"]["fields"][-1]
    later = CLICK.replace("url = 1;", "address = 1; int32 n = 3;")
    two = await registry.register(later, f"{beginning}shop.Click")
    await rig.produce(
        [registry.framed(one, "Click", url="/a"), registry.framed(two, "Click", address="/b", n=3)]
    )
    await rig.drain(rig.committer())
    after = (await rig.head()).metadata["schemas"][-1]["fields"][2]["type"]["fields"][-1]
    assert (after["id"], after["name"]) == (before["id"], before["name"]) == (after["id"], "Click")
    numbers = [{each["name"]: each["id"] for each in one["type"]["fields"]} for one in (before, after)]
    assert numbers[1] == {"address": numbers[0]["url"], "id": numbers[0]["id"], "n": numbers[1]["n"]}
    assert await values(rig) == [
        {"Click": {"url": "/", "id": 1}},
        {"Click": {"address": "/a", "id": 0, "n": None}},
        {"Click": {"address": "/b", "id": 0, "n": 3}},
    ]


async def test_other_messages_of_a_subject_s_file(rig: Rig, registry: Registry) -> None:
    """The first one's fields stand where they always did; a binding to another one has that one's there."""
    await rig.create_topic(**VALIDATION)
    one = await registry.register(ONE)
    await rig.produce(
        [registry.framed(one, id=1, old="a"), registry.framed(one, "Refund", id=2, reason="late")]
    )
    await rig.drain(rig.committer())
    assert set(await types(rig)) == {"id", "old", "total", "at", "Refund"}
    assert await values(rig) == [{"id": 1, "old": "a"}, {"Refund": {"id": 2, "reason": "late"}}]
    await rig.create_topic("u")
    bind = BindSchema(topic="u", subject="t-value", message="shop.Refund")
    assert isinstance(await rig.replica.propose(bind), Done)
    await rig.produce([registry.framed(one, "Refund", id=2, reason="late")], topic="u")
    await rig.drain(rig.committer("u"))
    (row,) = await rig.rows("u")
    assert (row["value"]["id"], row["value"]["reason"]) == (2, "late")


async def test_a_type_keeps_the_place_that_it_has(rig: Rig, registry: Registry) -> None:
    """Columns beside each other stay so when types get structs, and structs when they no longer would."""
    await rig.create_topic(**VALIDATION)
    one = await registry.register(ONE)
    await registry.register(ONE, "shop.Order")
    await registry.register(ONE, "shop.Refund")
    click = await registry.register(CLICK, "shop.Click")
    orders, refunds = registry.framed(one, id=1, old="a"), registry.framed(one, "Refund", id=2, reason="r")
    await rig.produce([orders])
    await rig.drain(rig.committer())
    before = await ids(rig)
    change = AlterTopicConfigs.Change(name=STRATEGY.replace("__", "."), value=BY_RECORD[STRATEGY])
    assert isinstance(await rig.replica.propose(AlterTopicConfigs(topic="t", changes=[change])), Done)
    await rig.produce([orders, registry.framed(click, "Click", url="/", id=3), refunds])
    await rig.drain(rig.committer())
    back = AlterTopicConfigs.Change(name=change.name, value=f"{NAMING}TopicNameStrategy")
    assert isinstance(await rig.replica.propose(AlterTopicConfigs(topic="t", changes=[back])), Done)
    await rig.produce([orders, refunds])
    await rig.drain(rig.committer())
    assert (await ids(rig)).items() >= before.items()
    order_, refund = {"id": 1, "old": "a"}, {"Refund": {"id": 2, "reason": "r"}}
    assert await values(rig) == [order_, order_, {"Click": {"url": "/", "id": 3}}, refund, order_, refund]


async def test_a_struct_stays_when_the_topic_is_bound_otherwise(rig: Rig, registry: Registry) -> None:
    """To a subject whose first message it is, and to that message itself."""
    await rig.create_topic(**BY_RECORD)
    one = await registry.register(ONE, "shop.Order")
    assert await registry.register(ONE) == one
    framed = registry.framed(one, id=1, old="a")
    await rig.produce([framed])
    await rig.drain(rig.committer())
    changes = [
        AlterTopicConfigs.Change(name=name.replace("__", "."), operation="DELETE") for name in BY_RECORD
    ]
    assert isinstance(await rig.replica.propose(AlterTopicConfigs(topic="t", changes=changes)), Done)
    bind = BindSchema(topic="t", subject="t-value")
    assert isinstance(await rig.replica.propose(bind), Done)
    await rig.produce([framed])
    await rig.drain(rig.committer())
    own = b'syntax = "proto3"; package shop; message Order { uint64 id = 1; string old = 2; }'
    await rig.bind(own, "shop.Order")
    await rig.produce([framed[6:]])
    await rig.drain(rig.committer())
    assert [set(each or ()) for each in await values(rig)] == [{"Order"}] * 3
    assert list(await ids(rig)) == ["Order"]


async def test_the_message_that_is_bound_now_gives_names(rig: Rig, registry: Registry) -> None:
    """Also over rows that still come from when a subject was followed."""
    await rig.create_topic(**VALIDATION)
    one = await registry.register(CLICK)
    await rig.produce([registry.framed(one, "Click", url="/", id=1)])
    changes = [
        AlterTopicConfigs.Change(name=name.replace("__", "."), operation="DELETE") for name in VALIDATION
    ]
    assert isinstance(await rig.replica.propose(AlterTopicConfigs(topic="t", changes=changes)), Done)
    await rig.bind(CLICK.replace("url", "address").encode(), "shop.Click")
    await rig.produce([b"\x0a\x01a"])
    await rig.drain(rig.committer())
    assert await values(rig) == [{"address": "/", "id": 1}, {"address": "a", "id": 0}]


async def test_types_beside_each_other_take_no_names(rig: Rig, registry: Registry) -> None:
    """Of those that have no struct the names stay, whichever newest version comes first or last."""
    await rig.create_topic(partitions=1)
    own = b'syntax = "proto3"; package shop; message %s { uint64 id = 1; string %s = 2; }'
    for name, text in ((b"Order", b"old"), (b"Refund", b"reason")):
        await rig.bind(own % (name, text), f"shop.{name.decode()}")
        await rig.produce([b"\x08\x07"])
    await rig.drain(rig.committer())
    before = await ids(rig)
    assert isinstance(await rig.replica.propose(BindSchema(topic="t", unbind=True)), Done)
    changes = [
        AlterTopicConfigs.Change(name=name.replace("__", "."), value=value)
        for name, value in BY_RECORD.items()
    ]
    assert isinstance(await rig.replica.propose(AlterTopicConfigs(topic="t", changes=changes)), Done)
    one = await registry.register(TWO, "shop.Order")
    await registry.register(TWO, "shop.Refund")
    orders, refunds = registry.framed(one, id=1, remark="a"), registry.framed(one, "Refund", id=2, reason="r")
    for sent in ([orders, refunds], [refunds], [orders]):
        await rig.produce(sent)
        await rig.drain(rig.committer())
        assert (await ids(rig)).items() >= before.items()
    assert (await values(rig))[-2:] == [{"id": 2, "reason": "r"}, {"id": 1, "old": "a", "price": 0.0}]


async def test_types_beyond_the_bound_keep_their_bytes(rig: Rig, registry: Registry) -> None:
    """And have columns from their next rows on, once the bound is raised. Those that are there go on."""
    rig.options = CommitterOptions(types_max=1)
    await rig.create_topic(**BY_RECORD)
    shop, one = await registry.register(CLICK, "shop.Click"), await registry.register(ONE, "shop.Order")
    click, refund = registry.framed(shop, "Click", url="/", id=1), registry.framed(one, id=2, old="o")
    await rig.produce([click])
    await rig.drain(rig.committer())
    committer = rig.committer()
    await rig.produce([refund, click])
    await rig.drain(committer)
    assert await values(rig) == [{"Click": {"url": "/", "id": 1}}, {}, {"Click": {"url": "/", "id": 1}}]
    assert refund in [row["value"]["__raw__"] for row in await rig.rows()]
    rig.options = CommitterOptions(types_max=2)
    await rig.produce([refund])
    await rig.drain(rig.committer())
    last = (await values(rig))[-1]
    assert last is not None
    assert last["Order"]["old"] == "o"


async def test_types_in_keys_and_in_flat_tables(rig: Rig, registry: Registry) -> None:
    """A struct of a value stands at the top level, and can be partitioned and sorted by."""
    await rig.create_topic(
        **BY_RECORD,
        confluent__key__schema__validation="true",
        confluent__key__subject__name__strategy=f"{NAMING}RecordNameStrategy",
        floe__table__layout="flat",
        floe__table__sort="Click.url",
        floe__table__partition="value.Click.url",
    )
    click = await registry.register(CLICK, "shop.Click")
    framed = registry.framed(click, "Click", url="/", id=1)
    await rig.produce([framed], keys=[framed])
    await rig.drain(rig.committer())
    await rig.produce([framed], keys=[framed])
    await rig.drain(rig.committer())
    for row in await rig.rows():
        assert row["Click"] == {"url": "/", "id": 1}
        assert row["key"]["Click"] == {"url": "/", "id": 1}
    head = await rig.head()
    assert head.metadata["default-spec-id"] != 0 or head.metadata["partition-specs"][0]["fields"]
