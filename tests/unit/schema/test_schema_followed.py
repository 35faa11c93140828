"""Records that name schemas of a subject: which are good, what is looked up for them and how often."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from coordination.state.types import Naming as Kept
from objectstore import batch
from schema import followed, framing
from schema.followed import UNKNOWN_MAX, Named, Naming, UnknownSchemas
from schema.registry import protobuf
from schema.strict import BAD_RECORDS_MAX, BadRecord
from schema.validator import Validator, ValidatorCache
from tests.unit.schema.samples import Bound

ORDERS = """
syntax = "proto3";
package shop;
import "shop/money.proto";
message Customer { string name = 1; }
message Order {
  message Line { string sku = 1; }
  uint64 id = 1;
  Money total = 2;
  map<string, Line> lines = 3;
}
"""
MONEY = 'syntax = "proto3"; package shop; message Money { string currency = 1; int64 units = 2; }'
NEWER = ORDERS.replace("uint64 id = 1;", "uint64 id = 1; string remark = 4;")
IMPORTS = {"shop/money.proto": protobuf.parse(MONEY, {}).canonical}


def named(text: str = ORDERS, *subjects: str) -> Named:
    return Named("PROTOBUF", protobuf.parse(text, IMPORTS).canonical, IMPORTS, frozenset(subjects))


KNOWN = {7: named(), 8: named(NEWER), 9: Named("AVRO", b'"bytes"', {}, frozenset())}


def following(**fields: object) -> Bound:
    """A binding to the subject s, unless told otherwise."""
    told = {"message": "", "topic": "t", "framing": 2, "tombstones": True, "naming": 1, "subject": "s"}
    return Bound(b"", **{**told, **fields})  # type: ignore[arg-type]  # the dataclass refuses unknown names


def framed(schema_id: int, payload: bytes = b"\x08\x07", indexes: tuple[int, ...] = (1,)) -> bytes:
    return framing.prefix(schema_id, indexes) + payload


class Door:
    """A validator, and somebody who looks up what it does not know."""

    def __init__(self, known: Mapping[int, Named] = KNOWN, **fields: object) -> None:
        self.validator = Validator.from_binding(following(**fields))
        self.known = known
        self.asked: list[followed.Framed] = []

    def judge(self, *values: bytes | None) -> list[BadRecord]:
        content = batch.build([batch.NewRecord(0, None, value) for value in values])
        refused: dict[followed.Framed, str] = {}
        while True:
            try:
                return self.validator.check(content, refused=refused)
            except UnknownSchemas as unknown:
                self.asked += unknown.framed
                refused |= self._settled(unknown.role, unknown.framed)

    def _settled(self, role: str, framed: Iterable[followed.Framed]) -> dict[followed.Framed, str]:
        found: dict[followed.Framed, str] = {}
        for each in framed:
            told = self.known.get(each[0])
            why = "nobody knows it" if told is None else self.validator.followed(role).settle(each, told)
            if why is not None:
                found[each] = why
        return found


def why(found: list[BadRecord]) -> list[tuple[int, str]]:
    return [(each.index, each.reason) for each in found]


def test_the_numbers_are_those_of_the_state() -> None:
    assert {each.name: each.value for each in Kept if each.value} == {
        each.name: each.value for each in Naming
    }


def test_each_record_is_judged_by_its_own_version() -> None:
    door = Door()
    newer = b"\x08\x07\x22\x01r"
    assert door.judge(framed(7), framed(8, newer), None, framed(7, b"\x0a\x01n", (0,))) == []
    assert door.asked == [(7, (1,)), (8, (1,)), (7, (0,))]
    assert why(door.judge(framed(8, newer), framed(7, newer))) == [
        (1, "value: field `4`: shop.Order has no field number 4")
    ]
    assert len(door.asked) == 3, "what was looked up is known"


def test_what_is_no_frame_of_a_good_record_is_told() -> None:
    door = Door()
    found = why(
        door.judge(
            b"\x08\x07",
            b'{"id": 7}',
            b"",
            b"\x00\x00",
            b"\x00\x00\x00\x00\x07\x02",
            framed(7, indexes=(5,)),
            framed(7, indexes=(1, 1)),
            framed(6),
            framed(7, b"\x08"),
        )
    )
    needs = "has no Confluent frame (0x00 and schema id), which the topic asks for: send through a serializer"
    assert found == [
        (0, f"value: {needs} that has this registry"),
        (
            1,
            "value: the bytes look like JSON; the topic takes a message in a frame, serialized: "
            f"{needs} that has this registry",
        ),
        (2, f"value: {needs} that has this registry"),
        (3, "value: Confluent frame of 2 bytes: at least 5 are needed"),
        (4, "value: Confluent frame ends inside its message indexes"),
        (5, "value: Confluent frame names schema 7: the file has no message with the indexes [5]"),
        (6, "value: Confluent frame names schema 7: the file has no message with the indexes [1, 1]"),
        (7, "value: nobody knows it"),
        (8, "value: field `id`: truncated varint at byte 1"),
    ]


def test_what_may_not_be_named_is_asked_for_again() -> None:
    """It may have been registered since."""
    door = Door({})
    assert why(door.judge(framed(7))) == [(0, "value: nobody knows it")]
    door.known = KNOWN
    assert door.judge(framed(7)) == []
    assert door.asked == [(7, (1,))] * 2


def test_only_one_message_where_the_binding_says_which() -> None:
    door = Door(message="shop.Order")
    assert why(door.judge(framed(7), framed(7, b"", (0,)))) == [
        (1, "value: Confluent frame names shop.Customer of schema 7; the topic takes shop.Order")
    ]


@pytest.mark.parametrize(
    ("naming", "subject"), [(Naming.RECORD, "shop.Order"), (Naming.TOPIC_RECORD, "t-shop.Order")]
)
def test_the_subject_is_called_as_the_message(naming: int, subject: str) -> None:
    door = Door({7: named(ORDERS, subject, "t-value")}, naming=naming)
    other = subject.replace("Order", "Customer")
    assert why(door.judge(framed(7), framed(7, b"", (0,)))) == [
        (
            1,
            "value: Confluent frame names shop.Customer of schema 7, which is no version of subject "
            f"{other}: register it there first",
        )
    ]


def test_data_of_avro_are_exactly_one_datum() -> None:
    """Behind the id there is nothing but the datum; asked for once, whatever follows the id."""
    door = Door()
    avro = b"\x00\x00\x00\x00\x09"
    assert why(door.judge(avro + b"\x02a", avro, avro + b"\x00", avro + b"\x02ab")) == [
        (1, "value: 1 byte needed at byte 0, 0 left"),
        (3, "value: the datum ends at byte 2, and 1 bytes are left over"),
    ]
    asked = len(door.asked)
    assert door.judge(avro + b"\x04\xff\xff") == []
    assert len(door.asked) == asked, "the id is known, whatever follows it"


def test_data_of_avro_and_json_name_their_record() -> None:
    record = '{"type":"record","name":"shop.Sale","fields":[{"name":"n","type":"int"}]}'
    sale = Named("AVRO", record.encode(), {}, frozenset({"shop.Sale"}))
    text = Named("JSON", b'{"title":"Sale","type":"object"}', {}, frozenset({"Sale", "t-Sale"}))
    nameless = Named("JSON", b'{"type":"object"}', {}, frozenset({"t-Sale"}))
    known = {1: sale, 2: text, 3: nameless}
    avro, json, other = (b"\x00\x00\x00\x00" + bytes([each]) for each in known)
    values = (avro + b"\x02", json + b"{}", other + b"{}", json + b"[]")
    missing = "value: Confluent frame names a type without a name of schema 3, which is no version of subject"
    assert [
        (at, told[: len(missing)]) for at, told in why(Door(known, naming=Naming.RECORD).judge(*values))
    ] == [
        (2, missing),
        (3, "value: is array, and not object"),
    ]
    assert [at for at, _ in why(Door(known, naming=Naming.TOPIC_RECORD).judge(*values))] == [0, 2, 3]
    assert [at for at, _ in why(Door(known, message="shop.Sale").judge(*values))] == [1, 2, 3]


async def test_json_is_judged_in_a_thread() -> None:
    """It may take long for a loop, small as a batch is."""
    door = Door({1: Named("JSON", b'{"type":"object"}', {}, frozenset())})
    part = door.validator.followed("value")
    content = batch.build([batch.NewRecord(0, None, b"\x00\x00\x00\x00\x01{}")])
    assert not part.slow
    with pytest.raises(UnknownSchemas):
        await door.validator.check_off_loop(memoryview(content))
    assert part.settle((1, ()), door.known[1]) is None
    assert part.slow
    threads: list[str] = []
    part._others[1] = lambda payload: threads.append(threading.current_thread().name)
    assert await door.validator.check_off_loop(memoryview(content)) == []
    assert threads != [threading.main_thread().name]


def test_what_is_known_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(followed, "KINDS_MAX", 2)
    door = Door(dict.fromkeys(range(1, 10), KNOWN[7]) | {9: KNOWN[9]})
    part = door.validator.followed("value")
    for number in range(1, 9):
        assert door.judge(framed(number)) == []
        assert len(part._kinds) <= 2
    assert door.judge(framed(1), framed(2)) == []


def test_a_batch_that_names_very_much_is_judged_in_pieces() -> None:
    """The search ends with the most that are told of one batch; what is asked for at once is bounded."""
    door = Door({})
    found = door.judge(*(framed(number) for number in range(1, 3_000)))
    assert len(found) == BAD_RECORDS_MAX
    assert len(door.asked) == UNKNOWN_MAX


def test_required_fields_and_lenience_are_as_with_messages_of_the_topic_s_own() -> None:
    text = 'syntax = "proto2"; message M { required int32 a = 1; }'
    known = {7: Named("PROTOBUF", protobuf.parse(text, {}).canonical, {}, frozenset())}
    door = Door(known)
    assert why(door.judge(framed(7, b"", (0,)))) == [(0, "value: required field `a` is missing")]
    lenient = Door(known)
    lenient.validator = Validator.from_binding(following(), allow_unknown=True)
    assert lenient.judge(framed(7, b"\x08\x01\x10\x01", (0,))) == []


def test_another_revision_of_the_binding_knows_nothing() -> None:
    """A version may have been deleted: what was looked up before is forgotten with it."""

    class Topic:
        name = "t"
        value_schema_id = 1
        key_schema_id = None
        bound_revision = 5

    cache, schemas = ValidatorCache(), {1: following()}
    one = cache.for_topic(Topic(), schemas)
    assert cache.for_topic(Topic(), schemas) is one
    Topic.bound_revision = 6
    assert cache.for_topic(Topic(), schemas) is not one


def test_keys_and_values_are_looked_up_apart() -> None:
    validator = Validator.from_binding(following(), following(role=1, subject="k"))
    content = batch.build([batch.NewRecord(0, framed(7), framed(8))])
    with pytest.raises(UnknownSchemas) as unknown:
        validator.check(content)
    assert (unknown.value.role, unknown.value.framed) == ("key", [(7, (1,))])
    assert validator.followed("key").settle((7, (1,)), KNOWN[7]) is None
    with pytest.raises(UnknownSchemas) as unknown:
        validator.check(content)
    assert (unknown.value.role, unknown.value.framed) == ("value", [(8, (1,))])


async def test_batches_of_json_are_judged_off_the_loop_whatever_is_asked_besides(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also those of 16 KiB and less, of topics with a policy for rules."""
    validator = Validator.from_binding(following())
    part = validator.followed("value")
    assert part.settle((7, ()), Named("JSON", b'{"type":"integer"}', {}, frozenset({"s"}))) is None
    made = memoryview(batch.build([batch.NewRecord(0, None, framing.first_bytes(7) + b"7")]))
    threads: list[bool] = []
    check = part.check

    def seen(*given: Any) -> list[BadRecord]:
        threads.append(threading.current_thread() is threading.main_thread())
        return check(*given)

    monkeypatch.setattr(part, "check", seen)
    assert await validator.judge_off_loop(made) == ([], None)
    assert await validator.judge_off_loop(made, ["value"]) == ([], None)
    assert threads == [False, False]
