"""The registry's truth goes with the product's own rules, and what breaks them is found."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from coordination.commands import DeleteSchemaVersions, PutSubjectSettings, RegisterSchema
from coordination.state.subject_types import Compatibility, Mode
from coordination.state.types import At, Done
from schema.registry import protobuf
from schema.registry.compatibility import Earlier, Loaded, problems
from tests.sim.astray import Astray
from tests.sim.bindings import BAD
from tests.sim.bound_messages import Written
from tests.sim.subjects import OTHER, OWN, TEXTS, Subjects, Text, by_form

FORMS = {text: form for form, text in by_form().items()}
A, A2, B = TEXTS[0], TEXTS[1], TEXTS[4]


class Log:
    """Commands with what apply is said to have made of them, one a revision."""

    def __init__(self) -> None:
        self.found: list[str] = []
        self.truth = Subjects(lambda anomaly, _: self.found.append(anomaly), Astray())
        self.revision = 0

    def _at(self) -> At:
        self.revision += 1
        return SimpleNamespace(revision=self.revision)  # type: ignore[return-value]  # all that is looked at

    def register(
        self, subject: str, text: Text, schema_id: int, number: int, *, given: bool = False
    ) -> list[str]:
        """What speaks against it."""
        message = RegisterSchema(subject=subject, canonical=FORMS[text])
        if given:
            message.schema_id, message.version = schema_id, number
        return self._play(Subjects._registered, message, Done((schema_id, number)))

    def delete(self, subject: str, number: int, *, permanent: bool = False) -> None:
        """One version."""
        message = DeleteSchemaVersions(subject=subject, permanent=permanent)
        self._play(Subjects._deleted, message, Done((number,)))

    def put(self, subject: str, **what: Any) -> None:
        """Settings."""
        self._play(Subjects._set, PutSubjectSettings(scope=subject, **what), Done(None))

    def _play(self, played: Any, message: Any, result: Any) -> list[str]:
        before = len(self.found)
        played(self.truth, None, message, result, self._at())
        return self.found[before:]


@pytest.mark.parametrize("reader", TEXTS)
@pytest.mark.parametrize("writer", TEXTS)
def test_families_are_what_the_registry_calls_compatible(reader: Text, writer: Text) -> None:
    new, old = (Loaded("PROTOBUF", protobuf.load(FORMS[each], {})) for each in (reader, writer))
    found = problems(new, [Earlier(1, writer.given, old)], "FULL")
    assert (not found) == (reader.family == writer.family), found


def test_what_is_in_order_is_no_anomaly() -> None:
    log = Log()
    assert log.register(OWN, A, 1, 1) == log.register(OWN, A2, 2, 2) == log.register(OTHER, A, 1, 1) == []
    assert log.register(OWN, A, 1, 1) == []
    log.delete(OWN, 2)
    assert log.register(OWN, A2, 2, 3) == []
    log.put(OWN, compatibility=Compatibility.NONE)
    assert log.register(OWN, B, 3, 4) == []
    log.put(OTHER, mode=Mode.IMPORT)
    assert log.register(OTHER, B, 9_000, 5, given=True) == []
    assert [each[:2] for each in log.truth.now.live(OWN)] == [(1, 1), (3, 2), (4, 3)]


def test_each_rule_that_is_broken_has_a_name() -> None:
    """The subject has one version of the first text, id 1; another one has nothing."""

    def told(subject: str, text: Text, schema_id: int, number: int, *, given: bool = False) -> list[str]:
        log = Log()
        log.register(OWN, A, 1, 1)
        return log.register(subject, text, schema_id, number, given=given)

    assert told(OWN, A, 1, 2) == ["schema-doubled"]
    assert told(OTHER, A, 2, 1) == ["schema-doubled"]
    assert told(OWN, A2, 2, 3) == ["version-gap"]
    assert told(OWN, A2, 2, 1) == ["version-gap"]
    assert told(OWN, B, 2, 2) == ["incompatible-version"]
    assert told(OTHER, B, 1, 1) == ["id-doubled"]
    assert told(OWN, A2, 2, 2, given=True) == ["mode-ignored"]
    log = Log()
    log.put(OWN, mode=Mode.READONLY)
    assert log.register(OWN, A, 1, 1) == ["mode-ignored"]


def test_between_question_and_answer_there_were_these() -> None:
    log = Log()
    for number, text in enumerate(TEXTS[:3], 1):
        log.register(OWN, text, number, number)
    assert [len(view.live(OWN)) for view in log.truth.between(0, 3)] == [0, 1, 2, 3]
    assert [len(view.live(OWN)) for view in log.truth.between(2, 2)] == [2]
    assert [len(view.live(OWN)) for view in log.truth.between(9, 12)] == [3]


@pytest.mark.parametrize(("number", "taken"), [(0, (False, True, True)), (2, (False, True, False))])
def test_a_record_is_good_by_the_versions_of_its_place(number: int, taken: tuple[bool, ...]) -> None:
    """Hidden, live and of the version that is followed, live."""
    log = Log()
    for each, text in enumerate(TEXTS[:3], 1):
        log.register(OWN, text, each, each)
    log.delete(OWN, 1)
    log.truth._views[-1] = view = log.truth.now.following(OWN, number)
    assert tuple(view.accepts(Written.of({}, schema_id)) for schema_id in (1, 2, 3)) == taken
    assert [view.accepts(each) for each in (Written(None), Written(BAD[0]), Written.of({}))] == [
        True,
        False,
        False,
    ]
    nothing = view.following("", 0)
    assert all(nothing.accepts(Written(each)) for each in BAD)


def test_a_row_shows_its_own_schema_or_was_never_to_stand_there() -> None:
    log = Log()
    log.register(OWN, A, 1, 1)
    log.register(OWN, A2, 2, 2)
    log.truth._places = {0: log.truth.now.following(OWN, 0), 1: log.truth.now}
    record = Written.of({1: 4}, 1)
    (shown,) = log.truth.shown_at(0, record)
    assert (shown.message, shown.fields) == (A.message, {1: 2})
    assert [*log.truth.shown_at(0, Written.of({1: 4}, 7))] == []
    assert [each.kind for each in log.truth.shown_at(1, record)] == ["bound to nothing"]
    log.delete(OWN, 1)
    log.delete(OWN, 1, permanent=True)
    assert [each.wrong for each in log.truth.shown_at(0, record)] == [False, True]
