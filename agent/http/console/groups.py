"""Consumer groups: how far behind, and one of them with its members and positions."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Final

from starlette.requests import Request

from agent.http.answers import Problem
from agent.http.answers import number as whole
from agent.http.asking import may, require
from agent.http.console.chart import chart
from agent.http.console.figures import lag_of
from agent.http.console.listing import asked, form, listed, ways, word
from agent.http.console.markup import Content, Html, link, many, pairs, table, tag, url
from agent.http.console.offers import offered
from agent.http.console.shell import Page
from agent.http.console.words import moment, number
from agent.http.needs import DESCRIBE_GROUP, DESCRIBE_GROUP_QUIETLY, DESCRIBE_QUIETLY
from agent.http.parts import Parts
from agent.telemetry.shown import GroupMember
from coordination.state.group_types import Group
from objectstore.turns import Turns, in_turns

HERE: Final = "/console/groups"
POSITIONS: Final = 100
"""Of a page of one group."""
MEMBERS: Final = 100
"""Shown of one group; further ones are counted."""
PARTITIONS_CHARS_MAX: Final = 500
"""Of what a member has."""


class Groups:
    """Makes both pages."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    async def several(self, request: Request) -> Page:
        """Those that may be described."""
        parts, look = self._parts, asked(request)
        names = parts.replica.state.groups
        found = await listed(names, look, lambda name: may(parts, DESCRIBE_GROUP_QUIETLY, name))
        rows = await in_turns(self._rows(found.names))
        heads = ("Group", "Protocol", "State", "Members#", "Partitions#", "Records behind#")
        live = many((ways(HERE, look, found), table(heads, rows, "no such group")))
        return Page("Groups", HERE, live, form(HERE, look, "group"))

    def _rows(self, names: list[str]) -> Turns[list[tuple[Content, ...]]]:
        rows: list[tuple[Content, ...]] = []
        state = self._parts.replica.state
        for name in names:
            group = state.groups.get(name)
            if group is None:
                continue
            lag = yield from lag_of(state, group, self._sees)
            to = link(name, url("/console/group", id=name))
            counted = number(_members(group)), number(lag.partitions), number(lag.records)
            rows.append((to, group.kind, self._state(name), *counted))
            yield
        return rows

    async def one(self, request: Request) -> Page:
        """Of a group that may be described; topics in it are for whom they may be described to."""
        parts, name = self._parts, word(request, "id")
        require(parts, DESCRIBE_GROUP, name)
        group = parts.replica.state.groups.get(name)
        if group is None:
            raise Problem(404, f"group {name!r} does not exist", "see the list of groups")
        lag = await in_turns(lag_of(parts.replica.state, group, self._sees))
        facts: dict[str, Content] = {
            "Protocol": group.kind,
            "State": self._state(name),
            "Members": number(_members(group)),
            "Partitions with a position": number(lag.partitions),
            "Records behind": number(lag.records),
        }
        positions, more = await in_turns(self._positions(group, whole(request, "after", 0)))
        heads = ("Topic", "Partition#", "Position#", "End#", "Behind#", "Committed", "Metadata")
        following = (
            link("Next positions", url("/console/group", id=name, after=more), rel="next") if more else None
        )
        live = many(
            (
                pairs(facts),
                *self._over_time(name),
                *self._of_members(group),
                tag("h2", "Positions"),
                table(heads, positions),
                following,
            )
        )
        return Page(f"Group {name}", HERE, live, offered(parts, name, "group-reset", "group-delete"))

    def _sees(self, topic: str) -> bool:
        return may(self._parts, DESCRIBE_QUIETLY, topic)

    def _over_time(self, name: str) -> Iterator[Html]:
        """As this agent has looked: in topics that may be seen."""
        found = self._parts.lags.of(name) if self._parts.lags is not None else {}
        seen = {topic: samples for topic, samples in found.items() if self._sees(topic)}
        yield tag("h2", "Records behind, over time")
        yield chart(seen, "Records behind by topic")

    def _state(self, name: str) -> str | None:
        kafka = self._parts.kafka()
        known = None if kafka is None else kafka.group(name)
        return None if known is None else known.state

    def _of_members(self, group: Group) -> Iterator[Html]:
        kafka = self._parts.kafka()
        members = [] if kafka is None else kafka.members(group)
        yield tag("h2", "Members")
        heads = ("Member", "Instance", "Client", "Host", "Has")
        yield table(heads, (self._member(each) for each in members[:MEMBERS]))
        if len(members) > MEMBERS:
            yield tag("p", f"and {len(members) - MEMBERS:,} more")

    def _member(self, one: GroupMember) -> tuple[Content, ...]:
        topics = (each for each in sorted(one.assigned) if self._sees(each))
        told = (
            f"{each}: {', '.join(map(str, islice(one.assigned[each], 100)))}" for each in islice(topics, 100)
        )
        has = "; ".join(told)
        cut = f"{has[:PARTITIONS_CHARS_MAX]} …" if len(has) > PARTITIONS_CHARS_MAX else has
        return one.member_id, one.instance_id or None, one.client_id, one.host, cut or None

    def _positions(self, group: Group, after: int) -> Turns[tuple[list[tuple[Content, ...]], int]]:
        """Rows of handles from `after` on, and where to go on; 0: there are no more."""
        rows: list[tuple[Content, ...]] = []
        state = self._parts.replica.state
        for count, handle in enumerate(group.offsets.handles[:]):
            if count % 250 == 249:
                yield
            partition = state.partitions[handle] if after <= handle < len(state.partitions) else None
            position = None if partition is None else group.offsets.get(handle)
            if partition is None or position is None:
                continue
            name = partition.topic.name
            if not self._sees(name):
                continue
            if len(rows) == POSITIONS:
                return rows, handle
            end, at = partition.high_watermark, position.offset
            behind = max(end - max(at, partition.log_start), 0)
            to = link(name, url("/console/topics/{}", name))
            numbers = (partition.index, number(at), number(end), number(behind))
            rows.append((to, *numbers, moment(position.committed_ms), position.metadata[:100] or None))
        yield
        return rows, 0


def _members(group: Group) -> int:
    if group.consumer is not None:
        return len(group.consumer.members)
    return 0 if group.classic is None else len(group.classic.members)
