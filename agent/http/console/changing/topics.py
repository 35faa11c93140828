"""Topics: created, given partitions, deleted."""

from __future__ import annotations

from typing import Final

from agent.http.answers import Problem
from agent.http.asking import require
from agent.http.console.changing.asked import (
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_TOPICS,
    TIMEOUT_MS,
    asker,
)
from agent.http.console.changing.plans import (
    BadFields,
    Errors,
    Field,
    Form,
    Given,
    Plan,
    controls,
    hidden,
    whole,
)
from agent.http.console.markup import many, url
from agent.http.console.topics import HERE, sums
from agent.http.console.words import number, size
from agent.http.needs import DESCRIBE
from agent.http.parts import Parts
from agent.net.wire.generated import create_partitions as cp
from agent.net.wire.generated import create_topics as ct
from agent.net.wire.generated import delete_topics as dt
from coordination import broker_configs
from coordination.config_types import INT_MAX, NAME_SHOWN_MAX
from coordination.kafka_codes import Code
from coordination.state.types import Topic
from coordination.topic_configs import TOPIC_CONFIGS, effective
from objectstore.turns import in_turns

DEFAULT: Final = -1
"""As a number of partitions or replicas that is asked for: the cluster's."""


def topic_named(parts: Parts, given: Given) -> Topic:
    """The topic of a form. Raises Problem 403, 404."""
    name = given.get("topic", "")
    require(parts, DESCRIBE, name)
    topic = parts.replica.state.topics.get(name)
    if topic is None:
        raise Problem(404, f"topic {name[:NAME_SHOWN_MAX]!r} does not exist", "see the list of topics")
    return topic


def id_of(parts: Parts, name: str) -> bytes | None:
    """Of the topic that has this name by now."""
    topic = parts.replica.state.topics.get(name)
    return None if topic is None else topic.topic_id


def after(name: str) -> tuple[str, str]:
    """Where one sees a topic."""
    return f"Topic {name}", url("/console/topics/{}", name)


class TopicCreate:
    """CreateTopics."""

    name, here = "topic-create", HERE
    _FIELDS = (
        Field("topic", "Name"),
        Field("partitions", "Partitions", "Empty: as many as the cluster's num.partitions."),
        Field(
            "configs", "Configs", "One a line: name=value. A topic's page says what each means.", lines=True
        ),
    )

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    def form(self, given: Given, errors: Errors) -> Form:
        """An empty one."""
        return Form("Create a topic", HERE, controls(self._FIELDS, given, errors))

    async def plan(self, given: Given) -> Plan:
        """What stands in the fields."""
        state = self._parts.replica.state
        name, configs = given.get("topic", "").strip(), _configs(given.get("configs", ""))
        count = whole(given, "partitions", 1, INT_MAX) if given.get("partitions", "").strip() else DEFAULT
        told = number(broker_configs.integer(state.cluster_configs, "num.partitions") if count < 0 else count)
        defaults = {
            each: effective(each, {}, state.cluster_configs) for each in configs if each in TOPIC_CONFIGS
        }

        def made() -> ct.CreateTopicsRequest:
            rows = [ct.CreatableTopicConfig(*each) for each in configs.items()]
            topic = ct.CreatableTopic(name, count, DEFAULT, [], rows)
            return ct.CreateTopicsRequest([topic], TIMEOUT_MS)

        return Plan(
            f"Create topic {name}",
            given,
            [
                ("Topic", "is there" if name in state.topics else "is not there", name),
                ("Partitions", None, told),
                *((each, defaults.get(each), value) for each, value in configs.items()),
            ],
            lambda: id_of(self._parts, name),
            id_of(self._parts, name),
            asker(self._parts, self.name, CREATE_TOPICS, made),
            after(name),
            fields={
                Code.INVALID_TOPIC_EXCEPTION: "topic",
                Code.TOPIC_ALREADY_EXISTS: "topic",
                Code.INVALID_PARTITIONS: "partitions",
                Code.INVALID_CONFIG: "configs",
            },
        )


def _configs(text: str) -> dict[str, str]:
    """Raises BadFields."""
    found: dict[str, str] = {}
    for line in filter(None, map(str.strip, text.splitlines())):
        name, equals, value = line.partition("=")
        if not equals:
            raise BadFields({"configs": f"{line[:NAME_SHOWN_MAX]!r} is not name=value"})
        if name.strip() in found:
            raise BadFields({"configs": f"{name.strip()[:NAME_SHOWN_MAX]!r} is there twice"})
        found[name.strip()] = value.strip()
    return found


class TopicPartitions:
    """CreatePartitions."""

    name, here = "topic-partitions", HERE

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    def form(self, given: Given, errors: Errors) -> Form:
        """How many there shall be."""
        topic = topic_named(self._parts, given)
        field = Field("count", "Partitions in all", preset=str(len(topic.partitions) + 1))
        fields = many((hidden({"topic": topic.name}), controls([field], given, errors)))
        return Form(f"Partitions of {topic.name}", HERE, fields)

    async def plan(self, given: Given) -> Plan:
        """More of them."""
        parts, topic = self._parts, topic_named(self._parts, given)
        count, name = whole(given, "count", 1, INT_MAX), topic.name

        def made() -> cp.CreatePartitionsRequest:
            return cp.CreatePartitionsRequest([cp.CreatePartitionsTopic(name, count, None)], TIMEOUT_MS)

        def look() -> object:
            known = parts.replica.state.topics.get(name)
            return None if known is None else (known.topic_id, len(known.partitions))

        return Plan(
            f"Partitions of {name}",
            given,
            [("Partitions", number(len(topic.partitions)), number(count))],
            look,
            look(),
            asker(parts, self.name, CREATE_PARTITIONS, made),
            after(name),
            notes=(
                "Partitions are never taken away again; records of a key may go to another one from then on.",
            ),
            fields={Code.INVALID_PARTITIONS: "count"},
        )


class TopicDelete:
    """DeleteTopics, of the topic that was shown: one that gets its name meanwhile stays."""

    name, here = "topic-delete", HERE

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    def form(self, given: Given, errors: Errors) -> Form:
        """Its name is to be written."""
        topic = topic_named(self._parts, given)
        field = Field(
            "typed",
            "Write the topic's name",
            "All its records go. While they are kept, the page of deleted topics brings them back.",
        )
        fields = many((hidden({"topic": topic.name}), controls([field], given, errors)))
        return Form(f"Delete topic {topic.name}", HERE, fields)

    async def plan(self, given: Given) -> Plan:
        """All of it."""
        parts, topic = self._parts, topic_named(self._parts, given)
        if given.get("typed", "").strip() != topic.name:
            raise BadFields({"typed": f"this is not {topic.name!r}"})
        name, topic_id = topic.name, topic.topic_id
        records, held = await in_turns(sums(topic))
        table = parts.replica.state.tables_by_topic.get(topic_id)
        notes = () if table is None else (f"Its table {'.'.join(table)} is not written any more.",)

        def made() -> dt.DeleteTopicsRequest:
            return dt.DeleteTopicsRequest([dt.DeleteTopicState(None, topic_id)], [], TIMEOUT_MS)

        return Plan(
            f"Delete topic {name}",
            given,
            [
                ("Topic", name, "gone"),
                ("Partitions", number(len(topic.partitions)), 0),
                ("Records", number(records), 0),
                ("Size", size(held), size(0)),
            ],
            lambda: id_of(parts, name),
            topic_id,
            asker(parts, self.name, DELETE_TOPICS, made),
            ("Topics", HERE),
            notes,
        )
