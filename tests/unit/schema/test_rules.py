"""Rules of protovalidate: who has any, what is told of bad records, which rules cannot be used."""

from __future__ import annotations

import subprocess
import sys
from contextlib import suppress
from random import Random

import pytest
from google.protobuf.message import DecodeError

from objectstore.batch import NewRecord, build
from objectstore.compression import Compression
from schema import followed, framing
from schema.registry import protobuf
from schema.rules.evaluation import (
    REASON_CHARS_MAX,
    TOGETHER_BYTES_MAX,
    TOGETHER_MAX,
    Evaluator,
    RulesError,
    Violation,
    messages,
    told,
    varint,
)
from schema.rules.ruled import NO_RULES, RUNS_MAX, Ruled, Run, TooMixed
from schema.rules.trial import PROBLEMS_MAX, problems
from schema.validator import Validator
from tests.unit.schema import samples

RULED = "message N { bool a = 1 [(buf.validate.field).required = true]; } "
CEL = '[(buf.validate.field).cel = { id: "c.id", message: "m", expression: "%s" }]'


def broken(kind: samples.descriptors.MessageType, **fields: object) -> list[tuple[str, str]]:
    """Paths and ids of the rules that a message breaks."""
    message = kind.message_class(**fields)
    found = Evaluator(kind.descriptor_set, kind.name).violations(message.SerializeToString())
    return [(each.path, each.rule) for each in found]


@pytest.mark.parametrize(
    ("body", "has"),
    [
        ("message M { int32 a = 1; }", False),
        ("message M { int32 a = 1 [deprecated = true]; M m = 2; map<string, M> n = 3; }", False),
        ("message M { int32 a = 1 [(buf.validate.field).int32.gt = 0]; }", True),
        ("message M { oneof o { option (buf.validate.oneof).required = true; int32 a = 1; } }", True),
        ('message M { option (buf.validate.message).cel = { id: "x", expression: "true" }; }', True),
        (RULED + "message M { N n = 1; }", True),
        (RULED + "message M { map<int32, N> n = 1; }", True),
        (RULED + "message M { int32 a = 1; }", False),
    ],
)  # fmt: skip
def test_who_has_rules(body: str, has: bool) -> None:
    assert samples.ruled(body).has_rules is has


def test_paths_lead_through_messages_lists_and_maps() -> None:
    kind = samples.ruled(
        """message Item { double price = 1 [(buf.validate.field).double.gt = 0]; }
        message M {
          repeated Item items = 1;
          map<string, int32> labels = 2 [(buf.validate.field).map.values.int32.gt = 0];
          map<int32, Item> numbered = 3; M inner = 4;
          oneof choice { option (buf.validate.oneof).required = true; Item one = 5; string other = 6; }
        }"""
    )
    item = kind.message_class().items.add().__class__
    good, bad = item(price=1), item(price=-1)
    assert broken(kind, items=[good, bad], labels={'a"b': -1}, numbered={7: bad}, one=bad) == [
        ("items[1].price", "double.gt"),
        ('labels["a\\"b"]', "int32.gt"),
        ("numbered[7].price", "double.gt"),
        ("one.price", "double.gt"),
    ]
    assert broken(kind, inner=kind.message_class(other="x")) == [("choice", "required")]
    assert broken(kind, items=[good], other="x") == []


def test_many_together_are_told_as_each_alone() -> None:
    """Whichever of them are bad, however large they are, also where a rule fails on one of them."""
    kind = samples.ruled(
        """message Item { double price = 1 [(buf.validate.field).double.gt = 0]; }
        message M {
          option (buf.validate.message).cel = { id: "share", message: "m", expression: "9 / this.parts > 1" };
          repeated Item items = 1; int32 parts = 2; bytes more = 3;
        }"""
    )
    made = kind.message_class
    item = made().items.add().__class__
    bad = made(items=[item(price=1), item(price=-1)], parts=1), made(parts=6), made(items=[item()], parts=9)
    good, fails = made(parts=1), made(parts=0)
    random = Random(7)
    for count in (0, 1, TOGETHER_MAX, TOGETHER_MAX + 1, 3 * TOGETHER_MAX):
        for kinds in ([good], [good, *bad], [good] * 50 + [*bad, fails]):
            chosen = [made.FromString(random.choice(kinds).SerializeToString()) for _ in range(count)]
            for large in random.sample(chosen, min(3, count)):
                large.more = bytes(TOGETHER_BYTES_MAX // 2)
            payloads = [each.SerializeToString() for each in chosen]
            one = Evaluator(kind.descriptor_set, kind.name)
            alone = [(at, list(told)) for at, each in enumerate(payloads) if (told := one.violations(each))]
            assert sorted((at, list(told)) for at, told in one.broken(payloads)) == alone


def test_messages_as_deep_as_may_be_are_evaluated_though_together_they_are_too_deep() -> None:
    kind = samples.ruled("message M { M m = 1; int32 a = 2 [(buf.validate.field).int32.gt = 0]; }")
    deep = deeper = b"\x10\x01"
    with suppress(DecodeError):
        while kind.message_class.FromString(deeper):
            deep, deeper = deeper, b"\x10\x01\x0a" + varint(len(deeper)) + deeper
    bad = deep[:-1] + b"\x00"
    found = list(Evaluator(kind.descriptor_set, kind.name).broken([deep, bad, deep]))
    assert [at for at, _ in found] == [1]


def test_editions_and_proto2_keep_presence() -> None:
    for syntax, label in (('edition = "2023";', ""), ('syntax = "proto2";', "optional")):
        source = f"""{syntax} package e; import "buf/validate/validate.proto";
            message M {{ {label} int32 a = 1 [(buf.validate.field).required = true];
                        {label} string s = 2 [(buf.validate.field).string.email = true]; }}"""
        kind = samples.message_type(source.encode(), "e.M")
        assert broken(kind, s="no") == [("a", "required"), ("s", "string.email")]
        assert broken(kind, a=0) == []


def test_predefined_rules_of_another_file_are_found() -> None:
    from schema.compiler import compile_protos
    from schema.registry.known import imported_by

    files = {
        "odd.proto": b"""syntax = "proto2"; package p; import "buf/validate/validate.proto";
            extend buf.validate.Int32Rules { optional bool odd = 80048952 [(buf.validate.predefined).cel = {
              id: "int32.odd", message: "must be odd", expression: "!rule || this % 2 == 1" }]; }""",
        "m.proto": b"""syntax = "proto3"; package t; import "buf/validate/validate.proto"; import "odd.proto";
            message M { int32 a = 1 [(buf.validate.field).int32.(p.odd) = true]; }""",
    }
    made = compile_protos(files, imported_by(files))
    assert broken(samples.descriptors.load(made, "t.M"), a=2) == [("a", "int32.odd")]
    assert problems(made, ["t.M"]) == []


def test_a_rule_that_fails_on_a_message_is_one_that_it_breaks() -> None:
    kind = samples.ruled("message M { int32 a = 1 " + CEL % "1 / this > 0" + "; }")
    (found,) = Evaluator(kind.descriptor_set, "t.M").violations(b"")
    assert (found.rule, found.text) == ("c.id", "cannot be evaluated: divide by zero")
    assert broken(kind, a=1) == []


def test_rules_that_do_not_compile_are_told_as_that_also_at_a_record() -> None:
    kind = samples.ruled("message M { int32 a = 1 " + CEL % "this >>> 1" + "; }")
    with pytest.raises(RulesError, match=r"t\.M do not compile: failed to compile expression c.id"):
        Evaluator(kind.descriptor_set, "t.M").violations(b"")


def test_what_is_told_is_bounded() -> None:
    many = [Violation(f"f{number}", "r", "t" * 20) for number in range(9)]
    text = told("value", many)
    assert text.startswith("value.f0: tttttttttttttttttttt (rule r); value.f1")
    assert text.endswith("; and 4 more")
    assert len(told("key", [Violation("", "r", "x" * 5000)])) == REASON_CHARS_MAX
    kind = samples.ruled(
        "message M { map<string, int32> m = 1 [(buf.validate.field).map.values.int32.gt = 0]; }"
    )
    ((path, _),) = broken(kind, m={"k" * 10_000: 0})
    assert len(path) < 200


@pytest.mark.parametrize(
    ("body", "place", "words"),
    [
        ("int32 a = 1 " + CEL % "this >>> 1", "t.M.a: rule c.id: does not compile", "Syntax error"),
        ("int32 a = 1 " + CEL % "nope(this)", "t.M.a: rule c.id: does not compile", "No overloads"),
        ("optional int32 a = 1 " + CEL % "foo > 1", "t.M.a: rule c.id: fails on every message", '"foo"'),
        ("int32 a = 1 " + CEL % "this + 1", "t.M.a: ", "unexpected type"),
        ("string a = 1 [(buf.validate.field).int32.gt = 0]", "t.M.a: ", "expected rule"),
        ('string a = 1 [(buf.validate.field).string.pattern = "(["]', "t.M.a: ", "string.pattern"),
        ("repeated int32 a = 1 [(buf.validate.field).repeated.items.string.len = 1]", "t.M.a: ", "expected"),
    ],
)  # fmt: skip
def test_rules_that_cannot_be_used_are_found_with_their_place(body: str, place: str, words: str) -> None:
    kind = samples.ruled(f"message M {{ {body}; string good = 9 [(buf.validate.field).string.len = 3]; }}")
    (found,) = problems(kind.descriptor_set, ["t.M"])
    assert str(found).startswith(place)
    assert words in str(found)


def test_rules_of_messages_inside_and_of_the_second_member_of_a_oneof_are_tried() -> None:
    kind = samples.ruled(
        "message Deep { int32 z = 1 " + CEL % "this >>> 1" + "; }"
        "message N { map<string, Deep> deep = 1; }"
        "message M { repeated N n = 1; oneof o { int32 x = 2; string y = 3 " + CEL % "nope(this)" + "; } }"
    )
    assert [(each.message, each.field) for each in problems(kind.descriptor_set, ["t.M"])] == [
        ("t.M", "y"),
        ("t.Deep", "z"),
    ]


def test_rules_whose_fault_is_the_records_are_no_problem() -> None:
    kind = samples.ruled("message M { int32 a = 1 " + CEL % "1 / (this - 1) > 0" + "; }")
    assert problems(kind.descriptor_set, ["t.M"]) == []
    flights = samples.message_type(samples.RULED_FLIGHTS, "nyc.Flight")
    assert problems(flights.descriptor_set, ["nyc.Flight"]) == []


def test_problems_are_bounded() -> None:
    fields = "".join(f"int32 a{n} = {n} {CEL % 'this >>> 1'};" for n in range(1, PROBLEMS_MAX + 10))
    kind = samples.ruled(f"message M {{ {fields} }}")
    assert len(problems(kind.descriptor_set, ["t.M"])) == PROBLEMS_MAX


async def test_where_the_messages_of_a_batch_are() -> None:
    schema = samples.bound(samples.RULED_FLIGHTS, "nyc.Flight", schema_id=7, tombstones=True)
    frame = framing.prefix(7, (0,))
    values = [None, b"", frame, frame + b"\x10\x0d", None, b"\x10\x0d"]
    raw = build([NewRecord(1, None, value) for value in values], compression=Compression.GZIP)
    validator = Validator.from_binding(schema)
    bad, ruled = await validator.judge_off_loop(memoryview(raw), ["value", "key"])
    assert bad == []
    assert ruled is not None
    assert ruled.runs == {"value": [Run(1, 0, 0), Run(2, 0, len(frame)), Run(5, 0, 0)]}
    assert [*messages(values[1:], ruled.runs["value"], 1)] == [
        (1, 0, b""), (2, 0, b""), (3, 0, b"\x10\x0d"), (5, 0, b"\x10\x0d"),
    ]  # fmt: skip
    assert await validator.judge_off_loop(memoryview(raw)) == ([], None)


async def test_records_that_do_not_parse_are_told_as_before() -> None:
    validator = Validator.from_binding(samples.bound(samples.RULED_FLIGHTS, "nyc.Flight"))
    raw = build([NewRecord(1, None, value) for value in (b"", b"\xff\xff")])
    bad, _ = await validator.judge_off_loop(memoryview(raw), ["value"])
    assert [each.index for each in bad] == [1]


def test_records_of_another_schema_type_are_none_of_the_messages_before_them() -> None:
    kind = samples.message_type(samples.RULED_FLIGHTS, "nyc.Flight")
    for own, after in ((), [NO_RULES]), ([("a", "true", "")], [NO_RULES]):
        ruled = Ruled(["value"], own)
        ruled.note("value", 0, kind, 6)
        ruled.note("value", 1, None, 0)
        ruled.note("value", 3, kind, 6)
        values = [b"framed1", b"{}", b"{}", b"framed2"]
        assert list(messages(values, ruled.runs["value"], 0)) == [(0, 0, b"1"), (3, 0, b"2")]
        assert [run.kind for run in ruled.runs["value"]][1:2] == after


def test_messages_without_rules_are_passed_over() -> None:
    """A worker is not told of them, whatever else is in their batch."""
    plain = samples.message_type(samples.FLIGHTS, "nyc.Flight")
    ruled = samples.message_type(samples.RULED_FLIGHTS, "nyc.Flight")
    noted = Ruled(["value"])
    noted.note("value", 0, plain, 0)
    assert not noted
    noted.note("value", 1, ruled, 0)
    noted.note("value", 2, plain, 6)
    assert noted
    assert noted.kinds == [ruled]
    assert noted.runs["value"] == [Run(0, NO_RULES, 0), Run(1, 0, 0), Run(2, NO_RULES, 6)]
    assert [*messages([b"a", b"b", b"plains"], noted.runs["value"], 0)] == [(1, 0, b"b")]


@pytest.mark.parametrize("schema_type", [followed.PROTOBUF, "AVRO"])
def test_what_was_forgotten_before_it_is_noted_is_looked_up_again(
    monkeypatch: pytest.MonkeyPatch, schema_type: str
) -> None:
    monkeypatch.setattr(followed, "KINDS_MAX", 1)
    bound = samples.Bound(b"", "", naming=1)
    part = followed.FollowedPart("value", bound, allow_unknown=False)
    form = protobuf.parse(samples.FLIGHTS.decode(), {}).canonical
    records = [framing.prefix(1, (0,)), b"\x00\x00\x00\x00\x01\xff"]
    record = records[schema_type == "AVRO"]
    for schema_id in (1, 2):
        named = followed.Named(schema_type, form if schema_type != "AVRO" else b'"string"', {}, frozenset())
        assert part.settle((schema_id, (0,)), named) is None
        if schema_id == 1:
            part.note([record, None], Ruled(["value"]), 0, [record, None], range(2))
    with pytest.raises(followed.UnknownSchemas) as raised:
        part.note([record], Ruled(["value"]), 0, [record], range(1))
    assert raised.value.framed == [(1, (0,) if schema_type == followed.PROTOBUF else ())]


def test_records_that_change_again_and_again_are_bounded() -> None:
    kind = samples.message_type(samples.RULED_FLIGHTS, "nyc.Flight")
    ruled = Ruled(["value"])
    for index in range(RUNS_MAX):
        ruled.note("value", index, kind, index % 2)
    with pytest.raises(TooMixed, match="more than 100000 times; send records of one schema together"):
        ruled.note("value", RUNS_MAX, kind, 0)


def test_the_door_itself_never_loads_the_library() -> None:
    code = """
import sys
from tests.unit.schema import samples
from objectstore.batch import NewRecord, build
from schema.validator import Validator
import agent.app
kind = samples.message_type(samples.RULED_FLIGHTS, "nyc.Flight")
assert kind.has_rules
validator = Validator.from_binding(samples.bound(samples.RULED_FLIGHTS, "nyc.Flight"))
assert not validator.check(build([NewRecord(1, None, b"")]))
print([name for name in sys.modules if "protovalidate" in name or name == "protobuf"])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
