"""A topic's configs, each beside what it means: set, or taken back to what is above the topic."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from agent.http.asking import require
from agent.http.console.changing.asked import ALTER_CONFIGS, asker
from agent.http.console.changing.plans import (
    BadFields,
    Errors,
    Field,
    Form,
    Given,
    Plan,
    control,
    hidden,
    wrong,
)
from agent.http.console.changing.topics import after, topic_named
from agent.http.console.markup import Content, Html, many, table, tag
from agent.http.console.topics import HERE
from agent.http.needs import Need
from agent.http.parts import Parts
from agent.net.wire.generated import incremental_alter_configs as iac
from coordination.config_types import Config, ConfigType
from coordination.state.acl_types import Operation, ResourceType
from coordination.state.types import Topic
from coordination.topic_configs import TOPIC_CONFIGS, effective

TOPIC: Final = 2
SET, DELETE = 0, 1
"""Of IncrementalAlterConfigs: the type of resource, and operations."""
VALUE, WAS, UNSET = "value:", "was:", "unset:"
"""What names of fields begin with: the value, the one that the form showed, whether it goes."""
SHOW: Final = Need(Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC)


class TopicConfigs:
    """IncrementalAlterConfigs."""

    name, here = "topic-configs", HERE

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    def form(self, given: Given, errors: Errors) -> Form:
        """All of them, those that the topic has first."""
        topic = self._topic(given)
        cluster = self._parts.replica.state.cluster_configs
        rows = [
            _row(config, topic, effective(name, topic.configs, cluster), given, errors)
            for name, config in sorted(
                TOPIC_CONFIGS.items(), key=lambda each: (each[0] not in topic.configs, each[0])
            )
        ]
        heads = ("Config", "Value", "Take back", "What it means")
        all_wrong = tag("p", errors[""], class_="bad", role="alert") if "" in errors else None
        return Form(
            f"Configs of {topic.name}",
            HERE,
            many((all_wrong, hidden({"topic": topic.name}), table(heads, rows))),
        )

    async def plan(self, given: Given) -> Plan:
        """Those that differ from what the form showed."""
        parts, topic = self._parts, self._topic(given)
        changes = _changes(topic, given)
        cluster, name = parts.replica.state.cluster_configs, topic.name
        own = {each: value for each, value in topic.configs.items() if each not in changes}
        then = own | {each: value for each, value in changes.items() if value is not None}

        def made() -> iac.IncrementalAlterConfigsRequest:
            rows = [
                iac.AlterableConfig(each, DELETE if value is None else SET, value)
                for each, value in changes.items()
            ]
            return iac.IncrementalAlterConfigsRequest([iac.AlterConfigsResource(TOPIC, name, rows)])

        return Plan(
            f"Configs of {name}",
            {"topic": name} | {f: value for f, value in given.items() if f.partition(":")[2] in changes},
            [
                (
                    each,
                    _told(effective(each, topic.configs, cluster), each in topic.configs),
                    _told(effective(each, then, cluster), each in then),
                )
                for each in changes
            ],
            lambda: _now(parts, name, changes),
            _now(parts, name, changes),
            asker(parts, self.name, ALTER_CONFIGS, made),
            after(name),
        )

    def _topic(self, given: Given) -> Topic:
        topic = topic_named(self._parts, given)
        require(self._parts, SHOW, topic.name)
        return topic


def _now(parts: Parts, name: str, changes: Iterable[str]) -> object:
    """What the topic has of these configs by now, and what counts for it."""
    state = parts.replica.state
    topic = state.topics.get(name)
    if topic is None:
        return None
    own = topic.configs
    return topic.topic_id, [(own.get(each), effective(each, own, state.cluster_configs)) for each in changes]


def _told(value: str, own: bool) -> str:
    return f"{value} ({'the topic' if own else 'cluster or default'})"


def _changes(topic: Topic, given: Given) -> dict[str, str | None]:
    """By config the new value; None: it is taken back. Raises BadFields."""
    changes: dict[str, str | None] = {}
    errors: dict[str, str] = {}
    for name, config in TOPIC_CONFIGS.items():
        value = given.get(VALUE + name)
        if given.get(UNSET + name):
            changes[name] = None
        elif value is not None and value != given.get(WAS + name):
            refused = config.refusal(value)
            if refused is not None:
                errors[VALUE + name] = refused
            changes[name] = value
    if errors:
        raise BadFields(errors)
    if not changes:
        raise BadFields({"": "nothing in this form is changed"})
    return changes


def _row(
    config: Config, topic: Topic, value: str, given: Given, errors: Errors
) -> tuple[Content, Content, Content, Content]:
    name = config.name
    own, field = name in topic.configs, VALUE + name
    filled = control(Field(field, name, choices=_choices(config)), given.get(field, value), errors)
    shown = many(
        (
            tag("label", tag("span", name, class_="unseen"), filled),
            hidden({WAS + name: given.get(WAS + name, value)}),
            wrong(field, errors),
        )
    )
    said = tag("strong", name) if own else tag("span", name)
    return said, shown, _take_back(name, given) if own else None, tag("span", config.doc, class_="doc")


def _take_back(name: str, given: Given) -> Html:
    box = tag("input", type="checkbox", name=UNSET + name, value="1", checked=bool(given.get(UNSET + name)))
    return tag("label", box, " not set for the topic")


def _choices(config: Config) -> tuple[str, ...]:
    if config.type is ConfigType.BOOLEAN:
        return "true", "false"
    return config.choices if config.type is ConfigType.STRING else ()
