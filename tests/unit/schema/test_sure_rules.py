"""Messages that surely obey their rules: what is understood, what is not, what is left for a worker."""

from __future__ import annotations

from typing import Any

import pytest

from objectstore.batch import NewRecord, build
from schema import descriptors
from schema.compiler import compile_protos
from schema.proto import understood_pb2 as understood
from schema.registry.known import with_imports
from schema.rules.evaluation import NO_TEXT, Evaluator, Violation
from schema.rules.ruled import FEW, NO_RULES, RECORD, RUNS_MAX, Ruled, Run
from schema.rules.sure import kinds
from schema.rules.sure.kinds import ITEMS_MAX, surely
from schema.strict import DOUBT, problem
from schema.validator import Validator
from tests.unit.schema import samples

FLIGHT = samples.message_type(samples.RULED_FLIGHTS, "nyc.Flight")
GOOD = FLIGHT.message_class(month=1, origin="EWR", dest="JFK").SerializeToString()
BAD = FLIGHT.message_class(month=13, origin="EWR", dest="JFK").SerializeToString()
CEL = 'option (buf.validate.message).cel = {{ id: "c", message: "m", expression: "{}" }};'


def says(kind: descriptors.MessageType, **fields: Any) -> bool:
    """Whether a message surely obeys."""
    obeys = surely(kind)
    assert obeys is not None
    return bool(obeys(kind.message_class(**fields)))


def test_what_is_understood_is_what_protovalidate_says() -> None:
    """Each field of the mirror has the name, number, type and label of the original's."""
    files = with_imports(["buf/validate/validate.proto"])
    pool = descriptors.descriptor_pool.DescriptorPool()
    for name in sorted(files, key=lambda each: each.startswith("buf/")):
        pool.AddSerializedFile(files[name])
    compared = 0
    for name, mine in understood.DESCRIPTOR.message_types_by_name.items():
        if name.endswith("Options"):
            continue
        theirs = pool.FindMessageTypeByName(f"buf.validate.{name}")
        for field in mine.fields:
            other = theirs.fields_by_name[field.name]
            for what in ("number", "type", "is_repeated"):
                assert getattr(field, what) == getattr(other, what), (name, field.name, what)
            mine_in, theirs_in = field.containing_oneof, other.containing_oneof
            assert (mine_in and mine_in.name) == (theirs_in and theirs_in.name), (name, field.name)
            compared += 1
    assert compared > 120
    ignores = pool.FindEnumTypeByName("buf.validate.Ignore").values_by_name
    assert {name: ignores[name].number for name, _ in understood.Ignore.items()} == dict(
        understood.Ignore.items()
    )


@pytest.mark.parametrize(
    "body",
    [
        'message M { string a = 1 [(buf.validate.field).string.pattern = "^a"]; }',
        "message M { string a = 1 [(buf.validate.field).string.hostname = true]; }",
        "message M { int32 a = 1 [(buf.validate.field).int64.gt = 0]; }",
        "message M { repeated int32 a = 1 [(buf.validate.field).int32.gt = 0]; }",
        "message M { repeated double a = 1 [(buf.validate.field).repeated.unique = true]; }",
        'message M { option (buf.validate.message).oneof = { fields: ["a"] }; int32 a = 1; }',
        "message M { int32 Clear = 1 [(buf.validate.field).int32.gt = 0]; }",
        "message N { bytes a = 1 [(buf.validate.field).bytes.ip = true]; } message M { map<int32, N> n = 1;}",
        f"message M {{ {CEL.format('this.a + 1 > 0')} int32 a = 1; }}",
        f"message M {{ {CEL.format('this.a > 0')} uint32 a = 1; }}",
        f"message M {{ {CEL.format('this.a.b')} M a = 1; bool b = 2; }}",
        f"message M {{ {CEL.format('[1, 2].all(x, x > this.a)')} int32 a = 1; }}",
        f"message M {{ {CEL.format('this.a > 1 || ' * 80 + 'true')} int32 a = 1; }}",
        f"message M {{ {CEL.format('(' * 20 + 'this.a' + ')' * 20)} bool a = 1; }}",
        f"message M {{ {CEL.format('this.a < 9223372036854775808')} int64 a = 1; }}",
        f"message M {{ {CEL.format('this.a')} int32 a = 1; }}",
        f"message M {{ {CEL.format('')} int32 a = 1; }}",
    ],
)
def test_types_with_a_rule_that_is_not_understood_are_the_library_s(body: str) -> None:
    assert surely(samples.ruled(body)) is None


def test_what_types_without_rules_are_asked_is_nothing() -> None:
    assert surely(samples.message_type(samples.FLIGHTS, "nyc.Flight")) is None


def test_extensions_are_the_library_s() -> None:
    source = b"""syntax = "proto2"; package e; import "buf/validate/validate.proto";
        message M { optional int32 a = 1 [(buf.validate.field).int32.gt = 0]; extensions 100 to 200; }"""
    assert surely(samples.message_type(source, "e.M")) is None


def test_predefined_rules_are_the_library_s() -> None:
    files = {
        "rules.proto": b"""syntax = "proto2"; package p; import "buf/validate/validate.proto";
            extend buf.validate.Int32Rules { optional bool even = 51001 [(buf.validate.predefined).cel =
                { id: "even", message: "not even", expression: "this % 2 == 0" }]; }""",
        "m.proto": b"""syntax = "proto3"; package p; import "buf/validate/validate.proto";
            import "rules.proto"; message M { int32 a = 1 [(buf.validate.field).int32.(even) = true]; }""",
    }
    known = samples.imported_by(files)
    assert surely(descriptors.load(compile_protos(files, known), "p.M")) is None


def test_fields_called_as_words_of_python() -> None:
    kind = samples.ruled(
        """message M { int32 class = 1 [(buf.validate.field).int32.gt = 0];
                       int32 lambda = 2 [(buf.validate.field).int32 = { in: [1, 2] }]; }"""
    )
    assert says(kind, **{"class": 1, "lambda": 2})
    assert not says(kind, **{"class": 0, "lambda": 2})
    assert not says(kind, **{"class": 1, "lambda": 3})


def test_messages_within_messages_of_their_own_type() -> None:
    kind = samples.ruled("message M { M m = 1; int32 a = 2 [(buf.validate.field).int32.gt = 0]; }")
    message = kind.message_class(a=1)
    for _ in range(90):
        message = kind.message_class(a=1, m=message)
    assert says(kind, a=1, m=message)
    assert not says(kind, a=1, m=kind.message_class(a=1, m=kind.message_class(a=0)))


def test_long_lists_and_much_code_are_the_library_s(monkeypatch: pytest.MonkeyPatch) -> None:
    body = "message M { repeated int32 a = 1 [(buf.validate.field).repeated.items.int32.gt = 0]; }"
    kind = samples.ruled(body)
    assert says(kind, a=[1] * ITEMS_MAX)
    assert not says(kind, a=[1] * (ITEMS_MAX + 1))
    monkeypatch.setattr(kinds, "NODES_MAX", 10)
    assert surely.__wrapped__(kind) is None


@pytest.mark.parametrize(
    "body",
    [
        'optional string s = 1 [(buf.validate.field).string.not_in = "a"];',
        'repeated string s = 1 [(buf.validate.field).repeated.items.string.not_in = "a"];',
        f"{CEL.format('this.s.size() > 0')} optional string s = 1;",
        'optional string s = 1 [(buf.validate.field).cel = { id: "c", expression: "this.size() > 0" }];',
    ],
)
def test_a_text_of_proto2_that_is_none_is_doubted_and_breaks_rules(body: str) -> None:
    source = f'syntax = "proto2"; package e; import "buf/validate/validate.proto"; message M {{ {body} }}'
    kind = samples.message_type(source.encode(), "e.M")
    obeys, bad = surely(kind), b"\x0a\x01\xff"
    assert problem(b"\x0a\x01b", kind, False, obeys) is None
    assert problem(bad, kind, False, obeys) == DOUBT
    assert problem(bad, kind, False) is None
    if "buf.validate.message" not in body:  # of a whole message the library makes a text of anything
        (found,) = Evaluator(kind.descriptor_set, kind.name).broken([b"\x0a\x01b", bad])
        assert found == (1, [Violation("", "evaluation", NO_TEXT)])


async def judged(*values: bytes | None, own: bool = False) -> Ruled | None:
    """What is left for a worker of a batch."""
    validator = Validator.from_binding(samples.bound(samples.RULED_FLIGHTS, "nyc.Flight", tombstones=True))
    raw = build([NewRecord(1, None, value) for value in values])
    rules = [("r", "true", "")] if own else []
    bad, ruled = await validator.judge_off_loop(memoryview(raw), ["value", RECORD], own=rules)
    assert bad == []
    return ruled


async def test_a_worker_is_asked_for_what_may_break_rules_only() -> None:
    some = await judged(*[GOOD] * 20, BAD, GOOD, BAD, BAD, None, *[GOOD] * 20)
    assert some
    assert some.runs["value"] == [
        Run(0, NO_RULES, 0), Run(20, 0, 0), Run(21, NO_RULES, 0), Run(22, 0, 0), Run(24, NO_RULES, 0),
    ]  # fmt: skip
    assert (some.left, some.settled) == (3, set())
    none = await judged(*[GOOD] * 20)
    assert none is not None
    assert not none
    assert none.seen
    assert await judged(None, None) is None, "there was no message"


async def test_where_much_may_break_rules_all_is_evaluated() -> None:
    """Else each change from good to bad would be told."""
    much = await judged(*[GOOD, BAD] * FEW)
    assert much
    assert (much.runs["value"], much.left) == ([Run(0, 0, 0)], 2 * FEW)
    ruled = Ruled(["value"])
    ruled.runs["value"] = [Run(0, NO_RULES, 0)] * (RUNS_MAX // 2)
    assert ruled.chosen("value", [3], 100) == [range(100)]


async def test_rules_of_a_topic_s_own_are_evaluated_without_those_of_messages_that_surely_obey() -> None:
    good, bad = await judged(*[GOOD] * 9, own=True), await judged(*[GOOD] * 9, BAD, own=True)
    assert good is not None
    assert bad is not None
    assert good.runs == bad.runs == {"value": [Run(0, 0, 0)]}
    assert (good.settled, bad.settled) == ({"value"}, set())
    assert good.left is bad.left is None


def test_bounds_the_wrong_way_round_leave_out_what_is_between() -> None:
    kind = samples.ruled("message M { int32 a = 1 [(buf.validate.field).int32 = { gt: 5, lte: 1 }]; }")
    assert [each for each in range(8) if says(kind, a=each)] == [0, 1, 6, 7]
