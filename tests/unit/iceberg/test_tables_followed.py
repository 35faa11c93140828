"""Tables of topics that follow subjects: each row is decoded by the message that its frame names."""

import pickle
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import message_factory

from coordination.commands import (
    AlterTopicConfigs,
    BindSchema,
    DeleteSchemaVersions,
    PutSubjectSettings,
    RegisterSchema,
    SchemaReference,
)
from coordination.state.types import Done
from iceberg.committer import Committer
from iceberg.layout import MissingSchemas
from iceberg.writers import ProcessWriter
from schema import framing
from schema.registry import protobuf
from schema.registry.kinds import KINDS
from tests.unit.iceberg import rig as rigs
from tests.unit.iceberg.rig import Rig
from tests.unit.iceberg.test_tables_bindings import values

MONEY = 'syntax = "proto3"; package shop; message Money { int64 units = 1; }'
ONE = """
syntax = "proto3"; package shop; import "google/protobuf/timestamp.proto"; import "money.proto";
message Order { uint64 id = 1; string old = 2; Money total = 3; google.protobuf.Timestamp at = 4; }
message Refund { uint64 id = 1; string reason = 2; }
"""
TWO = ONE.replace("string old = 2;", "string remark = 2; double price = 5;")
OTHER = 'syntax = "proto3"; package shop; message Click { string url = 1; uint64 id = 2; }'
VALIDATION = {"confluent__value__schema__validation": "true"}


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    """A cluster of one agent."""
    async with rigs.running(tmp_path) as found:
        yield found


class Registry:
    """Registers schemas, and writes records by them."""

    def __init__(self, rig: Rig) -> None:
        self._rig = rig
        self._imports = {"money.proto": protobuf.parse(MONEY, {}).canonical}
        self._forms: dict[int, tuple[bytes, dict[str, bytes]]] = {}

    async def register(
        self,
        text: str,
        subject: str = "t-value",
        schema_type: str = "PROTOBUF",
        given: int = 0,
        metadata: str = "",
    ) -> int:
        imports = self._imports if "money.proto" in text else {}
        form = KINDS[schema_type].parse(text, imports).canonical
        references = [SchemaReference(name="money.proto", subject="money", version=1)] if imports else []
        if references and "money" not in self._rig.replica.state.subjects.subjects:
            await self.register(MONEY, "money")
        message = RegisterSchema(
            subject=subject, schema_type=schema_type, text=text, canonical=form, references=references,
            judged_revision=1 << 40, schema_id=given, metadata=metadata,
        )  # fmt: skip
        done = await self._rig.replica.propose(message)
        assert isinstance(done, Done), done
        placed: Any = done.value
        self._forms[placed[0]] = (form, imports)
        return int(placed[0])

    async def delete(self, subject: str, *versions: int) -> None:
        """For good."""
        for permanent in (False, True):
            message = DeleteSchemaVersions(subject=subject, version=versions, permanent=permanent)
            assert isinstance(await self._rig.replica.propose(message), Done)

    def framed(self, schema_id: int, message: str = "Order", **fields: Any) -> bytes:
        form, imports = self._forms[schema_id]
        kind = protobuf.load(form, imports).message_types_by_name[message]
        made = message_factory.GetMessageClass(kind)(**fields)
        indexes = (list(kind.file.message_types_by_name).index(message),)
        return framing.prefix(schema_id, indexes) + made.SerializeToString()


@pytest.fixture
def registry(rig: Rig) -> Registry:
    return Registry(rig)


async def columns(rig: Rig) -> list[str]:
    """Of the value, in their order."""
    fields = (await rig.head()).metadata["schemas"][-1]["fields"][2]["type"]["fields"]
    return [each["name"] for each in fields if not each["name"].startswith("__")]


async def test_rows_are_decoded_by_the_version_that_they_name(rig: Rig, registry: Registry) -> None:
    """Two versions in one batch, with what they import; the newest gives columns their names."""
    await rig.create_topic(**VALIDATION)
    one = await registry.register(ONE)
    await rig.produce([registry.framed(one, id=1, old="a", total={"units": 5})])
    committer = rig.committer()
    await rig.drain(committer)
    assert await columns(rig) == ["id", "old", "total", "at"]
    two = await registry.register(TWO)
    await rig.produce(
        [registry.framed(two, id=2, remark="b", price=0.5), None, registry.framed(one, id=3, old="c")]
    )
    await rig.drain(committer)
    assert await columns(rig) == ["id", "remark", "total", "at", "price"]
    assert await values(rig) == [
        {"id": 1, "old": "a", "total": {"units": 5}},
        {"id": 2, "remark": "b", "price": 0.5},
        None,
        {"id": 3, "remark": "c"},
    ]


async def test_a_committer_that_starts_anew_renames_nothing(rig: Rig, registry: Registry) -> None:
    """Rows of an older version come first: columns keep the names that the newest version gave."""
    await rig.create_topic(**VALIDATION)
    one, two = await registry.register(ONE), await registry.register(TWO)
    await rig.produce([registry.framed(two, id=2, remark="b")])
    await rig.drain(rig.committer())
    before = (await rig.head()).metadata["current-schema-id"]
    await rig.produce([registry.framed(one, id=1, old="a")])
    await rig.drain(rig.committer())
    assert (await rig.head()).metadata["current-schema-id"] == before
    assert (await values(rig))[1] == {"id": 1, "remark": "a"}


async def test_rows_of_before_keep_their_binding(rig: Rig, registry: Registry) -> None:
    """Free, bound to a message of its own, following a subject, free again: all in one commit."""
    await rig.create_topic()
    one = await registry.register(ONE)
    framed = registry.framed(one, id=1)
    await rig.produce([framed])
    await rig.bind(b'syntax = "proto3"; package p; message M { sint32 x = 1; }', "p.M")
    await rig.produce([b"\x08\x07"])
    assert isinstance(await rig.replica.propose(BindSchema(topic="t", unbind=True)), Done)
    assert isinstance(await rig.replica.propose(BindSchema(topic="t", subject="t-value")), Done)
    await rig.produce([framed])
    assert isinstance(await rig.replica.propose(BindSchema(topic="t", unbind=True)), Done)
    await rig.produce([framed])
    await rig.drain(rig.committer())
    first, second, third, last = await values(rig)
    assert (first, last) == ({}, {})
    assert second == {"x": -4}
    assert third is not None
    assert third["id"] == 1


async def test_a_version_that_was_deleted_for_good(rig: Rig, registry: Registry) -> None:
    """Hidden ones decode; of what is gone the row says why. An id that is given again is another schema."""
    await rig.create_topic(**VALIDATION)
    one, two = await registry.register(ONE), await registry.register(TWO)
    gone = registry.framed(one, id=1)
    message = DeleteSchemaVersions(subject="t-value", version=[2])
    await rig.produce([gone, registry.framed(two, id=2)])
    assert isinstance(await rig.replica.propose(message), Done)
    await registry.delete("t-value", 1)
    committer = rig.committer()
    await rig.drain(committer)
    first, second = await values(rig)
    assert first == {"__err__": f"schema {one} was deleted from the registry for good"}
    assert second is not None
    assert second["id"] == 2
    settled = PutSubjectSettings(scope="again", mode=PutSubjectSettings.IMPORT)
    assert isinstance(await rig.replica.propose(settled), Done)
    assert await registry.register(OTHER, "again", given=one) == one
    await rig.produce([registry.framed(one, "Click", url="/")])
    await rig.drain(committer)
    last = (await values(rig))[2]
    assert last is not None
    assert last["url"] == "/"


async def test_bytes_that_no_schema_of_theirs_reads_stop_nothing(rig: Rig, registry: Registry) -> None:
    """An id that means another type by now; frames that no agent would have let in."""
    await rig.create_topic(**VALIDATION)
    one = await registry.register(ONE)
    head = b"\x00" + one.to_bytes(4, "big")
    await rig.produce([head, head + b"\x02\x0e", b"\x00\x01", b"free", registry.framed(one, id=1)])
    await rig.drain(rig.committer())
    found = await values(rig)
    assert [each["__err__"] for each in found[:4] if each] == [
        f"Confluent frame of schema {one} has no message indexes",
        f"schema {one}: the file has no message with the indexes [7]",
        "Confluent frame of 2 bytes: at least 5 are needed",
        "Confluent frame of 4 bytes: at least 5 are needed",
    ]
    assert found[4] is not None
    assert found[4]["id"] == 1


async def test_keys_follow_subjects_of_their_own(rig: Rig, registry: Registry) -> None:
    """What keys name adds nothing to the values' columns."""
    await rig.create_topic()
    key = await registry.register(OTHER, "t-key")
    change = AlterTopicConfigs.Change(name="confluent.key.schema.validation", value="true")
    assert isinstance(await rig.replica.propose(AlterTopicConfigs(topic="t", changes=[change])), Done)
    await rig.produce([b"v"], keys=[registry.framed(key, "Click", url="/", id=3)])
    await rig.drain(rig.committer())
    (row,) = await rig.rows()
    assert {name: each for name, each in row["key"].items() if name != "__raw__"} == {"url": "/", "id": 3}
    assert await columns(rig) == []


async def test_the_helper_process_says_what_it_lacks(rig: Rig, registry: Registry) -> None:
    """What is missing goes through a pipe, and back as a layout."""
    writer = ProcessWriter()
    try:
        await rig.create_topic(**VALIDATION)
        one = await registry.register(ONE)
        await rig.produce([registry.framed(one, id=9)])
        await rig.drain(Committer(replace(rig.parts, writer=writer), "t"))
    finally:
        await writer.close()
    found = await values(rig)
    assert found[0] is not None
    assert found[0]["id"] == 9


def test_what_is_missing_can_be_sent() -> None:
    missing = MissingSchemas([3, 1], [(0, (7, (0,))), (1, (7, ()))])
    again = pickle.loads(pickle.dumps(missing))
    assert (again.schema_ids, again.framed) == ({1, 3}, {(0, (7, (0,))), (1, (7, ()))})
