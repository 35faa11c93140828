"""`floe.rules`: what it looks like, and that a change of it has records judged again."""

from __future__ import annotations

import json

import pytest

from coordination.commands import AlterTopicConfigs, BindSchema
from coordination.config_types import VALUE_LENGTH_MAX
from coordination.kafka_codes import Code
from coordination.record_rules import (
    ALONE,
    ID_CHARS_MAX,
    MESSAGE_CHARS_MAX,
    RULES_MAX,
    RecordRule,
    parse,
    refusal,
)
from coordination.state import Done, Refused
from coordination.state.chunks import BOUND_ANEW
from coordination.topic_configs import record_rules_in_force
from coordination.topic_configs import refusal as config_refusal
from tests.unit.coordination.kit import A, B, Script
from tests.unit.coordination.test_judged_batches import commit

CHANGE = AlterTopicConfigs.Change
ONE = {"id": "a", "expression": "true"}


def alter(script: Script, **configs: str) -> Done | Refused:
    changes = [CHANGE(name=f"floe.{key.replace('_', '.')}", value=value) for key, value in configs.items()]
    result = script.one(B, AlterTopicConfigs(topic="t", changes=changes))
    assert isinstance(result, Done | Refused)
    return result


@pytest.mark.parametrize(
    ("text", "rules"),
    [
        ("", ()),
        (" \n", ()),
        ("value.amount > 0.0", (RecordRule(ALONE, "value.amount > 0.0"),)),
        ("[1, 2].exists(x, x == value.a)", (RecordRule(ALONE, "[1, 2].exists(x, x == value.a)"),)),
        (json.dumps([ONE]), (RecordRule("a", "true"),)),
        (' [ {"id": "a", "expression": "x\\ny", "message": "m"}]', (RecordRule("a", "x\ny", "m"),)),
        # What kafka-configs leaves of a list: all brackets are gone.
        ('{"id": "a", "expression": "true"},{"id": "b.c-d", "expression": "1 > 0"}',
         (RecordRule("a", "true"), RecordRule("b.c-d", "1 > 0"))),
    ],
)  # fmt: skip
def test_what_it_looks_like(text: str, rules: tuple[RecordRule, ...]) -> None:
    assert refusal(text) is None
    assert parse(text) == rules


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('[{"id": "a", "expression": "true"', "it begins as a list of rules and is no JSON (Expecting ',' "
         "delimiter: line 1 column 34 (char 33))"),
        ('{"id": "a", expression: "true"}', "is no JSON"),
        (json.dumps([{**ONE, "id": f"r{n}"} for n in range(RULES_MAX + 1)]), f"{RULES_MAX + 1} rules,"),
        (json.dumps([ONE, {**ONE, "message": "m"}]), "rule 2: the id a is an earlier rule's"),
        (json.dumps([{"id": "a"}]), "rule 1 has no expression"),
        (json.dumps([{**ONE, "expression": " "}]), "rule 1 has no expression"),
        (json.dumps([{"expression": "true"}]), "rule 1 has no id"),
        (json.dumps([{}]), "rule 1 has no id"),
        (json.dumps([{**ONE, "level": "high"}]), "rule 1 has 'level': a rule has id, expression, message"),
        ('[{"id": "a", "id": "b", "expression": "true"}]', "rule 1 has id twice"),
        (json.dumps([{**ONE, "expression": 1}]), "rule 1: expression is no text"),
        (json.dumps([{**ONE, "expression": ["true"]}]), "rule 1: expression is no text"),
        (json.dumps([ONE, "true"]), "rule 2 is no object"),
        (json.dumps([ONE, ["true"]]), "rule 2 is no object"),
        (json.dumps([{**ONE, "id": "1st"}]), "rule 1: the id '1st' is none"),
        (json.dumps([{**ONE, "id": "a" * (ID_CHARS_MAX + 1)}]), "is none"),
        (json.dumps([{**ONE, "message": "m" * (MESSAGE_CHARS_MAX + 1)}]), "rule a: the message has more"),
        ('[{"id": "a", "expression": "\\ud800"}]', "rule 1: expression is no text"),
        ("value == '\ud800'", "a character that UTF-8 does not have"),
        ("[{" * 2_000, "give an expression of CEL, or"),
    ],
)  # fmt: skip
def test_what_it_may_not_be(text: str, why: str) -> None:
    told = refusal(text)
    assert told is not None
    assert why in told


def test_it_is_bounded_as_every_config_is() -> None:
    assert config_refusal("floe.rules", "a" * VALUE_LENGTH_MAX, 2) is None
    assert "exceed the limit" in (config_refusal("floe.rules", "a" * (VALUE_LENGTH_MAX + 1), 2) or "")


def test_the_policy_of_the_values_says_whether_anybody_looks() -> None:
    assert record_rules_in_force({"floe.rules": "true"}, {}) == ""
    assert record_rules_in_force({"floe.rules": "true", "floe.value.rules": "observe"}, {}) == "true"
    assert record_rules_in_force({"floe.rules": "true"}, {"floe.value.rules": "reject"}) == "true"
    assert (
        record_rules_in_force(
            {"floe.rules": "true", "floe.value.rules": "off"}, {"floe.value.rules": "reject"}
        )
        == ""
    )
    assert record_rules_in_force({"floe.rules": "true", "floe.key.rules": "reject"}, {}) == ""
    assert record_rules_in_force({"floe.rules": " ", "floe.value.rules": "reject"}, {}) == ""


def test_batches_that_were_judged_by_other_rules_are_judged_again(script: Script) -> None:
    """Also of a topic that is bound to nothing; a change that nobody looks at changes nothing."""
    script.topic(A, "t")
    before = script.state.revision
    alter(script, rules="true")
    assert commit(script, before, (0, 1)).errors == [0], "the policy is off"
    alter(script, value_rules="reject")
    assert commit(script, before, (0, 1)).errors == [BOUND_ANEW]
    at = script.state.revision
    alter(script, key_rules="off")
    alter(script, rules="true", value_rules="reject")
    script.through_snapshot()
    assert commit(script, at, (0, 1)).errors == [0], "they are the same"
    alter(script, rules="false")
    assert commit(script, at, (0, 1)).errors == [BOUND_ANEW]
    at = script.state.revision
    alter(script, rules="")
    assert commit(script, at, (0, 1)).errors == [BOUND_ANEW]
    at = script.state.revision
    alter(script, value_rules="observe")
    assert commit(script, at, (0, 1)).errors == [0], "there is nothing to look at"


def test_rules_of_a_bound_topic_too(script: Script) -> None:
    script.topic(A, "t")
    script.one(B, BindSchema(topic="t", descriptor_set=b"set", message="m"))
    alter(script, value_rules="reject")
    at = script.state.revision
    alter(script, rules="true")
    assert commit(script, at, (0, 1)).errors == [BOUND_ANEW]


def test_what_has_no_form_is_refused_by_apply(script: Script) -> None:
    script.topic(A, "t")
    refused = alter(script, rules='[{"id": "a"}]')
    assert isinstance(refused, Refused)
    assert refused.code == Code.INVALID_CONFIG
    assert refused.message.endswith("for configuration floe.rules: rule 1 has no expression: give one")
