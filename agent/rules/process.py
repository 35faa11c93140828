"""A worker: `python -m agent.rules.process`, spoken to through pipes (coordination/helper.py)."""

from __future__ import annotations

import resource
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from itertools import islice

from agent.rules.messages import Bad, Check, Findings, Hello, Source, Trial, Tried
from coordination.helper import serve
from objectstore.batch import Record, records
from schema.descriptors import DescriptorError
from schema.rules.evaluation import Evaluator, RulesError, Violation, messages, told
from schema.rules.trial import problems

KINDS_MAX = 256
"""Message types kept ready; the one not used for longest goes first."""

RECORDS_PER_LOOK = 4096
"""Records of a batch that are held decoded at once."""

RULES_COUNTED_MAX = 1_000
"""Rules that are counted by name in one batch."""


class Worker:
    """Answers one request after the other."""

    def __init__(self) -> None:
        self._known: OrderedDict[int, Evaluator] = OrderedDict()

    def answer(self, request: Hello | Check | Trial, content: memoryview) -> tuple[object, list[memoryview]]:
        """Do what is asked for."""
        if isinstance(request, Hello):
            resource.setrlimit(resource.RLIMIT_DATA, (request.bytes_max, request.bytes_max))
            return None, []
        if isinstance(request, Trial):
            return _tried(request), []
        return self._checked(request, content), []

    def _checked(self, request: Check, content: memoryview) -> Findings:
        found = Findings()
        try:
            kinds = self._kinds(request.kinds, request.sources, found)
            if not found.missing:
                _check(request, kinds, content, found)
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


def _check(request: Check, kinds: Sequence[Evaluator], content: memoryview, found: Findings) -> None:
    rest, first = islice(records(content), request.first, request.end), request.first
    while some := list(islice(rest, RECORDS_PER_LOOK)):
        bad: dict[int, list[Bad]] = {}
        for role, runs in request.runs.items():
            for index, kind, payload in messages(_values(some, role), runs, first):
                broken = kinds[kind].violations(payload)
                if broken:
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


def _plain(broken: Sequence[Violation]) -> Sequence[tuple[str, str, str]]:
    """Violations as the agent reads them, which does not load the library that their type comes with."""
    return [(each.path, each.rule, each.text) for each in broken]


def _values(some: Sequence[Record], role: str) -> list[bytes | None]:
    return [record.key for record in some] if role == "key" else [record.value for record in some]


def _count(found: Findings, role: str, broken: Sequence[Violation]) -> None:
    for each in broken:
        key = role, each.rule
        if key in found.broken or len(found.broken) < RULES_COUNTED_MAX:
            found.broken[key] = found.broken.get(key, 0) + 1


def _tried(request: Trial) -> Tried:
    try:
        return Tried(problems(request.descriptor_set, request.messages))
    except DescriptorError as error:
        return Tried(unusable=str(error))


def main() -> None:
    """Serve requests until the agent closes the pipe or is gone."""
    serve(Worker().answer)


if __name__ == "__main__":
    main()
