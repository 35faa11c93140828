"""Topics that follow subjects of the registry: what binds them, what an id means, what a deletion does."""

from __future__ import annotations

import pytest

from coordination.commands import (
    AlterTopicConfigs,
    BindSchema,
    CreateTopic,
    DeleteSchemaVersions,
    DeleteTopic,
    MoveLogStart,
    config_entries,
)
from coordination.kafka_codes import Code
from coordination.snapshot import canonical_digest
from coordination.state import ChunkCommitted, Done, Refused, Result, binding, spans
from coordination.state.chunks import BOUND_ANEW
from coordination.state.following import Meaning, imported, meaning, newest
from coordination.state.types import Naming, Topic
from tests.unit.coordination.kit import A, B, Script, chunk
from tests.unit.coordination.reflect import plain
from tests.unit.coordination.test_subjects import register

KEY, VALUE = BindSchema.KEY, BindSchema.VALUE
VALIDATE, STRATEGY = "confluent.value.schema.validation", "confluent.value.subject.name.strategy"
STRATEGIES = "io.confluent.kafka.serializers.subject."
Set = AlterTopicConfigs.Change


def configure(script: Script, topic: str = "t", **configs: str) -> Result:
    """Set configs; with "-" take one away. Names without `confluent.` and with underscores for dots."""
    changes = [
        Set(name=f"confluent.{name.replace('_', '.')}", value=value)
        if value != "-"
        else Set(name=f"confluent.{name.replace('_', '.')}", operation=Set.DELETE)
        for name, value in configs.items()
    ]
    return script.one(B, AlterTopicConfigs(topic=topic, changes=changes))


def validate(script: Script, strategy: str = "TopicNameStrategy", topic: str = "t") -> None:
    """Turn the values' validation on."""
    strategy = f"{STRATEGIES}{strategy}"
    done = configure(script, topic, value_schema_validation="true", value_subject_name_strategy=strategy)
    assert done == Done()


def follow(
    script: Script, subject: str = "s", version: int = 0, role: int = VALUE, message: str = ""
) -> Result:
    return script.one(
        B, BindSchema(topic="t", role=role, subject=subject, subject_version=version, message=message)
    )


def commit(script: Script, judged: int | None = None, handle: int = 0) -> int:
    """The error of one batch that was judged by the state of now, unless told otherwise."""
    script.chunks[A] = script.chunks.get(A, 0) + 1
    message = chunk(script.chunks[A], (handle, 1))
    message.judged_revision = script.state.revision if judged is None else judged
    result = script.one(A, message)
    assert isinstance(result, ChunkCommitted)
    return result.errors[0]


def hide(script: Script, subject: str, *versions: int, permanent: bool = False) -> None:
    message = DeleteSchemaVersions(subject=subject, version=versions, permanent=permanent)
    assert isinstance(script.one(A, message), Done)


def topic(script: Script) -> Topic:
    return script.state.topics["t"]


def meant(script: Script, schema_id: int, role: int = VALUE) -> tuple[str, ...] | str:
    """As which subjects an id counts; or why it does not."""
    bound = script.state.schemas[binding.bound_id(topic(script), role) or 0]
    found = meaning(script.state, bound, schema_id)
    return found.subjects if isinstance(found, Meaning) else found


def again(script: Script) -> None:
    """What a snapshot and another agent make of it is the same."""
    before = plain(script.state)
    assert canonical_digest(script.replayed()) == canonical_digest(script.state)
    script.through_snapshot()
    assert plain(script.state) == before


@pytest.fixture
def made(script: Script) -> Script:
    """The topic t."""
    script.topic(A, "t", 2)
    return script


def test_every_version_that_is_not_deleted_counts(made: Script) -> None:
    assert follow(made, "s") == Done(1), "before the subject is there"
    assert (
        meant(made, 2)
        == "Confluent frame names schema 2, which is registered nowhere, and no version of subject s"
    )
    assert register(made, "s", "a") == Done((2, 1))
    assert register(made, "s", "b") == Done((3, 2))
    assert register(made, "other", "c") == Done((4, 1))
    assert [meant(made, 2), meant(made, 3)] == [("s",), ("s",)]
    hide(made, "s", 1)
    for schema_id, why in (
        (1, "which is a topic's binding, and no version of subject s"),
        (2, "which is a deleted version only, and not of subject s"),
        (4, "which is a version of other, and not of subject s"),
    ):
        assert meant(made, schema_id) == f"Confluent frame names schema {schema_id}, {why}"
    assert newest(made.state, made.state.schemas[1]) == 3
    again(made)


def test_a_binding_may_stay_at_one_version(made: Script) -> None:
    refused = follow(made, "s", 1)
    assert isinstance(refused, Refused)
    assert (refused.code, refused.message) == (
        Code.RESOURCE_NOT_FOUND,
        "version 1 of subject s does not exist",
    )
    register(made, "s", "a")
    register(made, "s", "b")
    assert follow(made, "s", 1, message="shop.Order") == Done(3)
    assert meant(made, 1) == ("s",)
    told = meant(made, 2)
    assert (
        told == "Confluent frame names schema 2, which is a version of s, and not of version 1 of subject s"
    )
    assert newest(made.state, made.state.schemas[3]) == 1
    hide(made, "s", 1)
    assert newest(made.state, made.state.schemas[3]) == 0
    again(made)


def test_configs_bind_as_confluent_s_brokers_do(made: Script) -> None:
    validate(made)
    bound = made.state.schemas[1]
    assert (bound.subject, bound.naming, bound.tombstones) == ("t-value", Naming.SUBJECT, True)
    assert configure(made, key_schema_validation="TRUE") == Done()
    assert made.state.schemas[2].subject == "t-key"
    assert topic(made).binding == (2, 1)
    assert commit(made) == 0
    assert configure(made, value_schema_validation="false") == Done()
    assert configure(made, key_schema_validation="-") == Done()
    assert topic(made).binding == (0, 0)
    assert commit(made) == 0
    validate(made)
    assert (topic(made).binding, len(made.state.schemas)) == ((0, 1), 2), "the same binding has the same id"
    assert commit(made) == 0
    assert [tuple(one) for one in topic(made).partitions[0].spans] == [(0, 2, 1), (1, 0, 0), (2, 0, 1)]
    again(made)


def test_a_topic_is_made_with_them(script: Script) -> None:
    configs = config_entries({VALIDATE: "true", STRATEGY: f"{STRATEGIES}RecordNameStrategy"})
    made = CreateTopic(name="t", topic_id=b"t" * 16, partitions=1, configs=configs)
    assert isinstance(script.one(A, made), Done)
    assert topic(script).binding == (0, 1)
    assert commit(script) == 0
    assert [tuple(one) for one in topic(script).partitions[0].spans] == [(0, 0, 1)]
    again(script)
    script.one(A, DeleteTopic(name="t"))
    assert (script.state.followers, script.state.schemas) == ({}, {})


def test_names_of_messages_are_subjects(made: Script) -> None:
    """Which of them a record's message is, whoever reads the record knows."""
    for number, subject in enumerate(("shop.Order", "t-shop.Order", "t-value", ":.x:shop.Order"), 1):
        assert register(made, subject, "a") == Done((1, 1)), number
    register(made, "elsewhere", "b")
    validate(made, "RecordNameStrategy")
    assert meant(made, 1) == ("shop.Order", "t-shop.Order", "t-value")
    validate(made, "TopicRecordNameStrategy")
    assert meant(made, 1) == ("t-shop.Order", "t-value")
    told = meant(made, 2)
    assert isinstance(told, str)
    assert told.endswith(
        "which is a version of elsewhere, and not of a subject called as the message, after t-"
    )
    again(made)


@pytest.mark.parametrize(
    ("strategy", "subject", "counts"),
    [
        ("TopicNameStrategy", "t-value", True),
        ("TopicNameStrategy", "t-key", False),
        ("TopicNameStrategy", "shop.Order", False),
        ("RecordNameStrategy", "shop.Order", True),
        ("RecordNameStrategy", ":.x:shop.Order", False),
        ("TopicRecordNameStrategy", "t-shop.Order", True),
        ("TopicRecordNameStrategy", "t-shop.The-Order", True),
        ("TopicRecordNameStrategy", "u-shop.Order", False),
    ],
)
def test_records_that_may_name_a_deleted_version_are_judged_again(
    made: Script, strategy: str, subject: str, counts: bool
) -> None:
    made.topic(A, "u")
    register(made, subject, "a")
    validate(made, strategy)
    judged = made.state.revision
    register(made, subject, "b")
    assert commit(made, judged) == 0, "a version more refuses nobody"
    hide(made, subject, 1)
    made.through_snapshot()
    assert commit(made, judged) == (BOUND_ANEW if counts else 0)
    assert commit(made, judged, handle=2) == 0, "another topic"
    judged = made.state.revision
    hide(made, subject, 1, permanent=True)
    assert commit(made, judged) == 0, "it counted no more already"
    again(made)


def test_a_change_of_configs_has_records_judged_again(made: Script) -> None:
    judged = made.state.revision
    validate(made)
    assert commit(made, judged) == BOUND_ANEW
    judged = made.state.revision
    validate(made)
    assert commit(made, judged) == 0, "nothing changed"
    validate(made, "RecordNameStrategy")
    assert commit(made, judged) == BOUND_ANEW
    configure(made, value_subject_name_strategy="-")
    configure(made, value_schema_validation="-")
    again(made)


def test_who_is_bound_by_one_means_is_not_bound_by_the_other(made: Script) -> None:
    assert script_bind(made) == Done(1)
    refused = configure(made, value_schema_validation="true")
    assert isinstance(refused, Refused)
    assert refused.code is Code.INVALID_CONFIG
    assert "floe topic bind t --unbind value" in refused.message
    assert topic(made).configs == {}
    assert configure(made, key_schema_validation="true") == Done(), "keys are bound apart"
    assert script_bind(made, unbind=True) == Done()
    validate(made)
    for refused in (script_bind(made), script_bind(made, unbind=True), follow(made, "s")):
        assert isinstance(refused, Refused)
        assert refused.code is Code.POLICY_VIOLATION
        assert f"bound by its config {VALIDATE}: set it to false first" in refused.message
    again(made)


def script_bind(script: Script, *, unbind: bool = False) -> Result:
    return script.one(B, BindSchema(topic="t", descriptor_set=b"set", message="m", unbind=unbind))


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"descriptor_set": b"x"}, "give one of them"),
        ({"subject": "s" * 1025}, "at most 1024 characters"),
        ({"message": "m" * 1025}, "at most 1024 characters"),
        ({"subject_version": 1 << 31}, "versions are at most 2147483647"),
    ],
)
def test_what_cannot_be_followed_is_refused(made: Script, fields: dict[str, object], words: str) -> None:
    message = BindSchema(topic="t", subject="s")
    for name, value in fields.items():
        setattr(message, name, value)
    refused = made.one(A, message)
    assert isinstance(refused, Refused)
    assert refused.code is Code.INVALID_REQUEST
    assert words in refused.message


def test_no_change_of_configs_makes_more_than_there_is_room_for(
    made: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Refused whole: neither a config nor a binding of it stays."""
    monkeypatch.setattr(spans, "SPANS_MAX", 2)
    validate(made)
    assert commit(made) == 0
    assert configure(made, value_schema_validation="false") == Done()
    assert commit(made) == 0
    refused = configure(made, value_schema_validation="true")
    assert isinstance(refused, Refused)
    assert refused.code is Code.POLICY_VIOLATION
    assert topic(made).configs[VALIDATE] == "false"
    made.one(A, MoveLogStart(partition=[0], offset=[1]))
    validate(made)
    monkeypatch.setattr(binding, "SCHEMAS_MAX", 2)
    both = {"value_schema_validation": "false", "key_schema_validation": "true"}
    assert configure(made, **both) == Done()
    full = configure(
        made, value_schema_validation="true", value_subject_name_strategy=f"{STRATEGIES}RecordNameStrategy"
    )
    assert isinstance(full, Refused)
    assert (full.code, VALIDATE in full.message) == (Code.POLICY_VIOLATION, False)
    new = CreateTopic(name="n", topic_id=b"n" * 16, partitions=1, configs=config_entries({VALIDATE: "true"}))
    assert isinstance(made.one(A, new), Refused)
    assert "n" not in made.state.topics
    again(made)


def test_all_that_a_schema_imports(made: Script) -> None:
    register(made, "money", "m")
    register(made, "address", "a", ("money.proto", "money", 1))
    register(made, "s", "o", ("address.proto", "address", 1), ("m.proto", "money", 1))
    hide(made, "s", 1)
    found = imported(made.state.subjects, made.state.subjects.schemas[3])
    assert found == {"address.proto": b"a", "m.proto": b"m", "money.proto": b"m"}
