"""The first page: agents, zones, dependencies, rates, and who is behind."""

from __future__ import annotations

from collections import Counter
from heapq import nsmallest
from typing import Final

from starlette.requests import Request

from agent.http.asking import may
from agent.http.console.figures import Lag, Lags, Rates
from agent.http.console.markup import Content, Html, link, many, pairs, table, tag, url
from agent.http.console.shell import Page
from agent.http.console.words import number, size
from agent.http.health import checks, jobs
from agent.http.needs import DESCRIBE_CLUSTER_QUIETLY, DESCRIBE_GROUP_QUIETLY, DESCRIBE_QUIETLY
from agent.http.parts import Parts
from agent.version import VERSION
from coordination.state.types import Broker

AGENTS: Final = 100
"""Shown; further ones are counted."""
GROUPS_BEHIND: Final = 10
JOBS: Final = 20


class Overview:
    """Makes the page."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._rates, self._lags = Rates(parts), Lags(parts)

    async def page(self, _request: Request) -> Page:
        """What is of the cluster is for whoever may describe that; groups each for whom may describe it."""
        parts = self._parts
        behind = await self._lags.most(
            lambda name: may(parts, DESCRIBE_GROUP_QUIETLY, name),
            lambda name: may(parts, DESCRIBE_QUIETLY, name),
            GROUPS_BEHIND,
        )
        shown = (
            (*self._of_cluster(), *_behind(behind))
            if may(parts, DESCRIBE_CLUSTER_QUIETLY)
            else (*_behind(behind),)
        )
        return Page("Overview", "/console", many(shown))

    def _of_cluster(self) -> tuple[Content, ...]:
        state, rates = self._parts.replica.state, self._rates.look()
        facts: dict[str, Content] = {
            "Version": VERSION,
            "Topics": number(len(state.topics)),
            "Partitions": number(state.partition_count),
            "Groups": number(len(state.groups)),
            "Tables": number(len(state.tables)),
            "Subjects": number(len(state.subjects.subjects)),
            "Feature level": state.feature_level,
        }
        speeds: dict[str, Content] = {
            f"{name.capitalize()}, per second": _speed(name, rate) for name, rate in rates.items()
        }
        return (
            pairs(facts),
            tag("h2", f"Through this agent ({self._parts.config.agent_name})"),
            pairs(speeds),
            *_agents(state.brokers),
            tag("h2", "What this agent depends on"),
            table(("Check", "State", "Latency#", "What is said"), map(_check, checks(self._parts).items())),
            *_jobs(self._parts),
        )


def _agents(brokers: dict[int, Broker]) -> tuple[Html, ...]:
    nodes = nsmallest(AGENTS, brokers)
    zones = Counter(each.zone or "(no zone)" for each in brokers.values())
    told = ", ".join(f"{zone}: {count}" for zone, count in sorted(zones.items())[:AGENTS])
    more = tag("p", f"and {len(brokers) - AGENTS:,} more") if len(brokers) > AGENTS else Html()
    heads = ("Node#", "Name", "Zone", "State", "Kafka", "HTTP", "Version")
    return (
        tag("h2", f"Agents ({len(brokers):,})"),
        tag("p", f"By zone: {told or 'none'}"),
        table(heads, (_agent(brokers[node]) for node in nodes)),
        more,
    )


def _agent(one: Broker) -> tuple[Content, ...]:
    doors = ", ".join(f"{each.name} {each.host}:{each.port}" for each in one.listeners)
    if one.unwell:
        state = tag("span", one.unwell, class_="bad")
    else:
        state = tag("span", "serves", class_="good") if one.serving else tag("span", "not for clients")
    return one.node_id, one.name, one.zone or None, state, doors, one.http_address, one.version


def _check(found: tuple[str, dict[str, object]]) -> tuple[Content, ...]:
    name, told = found
    ok, latency = told["ok"], told["latency_ms"]
    state = (
        tag("span", "ok", class_="good") if ok else tag("span", f"bad for {told['for_s']} s", class_="bad")
    )
    return name, state, None if latency is None else f"{latency} ms", str(told["message"] or "")


def _jobs(parts: Parts) -> tuple[Html, ...]:
    failing = jobs(parts)[:JOBS]
    if not failing:
        return ()
    rows = (
        (str(each["job"]), str(each["since"]), str(each["failures"]), str(each["error"])) for each in failing
    )
    return tag("h2", "Jobs that fail"), table(("Job", "Since", "Failures#", "Error"), rows)


def _behind(groups: list[tuple[str, Lag]]) -> tuple[Html, ...]:
    rows = (
        (link(name, url("/console/group", id=name)), number(lag.records), number(lag.partitions))
        for name, lag in groups
    )
    return (
        tag("h2", "Groups that are behind"),
        table(("Group", "Records behind#", "Partitions#"), rows, "no group is behind"),
    )


def _speed(name: str, rate: float | None) -> str | None:
    if rate is None:
        return None
    return size(rate) if name.startswith("bytes") else number(rate)
