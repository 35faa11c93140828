"""The language of `floe.rules`: a topic's own rules, one expression of CEL alone or a list of them as JSON.

`value.amount > 0.0`, or `[{"id": "positive", "expression": "value.amount > 0.0", "message": "…"}]`. The
list's brackets may be left out: kafka-configs takes all brackets away from what stands behind --add-config.
What the expressions mean is not looked at here: agents try them before they propose (agent/rules/trying.py).
"""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple

RULES_MAX = 32
"""Rules of one topic."""

ID_CHARS_MAX = 100
"""Characters of a rule's id."""

MESSAGE_CHARS_MAX = 300
"""Characters of a rule's message."""

ALONE = "floe.rules"
"""The id of an expression that stands alone."""

_FORM = 'an expression of CEL, or [{"id": …, "expression": …, "message": …}, …] as JSON'
_LIST = re.compile(r"\s*(\[\s*)?\{")
_ID = re.compile(rf"[A-Za-z_][A-Za-z0-9_.-]{{0,{ID_CHARS_MAX - 1}}}")
_NAMES = ("id", "expression", "message")


class RecordRule(NamedTuple):
    """A rule of a topic. `message` may be empty: then the expression itself is told."""

    id: str
    expression: str
    message: str = ""


class _Invalid(ValueError):
    """What is wrong with a text, for people."""


def parse(text: str) -> tuple[RecordRule, ...]:
    """The rules, in their order; none of an empty text. `refusal` has found nothing against the text."""
    return _parsed(text)


def refusal(text: str) -> str | None:
    """What is wrong with the text, naming the rule, and what to do; None when nothing is.

    Expressions are only looked for.
    """
    try:
        _parsed(text)
    except _Invalid as error:
        return str(error)
    return None


def _parsed(text: str) -> tuple[RecordRule, ...]:
    if not text.strip():
        return ()
    if not _encodable(text):
        raise _Invalid("a character that UTF-8 does not have: leave it out")
    opened = _LIST.match(text)
    if opened is None:
        return (RecordRule(ALONE, text),)
    try:
        found = json.loads(text if opened[1] else f"[{text}]", object_pairs_hook=list)
    except RecursionError:
        raise _Invalid(f"lists within lists: give {_FORM}") from None
    except ValueError as error:
        raise _Invalid(f"it begins as a list of rules and is no JSON ({error}): give {_FORM}") from None
    if len(found) > RULES_MAX:
        raise _Invalid(f"{len(found)} rules, {RULES_MAX} are the most: put some of them together with &&")
    rules: dict[str, RecordRule] = {}
    for number, each in enumerate(found, 1):
        rule = _rule(f"rule {number}", each)
        if rule.id in rules:
            raise _Invalid(f"rule {number}: the id {rule.id} is an earlier rule's: give it another one")
        rules[rule.id] = rule
    return tuple(rules.values())


def _rule(place: str, pairs: Any) -> RecordRule:
    """One rule of the list. `pairs`: what JSON has there; an object is a list of pairs."""
    if not isinstance(pairs, list) or not all(isinstance(each, tuple) for each in pairs):
        raise _Invalid(f'{place} is no object: give {{"id": …, "expression": …, "message": …}}')
    fields: dict[str, str] = {}
    for name, value in pairs:
        if name not in _NAMES:
            raise _Invalid(f"{place} has {name[:ID_CHARS_MAX]!r}: a rule has {', '.join(_NAMES)}")
        if name in fields:
            raise _Invalid(f"{place} has {name} twice: give it once")
        if not isinstance(value, str) or not _encodable(value):
            raise _Invalid(f"{place}: {name} is no text: put it in quotes")
        fields[name] = value
    missing = next((name for name in ("id", "expression") if not fields.get(name, "").strip()), None)
    if missing is not None:
        raise _Invalid(f"{place} has no {missing}: give one")
    if not _ID.fullmatch(fields["id"]):
        what = f"a letter or _, then letters, digits, '_', '.' and '-', at most {ID_CHARS_MAX} in all"
        raise _Invalid(f"{place}: the id {fields['id'][:ID_CHARS_MAX]!r} is none: {what}")
    rule = RecordRule(**fields)
    if len(rule.message) > MESSAGE_CHARS_MAX:
        most = f"more than {MESSAGE_CHARS_MAX} characters"
        raise _Invalid(f"rule {rule.id}: the message has {most}: shorten it")
    return rule


def _encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
