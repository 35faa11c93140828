"""The first page: agents, zones, dependencies, rates, and who is behind."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from heapq import nsmallest
from typing import Final

from starlette.requests import Request

from agent.http.asking import may
from agent.http.console.figures import Lag, Lags, Rates
from agent.http.console.markup import Content, Html, link, many, pairs, table, tag, url
from agent.http.console.others import Line, Others
from agent.http.console.shell import Page
from agent.http.console.words import number, size
from agent.http.health import checks, jobs
from agent.http.needs import DESCRIBE_CLUSTER_QUIETLY, DESCRIBE_GROUP_QUIETLY, DESCRIBE_QUIETLY
from agent.http.parts import Parts
from agent.telemetry.told_figures import COUNTED
from agent.version import VERSION
from coordination.state.types import Broker

AGENTS: Final = 100
"""Shown; further ones are counted."""
GROUPS_BEHIND: Final = 10
JOBS: Final = 20


class Overview:
    """Makes the page."""

    def __init__(self, parts: Parts, others: Others) -> None:
        self._parts, self._others = parts, others
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
            (*self._of_cluster(await self._others.lines()), *_behind(behind))
            if may(parts, DESCRIBE_CLUSTER_QUIETLY)
            else (*_behind(behind),)
        )
        return Page("Overview", "/console", many(shown))

    def _of_cluster(self, lines: list[Line]) -> tuple[Content, ...]:
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
            *_through(lines, self._others.left_out),
            *_agents(state.brokers),
            tag("h2", "What this agent depends on"),
            table(("Check", "State", "Latency#", "What is said"), map(_check, checks(self._parts).items())),
            *_jobs(self._parts),
        )


def _through(lines: list[Line], left_out: int) -> tuple[Content, ...]:
    """Every agent that answers, and all of them together; who does not, by name."""
    title = tag("h2", "Through all agents, per second")
    if not lines:
        return title, tag("p", "They are being asked.", class_="nothing")
    known = [each for each in lines if each.answered]
    totals = [_sum([each.rates[name] for each in known]) for name in COUNTED]
    heads = ("Agent", "Zone", "Records in#", "Bytes in#", "Bytes out#", "")
    missing = len(lines) - len(known) + left_out
    all_ = f"{len(known):,} agents" + (f", {missing:,} not known" if missing else "")
    whole = (tag("strong", all_), None, *_rates(totals), None)
    rows = [whole, *(_line(each) for each in lines)]
    more = tag("p", f"and {left_out:,} more, not asked (console.agents_asked_max)") if left_out else None
    return title, table(heads, rows), more


def _line(one: Line) -> tuple[Content, ...]:
    why = tag("span", one.why, class_="bad") if one.why else None
    return one.agent, one.zone or None, *_rates([one.rates[name] for name in COUNTED]), why


def _rates(rates: Sequence[float | None]) -> tuple[Content, ...]:
    return tuple(_speed(name.replace("_", " "), each) for name, each in zip(COUNTED, rates, strict=True))


def _sum(rates: Sequence[float | None]) -> float | None:
    told = [each for each in rates if each is not None]
    return sum(told) if told else None


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
