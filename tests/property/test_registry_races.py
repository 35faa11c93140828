"""Agents that register, delete and settle at once, each by what it knew a while ago.

A schema here is a number, and a rule that is easy to check stands for compatibility: the next version of a
subject is above its newest one (BACKWARD) or above all of them (BACKWARD_TRANSITIVE). Each author judges by a
state of its own, some entries behind; what apply takes must hold by the state at its place in the log.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from coordination.commands import DeleteSchemaVersions, PutSubjectSettings, RegisterSchema
from coordination.kafka_codes import Code
from coordination.snapshot import decode, encode
from coordination.state import Done, Refused, State
from coordination.state.subject_types import Compatibility, in_force
from tests.unit.coordination.kit import A, B, Script
from tests.unit.coordination.reflect import plain

SUBJECTS = ("s", "t", ":.x:s")
LEVELS = (Compatibility.NONE, Compatibility.BACKWARD, Compatibility.BACKWARD_TRANSITIVE)
STEPS = 250


class Behind:
    """An agent that has applied all but the newest entries."""

    def __init__(self, script: Script, author: int) -> None:
        self.script, self.author = script, author
        self.state = State()
        self._applied = 0

    def catch_up(self, lag: int) -> None:
        """Apply all but the newest `lag` entries."""
        end = max(self._applied, len(self.script.entries) - lag)
        for entry in self.script.entries[self._applied : end]:
            self.state.apply(entry)
        self._applied = end

    def register(self, draw: random.Random) -> None:
        """A number that goes with what this agent sees of the subject, maybe with a reference."""
        name, number = draw.choice(SUBJECTS), draw.randrange(40)
        if not allowed(self.state, name, number):
            return
        message = RegisterSchema(
            subject=name, schema_type="N", canonical=b"%d" % number, judged_revision=self.state.revision
        )
        other = self.state.subjects.subjects.get(draw.choice(SUBJECTS))
        if other is not None and other.live and draw.random() < 0.3:
            message.references.add(name="r", subject=other.name, version=draw.choice(other.live).version)
        before = decode(encode(self.script.state))
        result = self.script.one(self.author, message)
        check(before, self.state, message, result)


def number_of(state: State, schema_id: int) -> int:
    return int(state.subjects.schemas[schema_id].canonical)


def allowed(state: State, name: str, number: int) -> bool:
    """Whether the number may follow what the subject has."""
    held = state.subjects.subjects.get(name)
    numbers = [number_of(state, one.schema_id) for one in held.live] if held is not None else []
    level = in_force(state.subjects, name).compatibility or Compatibility.BACKWARD
    if level != Compatibility.BACKWARD_TRANSITIVE:
        numbers = numbers[-1:] if level == Compatibility.BACKWARD else []
    return all(number > one for one in numbers)


def check(before: State, seen: State, message: RegisterSchema, result: object) -> None:
    """What was taken goes with the subject as it was, or is there already; so does what it refers to."""
    if isinstance(result, Refused):
        assert result.code is Code.INVALID_UPDATE_VERSION, result
        return
    assert isinstance(result, Done)
    placed: Any = result.value
    schema_id, number = placed
    held = before.subjects.subjects.get(message.subject)
    if held is not None and number in held.versions:
        assert (held.versions[number].schema_id, held.versions[number].deleted) == (schema_id, False)
        return
    assert allowed(before, message.subject, int(message.canonical))
    for one in message.references:
        version = before.subjects.subjects[one.subject].versions[one.version]
        assert version == seen.subjects.subjects[one.subject].versions[one.version]
        assert not version.deleted


def change(script: Script, draw: random.Random) -> None:
    """Delete versions, or set a level."""
    name = draw.choice(SUBJECTS)
    held = script.state.subjects.subjects.get(name)
    if draw.random() < 0.3:
        script.one(A, PutSubjectSettings(scope=draw.choice(("", name)), compatibility=draw.choice(LEVELS)))
    elif held is not None:
        version = draw.choice(list(held.versions))
        which = [version] if draw.random() < 0.8 else []
        script.one(B, DeleteSchemaVersions(subject=name, version=which, permanent=draw.random() < 0.5))


def sound(state: State) -> None:
    """Every version has a schema, every schema a version and what it refers to, no id two contents."""
    table = state.subjects
    used = {one.schema_id for subject in table.subjects.values() for one in subject.versions.values()}
    assert used == set(table.schemas)
    assert all(schema_id < state.next_schema_id for schema_id in used)
    for schema in table.schemas.values():
        for one in schema.references:
            assert one.version in table.subjects[one.subject].versions
    for subject in table.subjects.values():
        assert list(subject.versions) == sorted(subject.versions)
        for version in subject.live:
            assert refers_to_live(state, version.schema_id), "a live version refers to a deleted one"


def refers_to_live(state: State, schema_id: int) -> bool:
    references = state.subjects.schemas[schema_id].references
    return all(not state.subjects.subjects[one.subject].versions[one.version].deleted for one in references)


@pytest.mark.parametrize("seed", range(12))
def test_what_is_registered_was_judged_by_all_before_it(seed: int) -> None:
    draw = random.Random(seed)
    script = Script()
    script.register(A)
    script.register(B)
    agents = [Behind(script, A), Behind(script, B)]
    for _ in range(STEPS):
        agent = draw.choice(agents)
        agent.catch_up(draw.randrange(4))
        if draw.random() < 0.3:
            change(script, draw)
        else:
            agent.register(draw)
        sound(script.state)
    assert plain(decode(encode(script.state)).subjects) == plain(script.state.subjects)
    assert script.replayed().hash == script.state.hash
    assert script.state.next_schema_id > 20
