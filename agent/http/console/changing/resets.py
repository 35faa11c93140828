"""A group's positions set anew: to the earliest or latest, to a time, to an offset, or by so many records.

As kafka-consumer-groups does: by OffsetCommit without a member, which only a group without members takes;
offsets outside of a partition become its start or its end; where no record is as late as the time, its end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from agent.http.answers import Problem
from agent.http.asking import may
from agent.http.console.changing.asked import OFFSET_COMMIT, asker
from agent.http.console.changing.groups import group_named
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
from agent.http.console.groups import HERE
from agent.http.console.markup import many, url
from agent.http.console.words import at_ms, number
from agent.http.needs import DESCRIBE_QUIETLY
from agent.http.parts import Parts
from agent.net.wire.generated import offset_commit as oc
from coordination.config_types import LONG_MAX, NAME_SHOWN_MAX
from coordination.state.group_types import Group
from coordination.state.types import Partition

PARTITIONS_MAX: Final = 1_000
"""Of one reset."""
EARLIEST, LATEST, TIME, OFFSET, SHIFT = "earliest", "latest", "time", "offset", "shift"


class _Target(NamedTuple):
    """`now` None: the group has no position there."""

    partition: Partition
    now: int | None
    then: int


class GroupReset:
    """Sets positions."""

    name, here = "group-reset", HERE
    _FIELDS = (
        Field("topic", "Topic", "Empty: every partition in which the group has a position."),
        Field("partitions", "Partitions", "Of the topic, separated by commas. Empty: all of them."),
        Field("to", "To", choices=(EARLIEST, LATEST, TIME, OFFSET, SHIFT)),
        Field(
            "value",
            "Time, offset or shift",
            "ISO 8601 (UTC unless it says otherwise) or Unix ms; an offset; records forward, or back by -.",
        ),
    )

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    def form(self, given: Given, errors: Errors) -> Form:
        """Which partitions, and to where."""
        group = group_named(self._parts, given)
        fields = many((hidden({"group": group.group_id}), controls(self._FIELDS, given, errors)))
        return Form(f"Reset positions of {group.group_id}", HERE, fields)

    async def plan(self, given: Given) -> Plan:
        """To the offsets that are found now: they are what is committed when it is confirmed."""
        parts, group = self._parts, group_named(self._parts, given)
        name = group.group_id
        targets = await self._targets(group, self._partitions(group, given), given)

        def look() -> object:
            known = parts.replica.state.groups.get(name)
            if known is None:
                return None
            topics = parts.replica.state.topics_by_id
            return [
                (each.partition.topic.topic_id in topics, _position(known, each.partition))
                for each in targets
            ]

        return Plan(
            f"Reset positions of {name}",
            given,
            [
                (
                    f"{each.partition.topic.name}, partition {each.partition.index}",
                    number(each.now),
                    number(each.then),
                )
                for each in targets
            ],
            look,
            look(),
            asker(parts, self.name, OFFSET_COMMIT, lambda: _request(name, targets), name),
            (f"Group {name}", url("/console/group", id=name)),
        )

    def _partitions(self, group: Group, given: Given) -> Sequence[Partition]:
        """Those that are meant, of topics that may be described. Raises BadFields."""
        state, name = self._parts.replica.state, given.get("topic", "").strip()
        if name:
            topic = state.topics.get(name) if self._sees(name) else None
            if topic is None:
                raise BadFields(
                    {"topic": f"topic {name[:NAME_SHOWN_MAX]!r} is not there, or not for you to see"}
                )
            found = [topic.partitions[each] for each in _indexes(given, len(topic.partitions))]
        elif given.get("partitions", "").strip():
            raise BadFields({"topic": "partitions are of one topic: say which"})
        else:
            held = (state.partitions[each] for each in group.offsets.handles if each < len(state.partitions))
            found = [each for each in held if each is not None and self._sees(each.topic.name)]
        if len(found) > PARTITIONS_MAX:
            raise BadFields(
                {"topic": f"these are {len(found):,} partitions, more than {PARTITIONS_MAX:,}: name fewer"}
            )
        if not found:
            raise BadFields({"topic": "the group has no position that may be shown: name a topic"})
        return found

    def _sees(self, topic: str) -> bool:
        return may(self._parts, DESCRIBE_QUIETLY, topic)

    async def _targets(self, group: Group, partitions: Sequence[Partition], given: Given) -> list[_Target]:
        """Raises BadFields, Problem."""
        to, found = given.get("to", EARLIEST), list[_Target]()
        if to == TIME:
            offsets = await self._by_time(partitions, _time(given))
        else:
            offsets = list(_offsets(group, partitions, to, given))
        for one, offset in zip(partitions, offsets, strict=True):
            bounded = min(max(offset, one.log_start), one.high_watermark)
            found.append(_Target(one, _position(group, one), bounded))
        return found

    async def _by_time(self, partitions: Sequence[Partition], moment: int) -> list[int]:
        """Within the time that a look at records may take."""
        kafka, most_ms = self._parts.kafka(), self._parts.config.console.search_ms_max
        if kafka is None:
            raise Problem(503, "this agent does not serve records yet", "try again, or ask another agent")
        offsets = []
        try:
            async with asyncio.timeout(most_ms / 1000):
                for one in partitions:
                    at = await kafka.offset_at(one.topic.name, one.index, moment)
                    offsets.append(one.high_watermark if at is None else at)
        except TimeoutError:
            why = f"{len(offsets)} of {len(partitions)} partitions were looked at within {most_ms} ms"
            raise Problem(503, why, "name fewer partitions") from None
        except OSError as error:
            raise Problem(503, str(error), "try again") from None
        return offsets


def _position(group: Group, one: Partition) -> int | None:
    found = group.offsets.get(one.handle)
    return None if found is None else found.offset


def _indexes(given: Given, count: int) -> list[int]:
    text = given.get("partitions", "").strip()
    if not text:
        return list(range(count))
    named = [each.strip() for each in text.split(",")]
    if not all(each.isascii() and each.isdigit() and len(each) < 10 and int(each) < count for each in named):
        raise BadFields(
            {"partitions": f"{text[:NAME_SHOWN_MAX]!r}: the topic has the partitions 0 to {count - 1}"}
        )
    return list(dict.fromkeys(map(int, named)))


def _time(given: Given) -> int:
    found = at_ms(given.get("value", "").strip())
    if found is None:
        raise BadFields({"value": "this is no time: 2026-01-31T12:00:00Z, or Unix ms"})
    return found


def _offsets(group: Group, partitions: Sequence[Partition], to: str, given: Given) -> Iterator[int]:
    """Before they are bounded. Raises BadFields."""
    if to not in (EARLIEST, LATEST, OFFSET, SHIFT):
        raise BadFields({"to": f"{to[:NAME_SHOWN_MAX]!r} is none of these"})
    value = whole(given, "value", 0, LONG_MAX) if to == OFFSET else 0
    shift = whole(given, "value", -LONG_MAX, LONG_MAX) if to == SHIFT else 0
    for one in partitions:
        now = _position(group, one)
        if to == SHIFT and now is None:
            where = f"{one.topic.name}, partition {one.index}"
            raise BadFields({"to": f"the group has no position in {where} that could be shifted"})
        yield {EARLIEST: one.log_start, LATEST: one.high_watermark, OFFSET: value}.get(to, (now or 0) + shift)


def _request(group: str, targets: Sequence[_Target]) -> oc.OffsetCommitRequest:
    """By the topics' ids: one that gets a name meanwhile is not meant."""
    topics: dict[bytes, oc.OffsetCommitRequestTopic] = {}
    for each in targets:
        topic = each.partition.topic
        row = topics.setdefault(topic.topic_id, oc.OffsetCommitRequestTopic(topic.name, topic.topic_id))
        row.partitions.append(oc.OffsetCommitRequestPartition(each.partition.index, each.then))
    return oc.OffsetCommitRequest(group_id=group, topics=list(topics.values()))
