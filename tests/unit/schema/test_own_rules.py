"""A topic's own rules: CEL over key, value, headers and timestamp; which of them cannot be used."""

from __future__ import annotations

import pytest

from schema.descriptors import DescriptorError, MessageType
from schema.rules.evaluation import RulesError
from schema.rules.own_trial import record_problems
from schema.rules.record import RecordEvaluator
from tests.unit.schema import samples

FLIGHT = samples.message_type(samples.FLIGHTS, "nyc.Flight")
RULED = samples.message_type(samples.RULED_FLIGHTS, "nyc.Flight")
GOOD = FLIGHT.message_class(month=1, origin="EWR", dest="JFK", distance=3).SerializeToString()
BAD = FLIGHT.message_class(month=13, origin="EWR", dest="EWR", distance=-3).SerializeToString()
DIGITS = "[0,1,2,3,4,5,6,7,8,9]"
ENDLESS = "a + b + c + d + e + f >= 0"
for letter in "fedcba":
    ENDLESS = f"{DIGITS}.all({letter}, {ENDLESS})"


def told(
    expression: str,
    value: bytes | None = GOOD,
    key: bytes | None = b"k",
    kind: MessageType | None = FLIGHT,
    key_kind: MessageType | None = None,
    message: str = "",
) -> list[str]:
    """What is said of a record; nothing where it is good."""
    evaluator = RecordEvaluator([("r", expression, message)], key_kind, kind)
    found = evaluator.violations(key, value, [("h", b"1"), ("h", b"2"), ("n", None)], 1_700_000_000_123)
    assert all((each.path, each.rule) == ("", "r") for each in found)
    return [each.text for each in found]


@pytest.mark.parametrize(
    "expression",
    [
        "value.distance > 0",
        "value.origin != value.dest && value.month in [1, 2]",
        "this.value.origin.startsWith('E')",
        "string(key) == 'k' && size(key) == 1",
        "headers['h'] == b'2'",  # the last one of a name
        "headers.h == b'2' && headers['n'] == b'' && !('x' in headers)",
        "timestamp.getFullYear() == 2023 && timestamp.getMilliseconds() == 123",
        "timestamp > timestamp('2020-01-01T00:00:00Z') // and so on",
        "[1, 2].exists(value, value == 2)",
        "{'value': 1}['value'] == 1",
        "value.origin == 'EWR' ? '' : 'not from Newark'",
        "value.carrier.matches('^[A-Z]*$')",
        "value.tailnum == ''",
        '"""value" \' """ != \'headers\'',
    ],
)
def test_what_holds(expression: str) -> None:
    assert told(expression) == []


def test_what_does_not_is_told_by_the_rule_s_message_or_the_expression() -> None:
    assert told("value.distance > 0", BAD) == ["does not hold: value.distance > 0"]
    assert told("value.distance\n  > 0", BAD, message="no way back") == ["no way back"]
    assert told("value.origin == 'EWR' ? 'not from ' + value.origin : ''") == ["not from EWR"]
    assert told("headers['x'] == b'1'") == ['cannot be evaluated: Key not found in map : "x"']
    assert told("1 / (value.month - 1) > 0") == ["cannot be evaluated: divide by zero"]


def test_nulls_are_passed_over_unless_they_are_asked_for() -> None:
    assert told("value.distance > 10", None) == []
    assert told("value.distance > 10 && key == b'x'", GOOD, None) == []
    assert told("has(this.value)", None) == ["does not hold: has(this.value)"]
    assert told("has(this.value)", b"") == []
    assert told("has(this.key)", GOOD, None) == ["does not hold: has(this.key)"]
    assert told("has(this.key)", GOOD, b"") == []
    assert told("this.value.distance > 0", None) == ["does not hold: this.value.distance > 0"]
    assert told("headers['h'] == b'1'", None, None) == ["does not hold: headers['h'] == b'1'"]


def test_without_a_type_they_are_bytes() -> None:
    assert told("value == b'ab' && size(value) == 2", b"ab", kind=None) == []
    assert told("value.startsWith('a')", b"ab", kind=None) != []
    assert told("string(value).startsWith('b')", b"ab", kind=None) != []


def test_keys_have_types_too_and_a_message_s_own_rules_are_not_these() -> None:
    assert told("key.origin == value.origin", GOOD, GOOD, FLIGHT, FLIGHT) == []
    assert told("key.origin == value.dest", GOOD, GOOD, FLIGHT, FLIGHT) != []
    assert told("value.month == 13", BAD, kind=RULED) == [], "it breaks two rules of its message"


def test_files_of_one_name_that_differ_cannot_be_in_one_record() -> None:
    """Where rules name both; no rule that names one of them is hindered."""
    with pytest.raises(DescriptorError, match="files called"):
        RecordEvaluator([("r", "key.origin == value.origin", "")], FLIGHT, RULED)
    assert told("value.month == 1", key_kind=RULED, key=GOOD) == []


def test_several_rules_are_each_told() -> None:
    rules = [("a", "value.month < 13", ""), ("b", "value.distance > 0", "far"), ("c", "true", "")]
    found = RecordEvaluator(rules, None, FLIGHT).violations(None, BAD, (), -1)
    assert [(each.rule, each.text) for each in found] == [
        ("a", "does not hold: value.month < 13"),
        ("b", "far"),
    ]


UNUSABLE = [
    ("value.distance >", "does not compile: line 1, column 17: Syntax error: mismatched input '<EOF>'"),
    ("value.month +\n  ) 1", "does not compile: line 2, column 3: Syntax error: extraneous input ')'"),
    ("true) || (true", "does not compile: line 1, column 5"),
    ("// nothing", "does not compile: line 1"),
    ("sum(value.month)", "does not compile: it calls what is no function"),
    ("value.carrier.matches('(')", "does not compile: invalid regular expression"),
    ("(" * 40 + "true" + ")" * 40, "does not compile: Expression recursion limit exceeded"),
    ("valeu.month > 1", "valeu is nothing: there are key, value, headers, timestamp, and this"),
    (ENDLESS, "it takes more steps than an expression may: make it cheaper"),
]
OF_TYPES = [
    ("value.mont > 1", "there is no field mont: correct its name, or bind the topic"),
    ("value.month > 0 || value.mont > 1", "there is no field mont"),
    ("value.month > 'a'", "types that do not go together in _>_(int64, string): convert one of them"),
    ("headers['a'] > 'a'", "types that do not go together in _>_(bytes, string)"),
    ("value.month + 1", "it is neither true nor false"),
]


@pytest.mark.parametrize(("expression", "why"), UNUSABLE)
def test_what_cannot_be_used_whatever_the_records_are(expression: str, why: str) -> None:
    for kind, known in ((FLIGHT, True), (None, False)):
        (found,) = record_problems([("ok", "true", ""), ("r", expression, "")], None, kind, known=known)
        assert str(found).startswith(f"floe.rules: rule r: {why}")


@pytest.mark.parametrize(("expression", "why"), OF_TYPES)
def test_what_does_not_go_with_what_the_topic_is_bound_to(expression: str, why: str) -> None:
    (found,) = record_problems([("r", expression, "")], None, FLIGHT, known=True)
    assert str(found).startswith(f"floe.rules: rule r: {why}")
    assert record_problems([("r", expression, "")], None, None, known=False) == []


def test_what_depends_on_a_record_is_found_there() -> None:
    for expression in ("headers['x'] == b'1'", "1 / value.month > 0", "value.tailnum.matches('^N')"):
        assert record_problems([("r", expression, "")], None, FLIGHT, known=True) == []
    assert record_problems([("r", "value.month > 0", "")], None, None, known=True) != [], "those are bytes"


def test_a_rule_that_does_not_compile_is_told_where_it_is_in_force_nevertheless() -> None:
    with pytest.raises(RulesError, match=r"the rules of floe\.rules do not compile"):
        told("value.month >")
