"""A worker: `python -m agent.rules.process`, spoken to through pipes (coordination/helper.py)."""

from __future__ import annotations

import resource
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, TypeVar

from agent.rules.messages import Bad, Check, Findings, Hello, OwnTrial, Source, Trial, Tried
from coordination.helper import serve
from objectstore.columns import Columns, columns
from schema.descriptors import DescriptorError, load
from schema.rules.evaluation import Evaluator, RulesError, Violation, messages, told, typed
from schema.rules.own_trial import record_problems
from schema.rules.record import RecordEvaluator
from schema.rules.ruled import NO_RULES, RECORD, Run
from schema.rules.trial import problems

KINDS_MAX = 256
"""Message types kept ready; the one not used for longest goes first."""

RECORDS_PER_LOOK = 4096
"""Records of a batch that are held decoded at once."""

OWN_MAX = 64
"""Topics' own rules kept ready, with the types of keys and values; the ones not used for longest go first."""

RULES_COUNTED_MAX = 1_000
"""Rules that are counted by name in one batch."""

_Broken = tuple[int, Sequence[Violation]]  # a record's place in its batch, and what it breaks
_Look = tuple[str, Callable[[Columns, int], Iterator[_Broken]]]  # whose rules, and what finds those

_E = TypeVar("_E", Evaluator, RecordEvaluator)


@dataclass(slots=True)
class _Same(Generic[_E]):
    """Records of a batch that are of one type, by their places in it, and what evaluates them."""

    by: _E
    places: list[int] = field(default_factory=list)
    payloads: list[bytes] = field(default_factory=list)


class Worker:
    """Answers one request after the other."""

    def __init__(self) -> None:
        self._known: OrderedDict[int, Evaluator] = OrderedDict()
        self._own: OrderedDict[tuple[object, ...], RecordEvaluator] = OrderedDict()

    def answer(
        self, request: Hello | Check | Trial | OwnTrial, content: memoryview
    ) -> tuple[object, list[memoryview]]:
        """Do what is asked for."""
        if isinstance(request, Hello):
            resource.setrlimit(resource.RLIMIT_DATA, (request.bytes_max, request.bytes_max))
            return None, []
        if isinstance(request, Trial | OwnTrial):
            return _tried(request), []
        return self._checked(request, content), []

    def _checked(self, request: Check, content: memoryview) -> Findings:
        found = Findings()
        try:
            kinds = self._kinds(request.kinds, request.sources, found)
            if not found.missing:
                _check(request, self._looks(request, kinds), content, found)
        except (RulesError, DescriptorError) as error:
            found.unusable = str(error)
        return found

    def _kinds(
        self, numbers: Sequence[int], sources: Mapping[int, Source], found: Findings
    ) -> list[Evaluator]:
        """What evaluates each of the message types; those that are not known are told."""
        kinds = []
        for number in numbers:
            known = self._known.get(number)
            if known is None and number in sources:
                known = self._known[number] = Evaluator(*sources[number])
            if known is None:
                found.missing.append(number)
                continue
            self._known.move_to_end(number)
            kinds.append(known)
        while len(self._known) > KINDS_MAX:
            self._known.popitem(last=False)
        return kinds

    def _looks(self, request: Check, kinds: Sequence[Evaluator]) -> list[_Look]:
        """What is to be looked at of the batch's records, by role."""
        looks: list[_Look] = [
            (role, partial(_of_messages, role, runs, kinds))
            for role, runs in request.runs.items()
            if role in request.roles
        ]
        if request.own:
            looks.append((RECORD, partial(self._of_records, request, kinds)))
        return looks

    def _of_records(
        self, request: Check, kinds: Sequence[Evaluator], some: Columns, first: int
    ) -> Iterator[_Broken]:
        """What breaks rules of its topic. Keys and values of no known type are bytes."""
        found: dict[tuple[int, int], _Same[RecordEvaluator]] = {}
        keys = typed(some.keys, request.runs.get("key", ()), first)
        values = typed(some.values, request.runs.get("value", ()), first)
        rows = zip(keys, values, some.headers, some.timestamps, strict=True)
        for index, (key, value, headers, timestamp) in enumerate(rows, first):
            types = key[0], value[0]
            same = found.get(types)
            if same is None:
                same = found[types] = _Same(self._own_rules(request, kinds, types))
            same.places.append(index)
            same.payloads.append(same.by.made(key[1], value[1], headers, timestamp))
        return _broken(found.values())

    def _own_rules(
        self, request: Check, kinds: Sequence[Evaluator], types: tuple[int, int]
    ) -> RecordEvaluator:
        """What evaluates the topic's own rules over a key and a value of these kinds.

        Raises DescriptorError.
        """
        key, value = (None if each == NO_RULES else kinds[each].kind for each in types)
        numbers = [each if each == NO_RULES else request.kinds[each] for each in types]
        which = (tuple(request.own), *numbers)
        found = self._own.get(which)
        if found is None:
            found = self._own[which] = RecordEvaluator(request.own, key, value)
            if len(self._own) > OWN_MAX:
                self._own.popitem(last=False)
        self._own.move_to_end(which)
        return found


def _check(request: Check, looks: Sequence[_Look], content: memoryview, found: Findings) -> None:
    first = request.first
    for some in _between(content, request.first, request.end):
        bad: dict[int, list[Bad]] = {}
        for role, look in looks:
            for index, broken in look(some, first):
                bad.setdefault(index, []).append(
                    Bad(index, role, told(role, broken), _plain(broken[: request.violations_max]))
                )
                _count(found, role, broken)
        found.records += len(some)
        found.bad_records += len(bad)
        found.bad += [one for index in sorted(bad) for one in bad[index]][: request.bad_max - len(found.bad)]
        if request.stop and len(found.bad) >= request.bad_max:
            break
        first += len(some)


def _between(content: memoryview, first: int, end: int) -> Iterator[Columns]:
    """Records `first` to `end` of a batch, some at a time."""
    at = 0
    for some in columns(content, RECORDS_PER_LOOK):
        begin, at = at, at + len(some)
        if at > first and begin < end:
            whole = first <= begin and at <= end
            yield some if whole else some[max(first - begin, 0) : end - begin]
        if at >= end:
            return


def _plain(broken: Sequence[Violation]) -> Sequence[tuple[str, str, str]]:
    """Violations as the agent reads them, which does not load the library that their type comes with."""
    return [(each.path, each.rule, each.text) for each in broken]


def _of_messages(
    role: str, runs: Sequence[Run], kinds: Sequence[Evaluator], some: Columns, first: int
) -> Iterator[_Broken]:
    """What breaks rules of its message."""
    found: dict[int, _Same[Evaluator]] = {}
    for index, kind, payload in messages(some.keys if role == "key" else some.values, runs, first):
        same = found.get(kind)
        if same is None:
            same = found[kind] = _Same(kinds[kind])
        same.places.append(index)
        same.payloads.append(payload)
    return _broken(each for each in found.values() if each.by.kind.has_rules)


def _broken(found: Iterable[_Same[Any]]) -> Iterator[_Broken]:
    for same in found:
        yield from ((same.places[place], broken) for place, broken in same.by.broken(same.payloads))


def _count(found: Findings, role: str, broken: Sequence[Violation]) -> None:
    for each in broken:
        key = role, each.rule
        if key in found.broken or len(found.broken) < RULES_COUNTED_MAX:
            found.broken[key] = found.broken.get(key, 0) + 1


def _tried(request: Trial | OwnTrial) -> Tried:
    try:
        if isinstance(request, Trial):
            return Tried(problems(request.descriptor_set, request.messages))
        types = [load(*source) if source is not None else None for source in (request.key, request.value)]
        return Tried(record_problems(request.rules, *types, known=request.known))
    except DescriptorError as error:
        return Tried(unusable=str(error))


def _answer(worker: Worker, request: Any, content: memoryview) -> tuple[object, list[memoryview]]:
    """What the worker answers, behind the seconds of a processor that it has had by then."""
    reply, parts = worker.answer(request, content)
    used = resource.getrusage(resource.RUSAGE_SELF)
    return (used.ru_utime + used.ru_stime, reply), parts


def main() -> None:
    """Serve requests until the agent closes the pipe or is gone."""
    serve(partial(_answer, Worker()))


if __name__ == "__main__":
    main()
