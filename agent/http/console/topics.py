"""The list of topics, and one of them: partitions, sizes, what its records are, its configs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from starlette.requests import Request

from agent.http.admin import topic_of
from agent.http.answers import number as whole
from agent.http.asking import may
from agent.http.bindings import ROLES, bound_now
from agent.http.console.listing import asked, form, listed, ways
from agent.http.console.markup import Content, Html, link, many, pairs, table, tag, url
from agent.http.console.offers import offered
from agent.http.console.shell import Page
from agent.http.console.words import moment, number, size
from agent.http.needs import (
    DESCRIBE_CLUSTER_QUIETLY,
    DESCRIBE_CONFIGS_QUIETLY,
    DESCRIBE_QUIETLY,
    READ_QUIETLY,
)
from agent.http.parts import Parts
from coordination.state.held import held_bytes
from coordination.state.types import Partition, Schema, Topic
from coordination.topic_configs import TOPIC_CONFIGS, effective
from objectstore.turns import Turns, in_turns

HERE: Final = "/console/topics"
DELETED: Final = "/console/deleted-topics"
PARTITIONS: Final = 100
"""Of a page of one topic."""
PER_TURN: Final = 2_000
"""Partitions before others may go on."""


class Topics:
    """Makes both pages."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    async def several(self, request: Request) -> Page:
        """Those that may be described."""
        parts, look = self._parts, asked(request)
        found = await listed(
            parts.replica.state.topics, look, lambda name: may(parts, DESCRIBE_QUIETLY, name)
        )
        rows = await in_turns(self._rows(found.names))
        gone = len(parts.replica.state.deleted) if may(parts, DESCRIBE_CLUSTER_QUIETLY) else 0
        live = many(
            (
                ways(HERE, look, found),
                table(
                    ("Topic", "Partitions#", "Records#", "Size#", "Cleanup", "Created"), rows, "no such topic"
                ),
                tag("p", link(f"{gone:,} deleted topics can come back", DELETED)) if gone else None,
            )
        )
        stays = many((form(HERE, look, "topic"), offered(parts, "", "topic-create")))
        return Page("Topics", HERE, live, stays)

    def _rows(self, names: list[str]) -> Turns[list[tuple[Content, ...]]]:
        rows: list[tuple[Content, ...]] = []
        state = self._parts.replica.state
        for name in names:
            topic = state.topics.get(name)
            if topic is None:  # deleted meanwhile
                continue
            records, held = yield from sums(topic)
            policy = effective("cleanup.policy", topic.configs, state.cluster_configs)
            to = link(name, url("/console/topics/{}", name))
            created = moment(topic.created_ms)
            rows.append((to, number(len(topic.partitions)), number(records), size(held), policy, created))
        return rows

    async def one(self, request: Request) -> Page:
        """Of a topic that may be described; its configs are for whom they may be described to."""
        parts, topic = self._parts, topic_of(self._parts, request)
        first = whole(request, "from", 0)
        records, held = await in_turns(sums(topic))
        facts: dict[str, Content] = {
            "Partitions": number(len(topic.partitions)),
            "Offsets": number(records),
            "Size": size(held),
            "Created": moment(topic.created_ms),
            "Id": topic.topic_id.hex(),
            "Table": _table(parts, topic),
        }
        live = many(
            (
                pairs(facts),
                *_bindings(parts, topic),
                *_partitions(parts, topic, first),
                *(_configs(parts, topic) if may(parts, DESCRIBE_CONFIGS_QUIETLY, topic.name) else ()),
            )
        )
        read = url("/console/topics/{}/records", topic.name)
        stays = tag("p", link("Look at records", read)) if may(parts, READ_QUIETLY, topic.name) else Html()
        changes = ("topic-configs", "topic-partitions", "records-delete", "topic-delete")
        return Page(f"Topic {topic.name}", HERE, live, many((stays, offered(parts, topic.name, *changes))))


def sums(topic: Topic) -> Turns[tuple[int, int]]:
    """Offsets between start and end, and bytes, over all partitions."""
    records = held = 0
    for count, each in enumerate(list(topic.partitions), 1):
        records += each.high_watermark - each.log_start
        held += each.size_bytes
        if count % PER_TURN == 0:
            yield
    yield
    return records, held


def _table(parts: Parts, topic: Topic) -> str | None:
    found = parts.replica.state.tables_by_topic.get(topic.topic_id)
    return None if found is None else ".".join(found)


def _bindings(parts: Parts, topic: Topic) -> Iterator[Html]:
    bound = bound_now(parts.replica.state, topic)
    if bound:
        yield tag("h2", "What its records are")
        yield table(("Of", "Message", "Subject", "Version"), (_binding(each) for each in bound))


def _binding(one: Schema) -> tuple[Content, ...]:
    subject = link(one.subject, url("/console/schema", subject=one.subject)) if one.subject else None
    version = (one.subject_version or "newest") if one.naming else one.version
    return ROLES[one.role], one.message or None, subject, version


def _partitions(parts: Parts, topic: Topic, first: int) -> Iterator[Html]:
    shown = topic.partitions[first : first + PARTITIONS]
    path = url("/console/topics/{}", topic.name)
    yield tag("h2", "Partitions")
    heads = ("Partition#", "Start#", "End#", "Stable end#", "Size#", "Of it held#", "")
    reads = may(parts, READ_QUIETLY, topic.name)
    yield table(heads, (_partition(topic, each, reads=reads) for each in shown))
    if first:
        yield link("First partitions", path)
    if first + PARTITIONS < len(topic.partitions):
        yield link("Next partitions", f"{path}?from={first + PARTITIONS}", rel="next")


def _partition(topic: Topic, one: Partition, *, reads: bool) -> tuple[Content, ...]:
    to = url("/console/topics/{}/records", topic.name, partition=one.index, start="newest", run=1)
    newest = link("newest records", to) if reads else ""
    offsets = (one.log_start, one.high_watermark, one.last_stable)
    held = size(held_bytes(one)) if one.held else ""
    return one.index, *map(number, offsets), size(one.size_bytes), held, newest


def _configs(parts: Parts, topic: Topic) -> Iterator[Html]:
    cluster = parts.replica.state.cluster_configs
    rows = []
    for name, config in sorted(
        TOPIC_CONFIGS.items(), key=lambda each: (each[0] not in topic.configs, each[0])
    ):
        own = name in topic.configs
        said = tag("strong", name) if own else tag("span", name)
        value = effective(name, topic.configs, cluster)
        of = "the topic" if own else "cluster or default"
        rows.append((said, tag("code", value), of, tag("span", config.doc, class_="doc")))
    yield tag("h2", "Configs")
    yield table(("Config", "Value", "Set for", "What it means"), rows)
