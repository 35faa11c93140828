"""Who changed what, the newest first: what this agent decided and refused, as far as it remembers."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Final

from agent.http.answers import Problem
from agent.http.asking import may
from agent.http.console.listing import word
from agent.http.console.markup import Content, Html, link, many, table, tag, url
from agent.http.console.shell import Page
from agent.http.console.words import moment, number
from agent.http.needs import READ_QUIETLY
from agent.telemetry.trail import CHANGE, KINDS, Event
from objectstore.turns import Turns, in_turns

if TYPE_CHECKING:
    from starlette.requests import Request

    from agent.http.parts import Parts

HERE: Final = "/console/trail"
ROWS: Final = 100
LOOKED_AT_PER_TURN: Final = 500


class TrailPage:
    """Makes the page."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    async def page(self, request: Request) -> Page:
        """For whoever may describe the cluster."""
        kind, search = word(request, "kind") or CHANGE, word(request, "search")
        if kind not in KINDS:
            raise Problem(400, f"kind={kind!r} is none of {', '.join(KINDS)}", f"?kind={CHANGE}")
        trail = self._parts.trail
        known = list(trail.recent) if trail is not None else []
        found = await in_turns(_wanted(known, kind, search.lower()))
        heads = ("Time", "Who", "From", "What", "Of", "Name", "In detail", "Outcome", "Times#")
        rows = (_row(each) for each in found[:ROWS])
        live = many((*self._said(len(known)), table(heads, rows, "none that this agent remembers")))
        return Page("Who changed what", HERE, live, _form(kind, search))

    def _said(self, known: int) -> Iterator[Html]:
        config = self._parts.config.audit_log
        yield tag(
            "p",
            f"Of the newest {known:,} events that agent {self._parts.config.agent_name} saw since its start; "
            "what others decided they show.",
            class_="doc",
        )
        if not config.lines and not config.topic:
            yield tag("p", "The audit log is off: nothing is noted (audit_log.lines, audit_log.topic).")
        topic = config.topic
        if topic in self._parts.replica.state.topics and may(self._parts, READ_QUIETLY, topic):
            to = url("/console/topics/{}/records", topic)
            yield tag("p", "Of all agents, for as long as it is kept: ", link(f"topic {topic}", to))


def _wanted(known: list[Event], kind: str, search: str) -> Turns[list[Event]]:
    found: list[Event] = []
    for at in range(len(known), 0, -LOOKED_AT_PER_TURN):
        some = islice(reversed(known), len(known) - at, len(known) - at + LOOKED_AT_PER_TURN)
        found += [each for each in some if each.kind == kind and search in _text(each).lower()]
        if len(found) >= ROWS:
            break
        yield
    return found


def _text(one: Event) -> str:
    return " ".join((*one.actor, *one.change[:4], one.outcome))


def _row(one: Event) -> tuple[Content, ...]:
    who, change = one.actor, one.change
    ok = one.outcome == "NONE"
    outcome = tag("span", "done" if ok else one.outcome, class_=None if ok else "bad")
    place = " ".join(each for each in (who.host, who.client_id, who.door) if each)
    principal = f"User:{who.principal}" if who.principal else "the cluster itself"
    named = change.operation, change.resource_type or None, change.resource or None, change.detail or None
    return moment(one.time_ms), principal, place or None, *named, outcome, number(one.times)


def _form(kind: str, search: str) -> Html:
    kinds = (tag("option", each, value=each, selected=each == kind) for each in KINDS)
    field = tag("input", type="search", name="search", id="search", value=search)
    return tag(
        "form",
        tag("label", "Events ", tag("select", *kinds, name="kind")),
        tag("label", "Has the text ", field),
        tag("button", "Search"),
        action=HERE,
        role="search",
    )
