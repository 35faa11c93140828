"""The schema registry's state: ids, versions, who judged what, what is deleted and what is kept."""

from __future__ import annotations

import pytest

from coordination.commands import (
    BindSchema,
    DeleteSchemaVersions,
    PutSubjectSettings,
    RegisterSchema,
    SchemaReference,
)
from coordination.kafka_codes import Code
from coordination.snapshot import canonical_digest, decode, encode
from coordination.state import Done, Refused, Result
from coordination.state import subject_settings as settings_room
from coordination.state import subjects as room
from coordination.state.subject_types import Mode, RegisteredSchema, Settings, context_of, in_force, meant
from coordination.state.subjects import NAME_LENGTH_MAX
from tests.unit.coordination.kit import A, B, Script
from tests.unit.coordination.reflect import plain

Reference = tuple[str, str, int]


def register(
    script: Script,
    subject: str,
    content: str,
    *references: Reference,
    judged: int | None = None,
    author: int = A,
    given: tuple[int, int] = (0, 0),
    **more: str,
) -> Result:
    """Register a schema that was judged by everything there is, or as of `judged`."""
    message = RegisterSchema(
        subject=subject,
        schema_type="PROTOBUF",
        text=f"text of {content}",
        canonical=content.encode(),
        judged_revision=script.state.revision if judged is None else judged,
        references=[SchemaReference(name=n, subject=s, version=v) for n, s, v in references],
        schema_id=given[0],
        version=given[1],
        **more,
    )
    return script.one(author, message)


def delete(script: Script, subject: str, *versions: int, permanent: bool = False) -> Result:
    return script.one(A, DeleteSchemaVersions(subject=subject, version=versions, permanent=permanent))


def settle(script: Script, scope: str, **fields: int | bool) -> Result:
    return script.one(A, PutSubjectSettings(scope=scope, **fields))  # type: ignore[arg-type]  # by field


def refused(result: Result, code: Code, words: str = "") -> None:
    assert isinstance(result, Refused), result
    assert (result.code, words in result.message) == (code, True), result


def versions(script: Script, subject: str) -> dict[int, tuple[int, bool]]:
    held = script.state.subjects.subjects[subject].versions
    return {number: (one.schema_id, one.deleted) for number, one in held.items()}


def test_one_counter_gives_ids_to_bindings_and_subjects(script: Script) -> None:
    """A record names nothing but the id: it may not mean two schemas."""
    script.topic(A, "t")
    bind = BindSchema(topic="t", descriptor_set=b"x", message="m")
    assert script.one(A, bind) == Done(1)
    assert register(script, "s", "a") == Done((2, 1))
    bind.descriptor_set = b"y"
    assert script.one(A, bind) == Done(3)
    settle(script, "", mode=Mode.IMPORT, force=True)
    refused(register(script, "s", "b", given=(3, 0)), Code.DUPLICATE_RESOURCE, "a topic's binding")
    assert register(script, "s", "b", given=(9, 0)) == Done((9, 2))
    bind.descriptor_set = b"z"
    assert script.one(A, bind) == Done(10), "behind the one that was given"


def test_the_same_content_has_one_id_and_is_a_version_once(script: Script) -> None:
    assert register(script, "s", "a") == Done((1, 1))
    assert register(script, "s", "a") == Done((1, 1)), "again: nothing is new"
    assert register(script, "other", "a") == Done((1, 1))
    assert register(script, ":.x:s", "a") == Done((1, 1)), "over contexts as well"
    assert register(script, "s", "a", metadata="{}") == Done((2, 2)), "metadata is content"
    assert register(script, "s", "a", rule_set="{}") == Done((3, 3))
    assert register(script, "s", "a", ("n", "other", 1)) == Done((4, 4)), "references are"
    assert script.state.subjects.contexts == {"": 2, ":.x:": 1}


def test_who_judged_by_what_changed_since_judges_again(script: Script) -> None:
    """Two agents register for one subject at once: the second is judged by the first."""
    register(script, "s", "a")
    judged = script.state.revision
    assert register(script, "s", "b", judged=judged, author=B) == Done((2, 2))
    refused(register(script, "s", "c", judged=judged), Code.INVALID_UPDATE_VERSION, "subject s")
    assert register(script, "s", "b", judged=judged) == Done((2, 2)), "what is there needs no judgement"
    assert register(script, "other", "c", judged=judged) == Done((3, 1)), "another subject did not change"
    assert register(script, "s", "c") == Done((3, 3))


@pytest.mark.parametrize("how", ["settings", "deleted", "first"])
def test_what_else_makes_a_judgement_old(script: Script, how: str) -> None:
    if how != "first":
        register(script, "s", "a")
    judged = script.state.revision
    if how == "settings":
        settle(script, "", compatibility=PutSubjectSettings.FULL)
    elif how == "deleted":
        delete(script, "s", 1)
    else:
        register(script, "s", "a", author=B)
    refused(register(script, "s", "b", judged=judged), Code.INVALID_UPDATE_VERSION)
    script.through_snapshot()
    refused(register(script, "s", "b", judged=judged), Code.INVALID_UPDATE_VERSION)


def test_a_reference_must_be_there_as_it_was_resolved(script: Script) -> None:
    register(script, "base", "a")
    refused(register(script, "s", "b", ("n", "base", 2)), Code.INVALID_UPDATE_VERSION, "version 2 of base")
    refused(register(script, "s", "b", ("n", "none", 1)), Code.INVALID_UPDATE_VERSION)
    judged = script.state.revision
    delete(script, "base", 1)
    refused(register(script, "s", "b", ("n", "base", 1)), Code.INVALID_UPDATE_VERSION, "gone or another")
    delete(script, "base", 1, permanent=True)
    register(script, "base", "other")
    refused(register(script, "s", "b", ("n", "base", 1), judged=judged), Code.INVALID_UPDATE_VERSION)
    assert register(script, "s", "b", ("n", "base", 1)) == Done((3, 1))


def test_what_is_referred_to_is_not_deleted(script: Script) -> None:
    register(script, "base", "a")
    register(script, "s", "b", ("n", "base", 1))
    refused(delete(script, "base"), Code.DUPLICATE_RESOURCE, "schema 2 refers to version 1 of subject base")
    assert room.referring(script.state, "base", 1) == [2]
    assert delete(script, "s") == Done((1,))
    assert room.referring(script.state, "base", 1) == []
    assert delete(script, "base") == Done((1,)), "who refers to it is deleted"
    refused(delete(script, "base", permanent=True), Code.DUPLICATE_RESOURCE)
    assert delete(script, "s", permanent=True) == Done((1,)), "and now it is gone"
    assert delete(script, "base", permanent=True) == Done((1,))
    assert plain(script.state.subjects) == plain(decode(encode(script.state)).subjects)
    assert not script.state.subjects.schemas


def test_deleted_first_then_for_good(script: Script) -> None:
    for content in ("a", "b", "c"):
        register(script, "s", content)
    register(script, "other", "b")
    refused(delete(script, "s", 2, permanent=True), Code.INVALID_REQUEST, "was not deleted before")
    assert delete(script, "s", 2) == Done((2,))
    refused(delete(script, "s", 2), Code.RESOURCE_NOT_FOUND)
    assert register(script, "s", "b") == Done((2, 4)), "the id of before, another version"
    assert delete(script, "s", 2, permanent=True) == Done((2,))
    assert versions(script, "s") == {1: (1, False), 3: (3, False), 4: (2, False)}
    refused(delete(script, "s", permanent=True), Code.INVALID_REQUEST)
    assert delete(script, "s") == Done((1, 3, 4))
    refused(delete(script, "s"), Code.RESOURCE_NOT_FOUND, "is deleted")
    assert delete(script, "s", permanent=True) == Done((1, 3, 4))
    assert list(script.state.subjects.schemas) == [2], "another subject has it"
    refused(delete(script, "s"), Code.RESOURCE_NOT_FOUND)
    assert register(script, "s", "a") == Done((4, 1)), "nothing of before is known"


def test_versions_of_a_subject_with_the_same_schema_twice(script: Script) -> None:
    """Deleted and registered again: the schema stays while one of the versions does."""
    register(script, "s", "a")
    delete(script, "s")
    assert register(script, "s", "a") == Done((1, 2))
    assert delete(script, "s", 1, permanent=True) == Done((1,))
    assert list(script.state.subjects.schemas) == [1]


def test_settings_of_a_subject_go_with_its_last_version(script: Script) -> None:
    register(script, "s", "a")
    settle(script, "s", compatibility=PutSubjectSettings.NONE)
    judged = script.state.revision
    delete(script, "s")
    assert script.state.subjects.settings == {}
    refused(register(script, "t", "b", judged=judged), Code.INVALID_UPDATE_VERSION)


def test_modes(script: Script) -> None:
    settle(script, "s", mode=Mode.READONLY)
    refused(register(script, "s", "a"), Code.POLICY_VIOLATION, "Subject s is in read-only mode")
    refused(settle(script, "s", compatibility=1), Code.POLICY_VIOLATION, "read-only")
    assert register(script, "other", "a") == Done((1, 1))
    refused(register(script, "other", "b", given=(7, 0)), Code.POLICY_VIOLATION, "is not in import mode")
    settle(script, "", mode=Mode.READONLY_OVERRIDE)
    settle(script, "other", mode=Mode.READWRITE)
    refused(register(script, "other", "b"), Code.POLICY_VIOLATION, "read-only")
    refused(delete(script, "other"), Code.POLICY_VIOLATION, "read-only")
    assert register(script, "other", "a") == Done((1, 1)), "what is there is found in every mode"
    settle(script, "", clear_mode=True)
    assert in_force(script.state.subjects, "s").mode == Mode.READONLY
    refused(settle(script, "", mode=Mode.IMPORT), Code.POLICY_VIOLATION, "found existing subjects")
    refused(settle(script, "other", mode=Mode.IMPORT), Code.POLICY_VIOLATION)
    assert settle(script, ":.x:", mode=Mode.IMPORT) == Done((0, 0, Mode.IMPORT))
    refused(register(script, ":.x:s", "b"), Code.POLICY_VIOLATION, "is not in read-write mode")


def test_imported_ids_and_versions(script: Script) -> None:
    settle(script, "", mode=Mode.IMPORT)
    assert register(script, "s", "b", given=(20, 5)) == Done((20, 5))
    assert register(script, "s", "a", given=(10, 2)) == Done((10, 2))
    assert versions(script, "s") == {2: (10, False), 5: (20, False)}, "in the order of the versions"
    assert register(script, "s", "a", given=(10, 2)) == Done((10, 2)), "a retry"
    refused(register(script, "s", "c", given=(10, 0)), Code.DUPLICATE_RESOURCE, "id 10 is of another schema")
    refused(register(script, "s", "c", given=(30, 5)), Code.DUPLICATE_RESOURCE, "version 5 of subject s has")
    assert register(script, "other", "a", given=(11, 0)) == Done((11, 1)), "two ids of one content"
    settle(script, "", mode=Mode.READWRITE)
    assert register(script, "third", "a") == Done((10, 1)), "the older one"
    assert register(script, "s", "d") == Done((21, 6))
    script.through_snapshot()
    assert register(script, "fourth", "a") == Done((10, 1))


def test_aliases_and_groups_are_set_and_taken_back(script: Script) -> None:
    """They go through snapshots; a schema that was judged before one was set is judged again."""
    table, revision = script.state.subjects, script.state.revision
    assert settle(script, "a", alias="s", compatibility_group="major") == Done((0, 0, 0, "s", "major"))
    message = RegisterSchema(subject="s", schema_type="T", canonical=b"c", judged_revision=revision)
    refused(script.one(A, message), Code.INVALID_UPDATE_VERSION)
    assert (meant(table, "a"), meant(table, "s")) == ("s", "s")
    settle(script, "a", mode=Mode.READWRITE)
    assert table.settings["a"] == Settings(0, 0, Mode.READWRITE, "s", "major"), "what is not given stays"
    settle(script, ":.x:", compatibility_group="line")
    assert in_force(table, ":.x:s").compatibility_group == "line"
    assert in_force(table, "a").alias == "s"
    script.through_snapshot()
    assert script.state.subjects.settings["a"].alias == "s"
    settle(script, "a", alias="")
    assert script.state.subjects.settings["a"].alias == ""
    settle(script, "a", clear_config=True)
    assert script.state.subjects.settings["a"] == Settings(mode=Mode.READWRITE)
    refused(settle(script, "a", alias="x" * (NAME_LENGTH_MAX + 1)), Code.INVALID_REQUEST, "an alias")
    refused(settle(script, "a", compatibility_group="x" * 2000), Code.INVALID_REQUEST)


def test_what_applies_to_whom(script: Script) -> None:
    table = script.state.subjects
    settle(script, "", compatibility=PutSubjectSettings.FULL, normalize=PutSubjectSettings.ON)
    settle(script, ":.x:", compatibility=PutSubjectSettings.NONE)
    settle(script, ":.x:s", normalize=PutSubjectSettings.OFF)
    assert in_force(table, ":.x:s")[:2] == (PutSubjectSettings.NONE, PutSubjectSettings.OFF)
    assert in_force(table, "s")[:2] == (PutSubjectSettings.FULL, PutSubjectSettings.ON)
    before = table.settings_revision
    settle(script, "s")
    assert (table.settings_revision, len(table.settings)) == (before, 3), "nothing changed"
    settle(script, ":.x:s", clear_config=True)
    assert ":.x:s" not in table.settings
    assert [context_of(name) for name in ("s", ":.x:s", ":.:s", ":.x", ":.x:")] == [
        "",
        ":.x:",
        "",
        "",
        ":.x:",
    ]


BOUNDS = {
    "SUBJECTS_MAX": 1, "VERSIONS_MAX": 1, "VERSIONS_PER_SUBJECT_MAX": 1, "BYTES_HELD_MAX": 19,
}  # fmt: skip


@pytest.mark.parametrize("name", BOUNDS)
def test_there_are_not_too_many(script: Script, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    register(script, "s", "a")
    monkeypatch.setattr(room, name, BOUNDS[name])
    subject = "t" if name == "SUBJECTS_MAX" else "s"
    refused(register(script, subject, "b"), Code.POLICY_VIOLATION)
    monkeypatch.undo()
    assert register(script, subject, "b") == Done((2, 1 if subject == "t" else 2))


def test_settings_are_not_too_many(script: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    settle(script, "a", mode=Mode.READONLY)
    monkeypatch.setattr(settings_room, "SETTINGS_MAX", 1)
    refused(settle(script, "b", mode=Mode.READONLY), Code.POLICY_VIOLATION)
    assert isinstance(settle(script, "a", mode=Mode.READWRITE), Done)


def test_schemas_that_refer_to_one_another_make_no_long_chain(script: Script) -> None:
    register(script, "s0", "0")
    for number in range(1, room.DEPTH_MAX):
        assert isinstance(register(script, f"s{number}", str(number), ("n", f"s{number - 1}", 1)), Done)
    last = ("n", f"s{room.DEPTH_MAX - 1}", 1)
    refused(register(script, "s", "x", last), Code.INVALID_REQUEST, "refer to one another")


@pytest.mark.parametrize(
    "fields",
    [
        {"subject": ""},
        {"subject": "x" * (room.NAME_LENGTH_MAX + 1)},
        {"schema_type": ""},
        {"canonical": b""},
        {"canonical": b"x" * (room.TEXT_BYTES_MAX + 1)},
        {"text": "ä" * (room.TEXT_BYTES_MAX // 2 + 1)},
        {"metadata": "x" * room.RULES_BYTES_MAX, "rule_set": "x"},
        {"references": [SchemaReference(name="n", subject="s", version=1)] * (room.REFERENCES_MAX + 1)},
        {"references": [SchemaReference(subject="s", version=1)]},
        {"schema_id": 1 << 31},
        {"version": 1},
    ],
)
def test_what_is_no_schema_is_refused(script: Script, fields: dict[str, object]) -> None:
    good = {"subject": "s", "schema_type": "PROTOBUF", "canonical": b"c", "judged_revision": 9}
    message = RegisterSchema(**{**good, **fields})  # type: ignore[arg-type]  # fields by name
    refused(script.one(A, message), Code.INVALID_REQUEST)
    assert not script.state.subjects.subjects


def test_equal_identities_of_different_contents_are_refused(
    script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody gets another's id by a hash that somebody made collide."""
    monkeypatch.setattr(RegisteredSchema, "identity", property(lambda _: b"same"))
    assert register(script, "s", "a") == Done((1, 1))
    refused(register(script, "t", "b"), Code.DUPLICATE_RESOURCE, "id 1 is of another schema")
    refused(register(script, "s", "b"), Code.DUPLICATE_RESOURCE)


def test_a_replica_and_a_snapshot_have_the_same(script: Script) -> None:
    register(script, "base", "a")
    register(script, ":.x:s", "b", ("n", "base", 1))
    register(script, ":.x:s", "c")
    delete(script, ":.x:s", 2)
    settle(script, ":.x:", mode=Mode.READONLY)
    assert canonical_digest(script.replayed()) == canonical_digest(script.state)
    assert plain(decode(encode(script.state))) == plain(script.state)


def test_below_its_level_there_is_no_registry() -> None:
    script = Script()
    script.register(A, level=1)
    refused(register(script, "s", "a"), Code.UNSUPPORTED_VERSION)
    refused(delete(script, "s"), Code.UNSUPPORTED_VERSION)
    refused(settle(script, "s", mode=Mode.READONLY), Code.UNSUPPORTED_VERSION)
