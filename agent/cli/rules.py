"""`floe topic rules`: how many of a topic's newest records break rules, and which; nothing is changed.

Rules are evaluated in this process: one that takes long holds up nobody but who asks, and Ctrl-C ends it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from google.protobuf.message import DecodeError

from agent.cli import requests
from agent.cli.failures import Failure, Status, usage
from agent.cli.reading import Record, newest
from agent.cli.session import session
from agent.cli.values import Bound, Values, known_values
from coordination.config_types import VALUE_LENGTH_MAX
from coordination.record_rules import parse, refusal
from schema.descriptors import DescriptorError, MessageType, load
from schema.framing import FramingError
from schema.rules.evaluation import Evaluator, RulesError, Violation
from schema.rules.own_trial import record_problems
from schema.rules.record import RecordEvaluator
from schema.rules.ruled import RECORD, OwnRule

_Typed = tuple[MessageType | None, bytes]  # of a key or a value: what it is, None: bytes; without its frame

EXAMPLES_MAX = 3
"""Records that are told of each rule and field."""

BROKEN_MAX = 1_000
"""Pairs of rule and field that are told apart; the records of others are counted as bad all the same."""

_PLACE = re.compile(r"\[[^\]]*\]")
"""Which item of a list or a map it is: the field is the same."""


@dataclass(slots=True)
class Broken:
    """How often a rule of a field is broken. `examples`: partition, offset and what is said of the record."""

    times: int = 0
    examples: list[tuple[int, int, str]] = field(default_factory=list)


@dataclass(slots=True)
class Outcome:
    """What came of it.

    `ruled`: records that have a message with rules, or a topic with rules of its own. `unreadable`: keys and
    values that are not the message.
    `broken`: by role, field and rule.
    """

    records: int = 0
    ruled: int = 0
    bad: int = 0
    unreadable: int = 0
    broken: dict[tuple[str, str, str], Broken] = field(default_factory=dict)


class Trial:
    """Evaluates records one after the other: by the rules of their messages, and by a topic's own ones.

    `own` with `alone`: by these and no others.
    """

    def __init__(self, values: Values, own: Sequence[OwnRule] = (), *, alone: bool = False) -> None:
        self._values = values
        self._evaluators: dict[bytes, Evaluator] = {}
        self._own = own
        self._alone = alone
        self._own_evaluators: dict[tuple[bytes, ...], RecordEvaluator] = {}
        self.outcome = Outcome()

    def look(self, record: Record) -> None:
        """Evaluate one record. Raises Failure where rules cannot be used."""
        outcome, ruled, bad = self.outcome, bool(self._own), False
        outcome.records += 1
        messages: dict[str, _Typed] = {}
        for role, data in (("key", record.key), ("value", record.value)):
            if data is None:
                continue
            try:
                kind, payload = typed = self._values.typed(role, data, record.headers) or (None, data)
                if kind is not None and kind.has_rules and not self._alone:
                    ruled = True
                    for each in self._violations(kind, payload):
                        bad = True
                        self._note(role, each, record)
                elif kind is not None and self._own:
                    kind.message_class.FromString(payload)  # to see whether it is that message
                messages[role] = typed
            except (FramingError, DescriptorError, DecodeError):
                outcome.unreadable += 1
        if self._own and len(messages) == (record.key is not None) + (record.value is not None):
            for each in self._own_violations(messages, record):
                bad = True
                self._note(RECORD, each, record)
        outcome.ruled += ruled
        outcome.bad += bad

    def _own_violations(self, messages: Mapping[str, _Typed], record: Record) -> Sequence[Violation]:
        key, value = (messages.get(role, (None, None)) for role in ("key", "value"))
        which = tuple(kind.digest if kind is not None else b"" for kind, _ in (key, value))
        known = self._own_evaluators.get(which)
        try:
            if known is None:
                known = self._own_evaluators[which] = RecordEvaluator(self._own, key[0], value[0])
            return known.violations(key[1], value[1], record.headers, record.timestamp)
        except (RulesError, DescriptorError) as error:
            raise Failure(Status.FAILED, str(error)) from None

    def _violations(self, kind: MessageType, payload: bytes) -> Sequence[Violation]:
        known = self._evaluators.get(kind.digest)
        if known is None:
            known = self._evaluators[kind.digest] = Evaluator(kind.descriptor_set, kind.name)
        try:
            return known.violations(payload)
        except RulesError as error:
            raise Failure(Status.FAILED, str(error)) from None

    def _note(self, role: str, violation: Violation, record: Record) -> None:
        key = (role, _PLACE.sub("[]", violation.path), violation.rule)
        if key not in self.outcome.broken and len(self.outcome.broken) >= BROKEN_MAX:
            return
        broken = self.outcome.broken.setdefault(key, Broken())
        last = broken.examples[-1][:2] if broken.examples else None
        broken.times += 1
        if len(broken.examples) < EXAMPLES_MAX and last != (record.partition, record.offset):
            broken.examples.append((record.partition, record.offset, violation.text))


async def tried(
    bootstrap: str, http: str, topic: str, count: int, values: Values | None, candidate: str = ""
) -> Outcome:
    """Evaluate the newest `count` records, by what the topic is bound to or by `values`. Raises Failure.

    `candidate`: rules as `floe.rules` may have them, instead of all that is in force.
    """
    async with session(bootstrap) as kafka:
        bounds = await requests.bounds(kafka, await requests.topic(kafka, topic))
        configs = {each.name: each.value or "" for each in await requests.configs(kafka, topic)}
    known = known_values(topic, http) if values is None else values
    own = parse(candidate or configs.get("floe.rules", ""))
    if candidate:
        require_usable(own, known)
    trial = Trial(known, own, alone=bool(candidate))
    await newest(bootstrap, topic, bounds, count, trial.look)
    return trial.outcome


def given(expression: str, file: Path | None) -> str:
    """Rules that are not set yet, as `floe.rules` may have them. Raises Failure."""
    text = file.read_text() if file is not None else expression
    why = refusal(text) if len(text) <= VALUE_LENGTH_MAX else f"more than {VALUE_LENGTH_MAX} characters"
    if why is None and not text.strip():
        why = "it is empty"
    if why is not None:
        raise usage(f"{f'--rules-file {file}' if file is not None else '--rule'}: {why}")
    return text


def require_usable(own: Sequence[OwnRule], values: Values) -> None:
    """Raises Failure naming rule, place and remedy of those that the topic would refuse."""
    types = values.types()
    found = record_problems(own, *(types or (None, None)), known=types is not None)
    if found:
        raise Failure(Status.FAILED, "; ".join(map(str, found)))


def by_message(descriptor_set: bytes, message: str) -> Values:
    """Values are this message, whatever the topic is bound to."""
    return Values({"value": Bound(0, "any", load(descriptor_set, message))})


def as_json(topic: str, outcome: Outcome) -> Mapping[str, object]:
    """For programs."""
    return {
        "topic": topic,
        "records": outcome.records,
        "with_rules": outcome.ruled,
        "bad_records": outcome.bad,
        "unreadable": outcome.unreadable,
        "broken": [
            {
                "role": role,
                "field": path,
                "rule": rule,
                "times": each.times,
                "examples": [{"partition": p, "offset": o, "text": text} for p, o, text in each.examples],
            }
            for (role, path, rule), each in _most_first(outcome)
        ],
    }


def rows(outcome: Outcome) -> Iterator[tuple[object, ...]]:
    """For people: field, rule, how often, and an example."""
    for (role, path, rule), each in _most_first(outcome):
        partition, offset, text = each.examples[0]
        yield f"{role}.{path}" if path else role, rule, each.times, f"{partition} at {offset}", text


def _most_first(outcome: Outcome) -> list[tuple[tuple[str, str, str], Broken]]:
    return sorted(outcome.broken.items(), key=lambda each: -each[1].times)


def said(topic: str, outcome: Outcome) -> str:
    """In one line."""
    if not outcome.ruled:
        return f"{outcome.records} records of {topic} were read; none has a message with rules"
    unreadable = f"; {outcome.unreadable} keys or values are not that message" if outcome.unreadable else ""
    return f"{outcome.bad} of the newest {outcome.records} records of {topic} break rules{unreadable}"
