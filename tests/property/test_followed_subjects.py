"""Records of topics that follow subjects, judged by agents that are behind: what is taken holds at its place.

Each author judges by a state of its own, some entries behind, as the door does: which id a record names, and
which message it is. Meanwhile versions are registered, hidden and forgotten, and topics bound otherwise.
"""

from __future__ import annotations

import random

import pytest

from coordination.commands import (
    AlterTopicConfigs,
    BindSchema,
    CreatePartitions,
    DeleteSchemaVersions,
    DeleteTopic,
    RegisterSchema,
)
from coordination.snapshot import canonical_digest, decode, encode
from coordination.state import ChunkCommitted, State
from coordination.state.chunks import BOUND_ANEW
from coordination.state.following import Meaning, meaning
from coordination.state.types import Naming, Topic
from tests.property.test_registry_races import Behind
from tests.unit.coordination.kit import A, B, Script, chunk, tiles
from tests.unit.coordination.reflect import plain

TOPICS = ("t", "u")
MESSAGES = ("M", "N")
SUBJECTS = ("t-value", "u-value", "s", "M", "N", "t-M", "t-N", "u-M", ":.x:M")
STRATEGIES = tuple(
    f"io.confluent.kafka.serializers.subject.{name}"
    for name in ("TopicNameStrategy", "RecordNameStrategy", "TopicRecordNameStrategy")
)
VALIDATE, STRATEGY = "confluent.value.schema.validation", "confluent.value.subject.name.strategy"
STEPS = 300


def good(state: State, topic: Topic, schema_id: int, message: str) -> bool:
    """Whether a record that names this id and message may stand in the topic, by the state."""
    bound = state.schemas.get(topic.value_schema_id or 0)
    if bound is None or not bound.naming:
        return True
    found = meaning(state, bound, schema_id)
    if not isinstance(found, Meaning):
        return False
    names = {Naming.RECORD: message, Naming.TOPIC_RECORD: f"{topic.name}-{message}"}
    wanted = names.get(Naming(bound.naming))
    return wanted is None or wanted in found.subjects


class Author(Behind):
    """One that also judges records."""

    taken = refused = 0

    def write(self, draw: random.Random) -> None:
        """A record that is good by what this author knows."""
        name, message = draw.choice(TOPICS), draw.choice(MESSAGES)
        topic, now = self.state.topics.get(name), self.script.state.topics.get(name)
        ids = [*self.script.state.subjects.schemas, 1]
        schema_id = draw.choice(ids)
        if topic is None or now is None or not good(self.state, topic, schema_id, message):
            return
        holds = good(self.script.state, now, schema_id, message)
        same = topic.binding == now.binding
        self.script.chunks[self.author] = self.script.chunks.get(self.author, 0) + 1
        made = chunk(self.script.chunks[self.author], (topic.partitions[0].handle, 1))
        made.judged_revision = self.state.revision
        result = self.script.one(self.author, made)
        assert isinstance(result, ChunkCommitted)
        if topic.topic_id == now.topic_id and not (holds and same):
            assert result.errors == [BOUND_ANEW], (
                "by what holds at its place it is bad, or was judged otherwise"
            )
        self.taken += result.errors == [0]
        self.refused += result.errors == [BOUND_ANEW]


def change(script: Script, draw: random.Random, fill: int) -> None:
    """Somebody registers, deletes, binds or configures."""
    topic, subject = draw.choice(TOPICS), draw.choice(SUBJECTS)
    held = script.state.subjects.subjects.get(subject)
    what = draw.random()
    if what < 0.4 or held is None:
        message = RegisterSchema(
            subject=subject, schema_type="N", canonical=b"%d" % draw.randrange(6),
            judged_revision=script.state.revision,
        )  # fmt: skip
        script.one(A, message)
    elif what < 0.7:
        version = draw.choice([*held.versions])
        permanent = held.versions[version].deleted
        script.one(B, DeleteSchemaVersions(subject=subject, version=[version], permanent=permanent))
    elif what < 0.85:
        changes = [
            AlterTopicConfigs.Change(name=VALIDATE, value=draw.choice(("true", "true", "false"))),
            AlterTopicConfigs.Change(name=STRATEGY, value=draw.choice(STRATEGIES)),
        ]
        script.one(A, AlterTopicConfigs(topic=topic, changes=changes))
    elif what < 0.95:
        unbind = draw.random() < 0.3
        version = draw.choice((0, *held.versions))
        script.one(A, BindSchema(topic=topic, subject=subject, subject_version=version, unbind=unbind))
    else:
        script.one(A, DeleteTopic(name=topic))
        script.topic(A, topic, fill=bytes([fill % 250]))
        script.one(A, CreatePartitions(topic=topic, total=2))


@pytest.mark.parametrize("seed", range(12))
def test_what_is_taken_is_good_at_its_place(seed: int) -> None:
    draw, script = random.Random(seed), Script()
    script.register(A)
    script.register(B)
    for topic in TOPICS:
        script.topic(A, topic)
    authors = [Author(script, A), Author(script, B)]
    for step in range(STEPS):
        author = draw.choice(authors)
        author.catch_up(draw.choice((0, 0, 1, 3, 9)))
        if draw.random() < 0.5:
            change(script, draw, step)
        else:
            author.write(draw)
        if step % 60 == 0:
            before = plain(script.state)
            again = decode(encode(script.state))
            assert plain(again) == before
            script.state = again
    tiles(script.state)
    assert canonical_digest(script.replayed()) == canonical_digest(script.state)
    assert sum(one.taken for one in authors) > 20
    assert sum(one.refused for one in authors) > 0
