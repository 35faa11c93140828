"""Records of a topic: by partition, from an offset, a time, the oldest or the newest, by a filter."""

from __future__ import annotations

import asyncio
from typing import Final, NamedTuple

from starlette.requests import Request

from agent.config import Config
from agent.http.admin import topic_of
from agent.http.answers import Problem
from agent.http.answers import number as whole
from agent.http.console.decoding import Decoder
from agent.http.console.listing import word
from agent.http.console.markup import Content, Html, link, many, table, tag, url
from agent.http.console.searching import Budget, Filter, Found, Look, Places, Search
from agent.http.console.shell import Page
from agent.http.console.words import at_ms, moment, number, size
from agent.http.parts import KafkaShown, Parts
from coordination.state.types import Topic

HERE: Final = "/console/topics"
STARTS: Final = ("newest", "oldest", "offset", "time")
ROWS: Final = 50
ROWS_MAX: Final = 200
CHARS: Final = 1_000
"""Of a key, a value or headers in a list; …"""
CHARS_OF_ONE: Final = 200_000
"""… and where one record is shown alone."""
DIGITS_MAX: Final = 19
"""An offset has fewer."""
PARTITIONS_AT_ONCE: Final = 32
"""That are looked at where none is named: the first ones, each for its share."""


class Asked(NamedTuple):
    """`partition` None: all, as far as PARTITIONS_AT_ONCE. `at`: the offset, or Unix ms, for these starts."""

    partition: int | None
    start: str
    at: int
    rows: int
    tail: bool
    wanted: Filter
    given: str


class Records:
    """Makes the page."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._places = Places(parts.config.console.searches_in_flight_max)

    async def page(self, request: Request) -> Page:
        """Of a topic that may be read."""
        if not _readable(self._parts.config):
            raise Problem(
                403,
                "nobody is asked who he is here, and Kafka's clients are: records are not shown",
                "set http.authentication to required",
            )
        topic, look = topic_of(self._parts, request), _asked(request)
        kafka = self._parts.kafka()
        if kafka is None:
            raise Problem(503, "this agent does not serve records yet", "try again, or ask another agent")
        if look.partition is not None and look.partition >= len(topic.partitions):
            raise Problem(
                404, f"{topic.name} has the partitions 0 to {len(topic.partitions) - 1}", "name one of them"
            )
        with self._places:
            looks = await self._looks(kafka, topic, look)
        live = many(_shown(topic, look, looks))
        return Page(f"Records of {topic.name}", HERE, live, _form(topic, look), refreshes=look.tail)

    async def _looks(self, kafka: KafkaShown, topic: Topic, look: Asked) -> list[Look]:
        config = self._parts.config.console
        count = min(len(topic.partitions), PARTITIONS_AT_ONCE)
        indexes = range(count) if look.partition is None else [look.partition]
        share = len(indexes)
        budget = Budget(
            look.rows, max(config.search_records_max // share, 1), max(config.search_bytes_max // share, 1)
        )
        search = Search(self._parts, kafka, topic.name, Decoder(self._parts, topic).text, look.wanted)
        found = []
        for index in indexes:
            if search.left_s <= 0:
                found.append(Look(index, 0, problems=["not looked at: the time is over"]))
                continue
            begin = await _begin(kafka, topic, index, look, budget, search.left_s)
            found.append(begin if isinstance(begin, Look) else await search.partition(index, begin, budget))
        return found


def _readable(config: Config) -> bool:
    """Whether HTTP asks who it is, or whoever comes may read records by some listener of Kafka's anyway."""
    if config.http.authentication == "required":
        return True
    doors = (each for each in config.listeners if each.tls_client_auth != "required")
    return config.authorizer.mode != "enforce" and any(
        each.protocol in ("PLAINTEXT", "SSL") for each in doors
    )


async def _begin(
    kafka: KafkaShown, topic: Topic, index: int, look: Asked, budget: Budget, left_s: float
) -> int | Look:
    """The first offset to look at; a Look that says why there is none."""
    partition = topic.partitions[index]
    if look.start == "offset":
        return look.at
    if look.start == "newest":
        filtered = look.wanted.key or look.wanted.contains
        back = budget.records if filtered else min(budget.records, look.rows)
        return max(partition.log_start, partition.last_stable - back)
    if look.start == "oldest":
        return partition.log_start
    try:
        async with asyncio.timeout(left_s):
            found = await kafka.offset_at(topic.name, index, look.at)
    except (OSError, TimeoutError) as error:
        return Look(index, 0, problems=[str(error) or "the time cannot be looked up in time"])
    return partition.last_stable if found is None else found


def _asked(request: Request) -> Asked:
    """Raises Problem 400."""
    start = word(request, "start") or "newest"
    if start not in STARTS:
        raise Problem(400, f"start={start!r} is none of {', '.join(STARTS)}", "?start=newest")
    given = word(request, "at").strip()
    at = at_ms(given) if start == "time" else _offset(given)
    if at is None:
        raise Problem(400, f"at={given!r} is no time", "?at=2026-01-31T12:00 or Unix ms")
    named = word(request, "partition")
    partition = whole(request, "partition") if named else None
    rows = min(max(whole(request, "rows", ROWS), 1), ROWS_MAX)
    tail = request.query_params.get("tail") == "1"
    wanted = Filter(word(request, "key"), word(request, "search"))
    return Asked(partition, start, at, rows, tail, wanted, given)


def _offset(given: str) -> int:
    """0 for what is no offset."""
    return int(given) if given.isascii() and given.isdigit() and len(given) < DIGITS_MAX else 0


def _form(topic: Topic, look: Asked) -> Html:
    starts = (tag("option", each, value=each, selected=each == look.start) for each in STARTS)
    partition = "" if look.partition is None else look.partition
    fields = (
        tag(
            "label",
            "Partition ",
            tag("input", name="partition", value=partition, size=6, placeholder="all", inputmode="numeric"),
        ),
        tag("label", "From ", tag("select", *starts, name="start")),
        tag("label", "Offset or time (UTC) ", tag("input", name="at", value=look.given, size=22)),
        tag("label", "Key is ", tag("input", name="key", value=look.wanted.key)),
        tag(
            "label",
            "Has the text ",
            tag("input", name="search", id="search", type="search", value=look.wanted.contains),
        ),
        tag("label", "Rows ", tag("input", name="rows", value=look.rows, size=4, inputmode="numeric")),
        tag(
            "label", tag("input", type="checkbox", name="tail", value="1", checked=look.tail), " keep looking"
        ),
        tag("button", "Look"),
    )
    return tag("form", *fields, action=url("/console/topics/{}/records", topic.name), role="search")


def _shown(topic: Topic, look: Asked, looks: list[Look]) -> list[Content]:
    rows = [row for each in looks for row in each.rows]
    newest = look.start == "newest"
    rows.sort(key=lambda each: (each.timestamp, each.partition, each.offset), reverse=newest)
    rows = rows[: look.rows]
    looked = sum(each.looked_at for each in looks)
    read = sum(each.read_bytes for each in looks)
    heads = ("Partition#", "Offset#", "Time", "Key", "Value", "Headers")
    said = tag("p", f"{len(rows):,} shown of {looked:,} records looked at, {size(read)} read.")
    problems = (
        tag("p", f"Partition {each.partition}: {one}", class_="bad")
        for each in looks
        for one in each.problems
    )
    left = len(topic.partitions) - PARTITIONS_AT_ONCE
    more = (
        tag("p", f"{left:,} further partitions are not looked at: name one.")
        if look.partition is None and left > 0
        else None
    )
    alone = look.rows == 1
    shown = table(
        heads, (_row(topic, each, CHARS_OF_ONE if alone else CHARS) for each in rows), "no such record"
    )
    return [said, *problems, more, shown, _following(topic, look, looks)]


def _following(topic: Topic, look: Asked, looks: list[Look]) -> Html | None:
    """The way on, where one partition was looked at and there is more of it."""
    if look.partition is None or len(looks) != 1 or looks[0].following >= looks[0].end:
        return None
    query = {"key": look.wanted.key, "search": look.wanted.contains, "rows": look.rows}
    to = url(
        "/console/topics/{}/records",
        topic.name,
        partition=look.partition,
        start="offset",
        at=looks[0].following,
        **query,
    )
    return tag("p", link(f"Go on at offset {looks[0].following:,} of {looks[0].end:,}", to, rel="next"))


def _row(topic: Topic, one: Found, chars: int) -> tuple[Content, ...]:
    alone = url(
        "/console/topics/{}/records",
        topic.name,
        partition=one.partition,
        start="offset",
        at=one.offset,
        rows=1,
    )
    offset = link(number(one.offset) or "", alone)
    key, value, headers = one.text.key, one.text.value, one.text.headers
    told = f"{_cut(value, chars)}" if value is not None else None
    return (
        one.partition,
        offset,
        moment(one.timestamp),
        tag("pre", _cut(key, chars)) if key is not None else tag("em", "null"),
        tag("pre", told) if told is not None else tag("em", "null"),
        tag("pre", _cut(headers, chars)),
    )


def _cut(text: str, chars: int) -> str:
    return text if len(text) <= chars else f"{text[:chars]} … ({len(text):,} characters)"
