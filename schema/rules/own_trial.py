"""A topic's own rules that cannot be used, found before the first record: each is tried alone.

As it was given, so that places are those of its author; then as it is evaluated, on records that are made up
of what keys and values are. Costs what the rules cost: call it where a deadline can end it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import islice, product

import protovalidate

from schema import descriptors
from schema.descriptors import DescriptorError, MessageType
from schema.rules.problem import Problem
from schema.rules.record import MESSAGE, RecordEvaluator, message_with
from schema.rules.ruled import OwnRule
from schema.rules.trial import COMPILE, PROBLEMS_MAX, STATIC, TEXT_CHARS_MAX, samples

SAMPLES_MAX = 256
"""Records on which a topic's own rule is tried."""

CONFIG = "floe.rules"
"""Where such rules are."""

_BUDGET = "Iteration budget exceeded"
_TYPES = (*STATIC, "Applying SELECT to non-message type", "Invalid container type")
_NO_FUNCTION = "No overloads provided for FunctionStep creation"
_PLACE = re.compile(r"ERROR: <input>:(\d+):(\d+): ")
_REMEDIES = (
    (
        re.compile(r'No value with name "([^"]*)"'),
        r"\1 is nothing: there are key, value, headers, timestamp, and this, which has them all",
    ),
    (
        re.compile(r"no_such_field : (\S+)"),
        r"there is no field \1: correct its name, or bind the topic to the message that has it first",
    ),
    (
        re.compile(r"No matching overloads found : (.+)"),
        r"types that do not go together in \1: convert one of them, as with string() or int()",
    ),
    (
        re.compile("Applying SELECT to non-message type|Invalid container type"),
        "it asks for a field of what has none: bind the topic to a message first, or look at all of it",
    ),
    (re.compile(_BUDGET), "it takes more steps than an expression may: make it cheaper"),
    (
        re.compile(r"outputs an unexpected type"),
        "it is neither true nor false: compare something, or give a text, empty where the rule holds",
    ),
)
"""Of what the library says: what is told instead."""


def record_problems(
    rules: Sequence[OwnRule], key: MessageType | None, value: MessageType | None, *, known: bool
) -> list[Problem]:
    """A topic's own rules that cannot be used; `known`: these are the types of keys and values, None: bytes.

    Where they are not known yet, only what is wrong whatever they are.
    """
    found = []
    for rule, expression, message in rules:
        text = _compiled((rule, expression, message)) or _tried_record(
            (rule, expression, message), key, value, (_BUDGET, *(_TYPES if known else STATIC[:1]))
        )
        if text:
            found.append(Problem(CONFIG, "", rule, _own_words(text)))
    return found[:PROBLEMS_MAX]


def _own_words(text: str) -> str:
    """What is wrong with a topic's own rule, and what to do."""
    if text.startswith(COMPILE):
        return f"does not compile: {_place(text.removeprefix(COMPILE).partition(': ')[2])}"[:TEXT_CHARS_MAX]
    for pattern, told in _REMEDIES:
        found = pattern.search(text)
        if found is not None:
            return found.expand(told)[:TEXT_CHARS_MAX]
    return " ".join(text.split())[:TEXT_CHARS_MAX]


def _place(text: str) -> str:
    """The first line of what the compiler says, with its place in words."""
    first = text.partition("\n")[0].partition(" expecting {")[0]
    found = _PLACE.match(first)
    if found is None:
        return first.replace(_NO_FUNCTION, "it calls what is no function")
    said = first[found.end() :]
    return said if found[2] == "0" else f"line {found[1]}, column {found[2]}: {said}"  # 0: of no place


def _compiled(rule: OwnRule) -> str:
    """What is wrong with the expression as it was given, so that places are those of its author."""
    files = message_with([rule], {})
    try:
        protovalidate.Validator().collect_violations(descriptors.load(files, MESSAGE).message_class())
    except protovalidate.CompilationError as error:
        return str(error)
    except protovalidate.EvaluationError:
        pass  # its names have no meaning yet
    return ""


def _tried_record(
    rule: OwnRule, key: MessageType | None, value: MessageType | None, static: Sequence[str]
) -> str:
    try:
        evaluator = RecordEvaluator([rule], key, value)
    except DescriptorError as error:
        return str(error)
    keys, values = _contents(key), _contents(value)
    for one in islice(product(keys, values), SAMPLES_MAX):
        try:
            evaluator.try_on(*one, [("a", b"a")], 1)
        except (protovalidate.CompilationError, protovalidate.EvaluationError) as error:
            compiled = isinstance(error, protovalidate.EvaluationError)
            if not compiled or any(text in str(error) for text in static):
                return str(error)
    return ""


def _contents(kind: MessageType | None) -> list[bytes]:
    """Keys or values of a type, made up."""
    if kind is None:
        return [b"a"]
    return [b"", *(type(each).SerializePartialToString(each) for each in islice(samples(kind), SAMPLES_MAX))]
