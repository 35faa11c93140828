"""Records of a topic: by partition, from an offset, a time, the oldest or the newest, by a filter."""

from __future__ import annotations

from typing import Final

from starlette.requests import Request

from agent.http.admin import topic_of
from agent.http.console.decoding import Decoder
from agent.http.console.looking import STARTS, Asked, asked, begin
from agent.http.console.markup import Content, Html, in_pieces, link, many, table, tag, url
from agent.http.console.reading import readable, require_partition
from agent.http.console.searching import Budget, Found, Look, Places, Search
from agent.http.console.shell import Page
from agent.http.console.words import moment, number, size
from agent.http.parts import KafkaShown, Parts
from coordination.state.types import Topic
from objectstore.turns import Turns, in_turns

HERE: Final = "/console/topics"
CHARS: Final = 1_000
"""Of a key, a value or headers in a list; …"""
CHARS_OF_ONE: Final = 200_000
"""… and where one record is shown alone."""
PARTITIONS_AT_ONCE: Final = 32
"""That are looked at where none is named: the first ones, each for its share."""


class Records:
    """Makes the page."""

    def __init__(self, parts: Parts, places: Places) -> None:
        self._parts, self._places = parts, places

    async def page(self, request: Request) -> Page:
        """Of a topic that may be read."""
        kafka = readable(self._parts)
        topic, look = topic_of(self._parts, request), asked(request)
        if look.partition is not None:
            require_partition(topic, look.partition)
        with self._places:
            looks = await self._looks(kafka, topic, look)
        live = many(await in_turns(_shown(topic, look, looks)))
        return Page(f"Records of {topic.name}", HERE, live, _form(topic, look), refreshes=look.tail)

    async def _looks(self, kafka: KafkaShown, topic: Topic, look: Asked) -> list[Look]:
        config = self._parts.config.console
        all_ = range(len(topic.partitions))[look.first : look.first + PARTITIONS_AT_ONCE]
        indexes = all_ if look.partition is None else [look.partition]
        share = max(len(indexes), 1)
        budget = Budget(
            look.rows, max(config.search_records_max // share, 1), max(config.search_bytes_max // share, 1)
        )
        decode = Decoder(self._parts, topic).text
        search = Search(self._parts, kafka, topic.name, decode, look.wanted, config.search_ms_max)
        found = []
        for index in indexes:
            if search.left_s <= 0:
                found.append(Look(index, 0, problems=["not looked at: the time is over"]))
                continue
            at = await begin(kafka, topic, index, look, budget, search.left_s)
            found.append(at if isinstance(at, Look) else await search.partition(index, at, budget))
        return found


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


def _shown(topic: Topic, look: Asked, looks: list[Look]) -> Turns[list[Content]]:
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
    alone = look.rows == 1
    cells = []
    for each in rows:
        cells.append((yield from _row(topic, each, CHARS_OF_ONE if alone else CHARS)))
        yield
    shown = table(heads, cells, "no such record")
    life = _life(topic, rows[0]) if alone and rows else None
    ways = _further(topic, look), _following(topic, look, looks), _exports(topic, look)
    return [said, *problems, shown, life, *ways]


def _query(look: Asked) -> dict[str, object]:
    """What was asked for, for another look."""
    return {
        "partition": look.partition,
        "start": look.start,
        "at": look.given,
        "key": look.wanted.key,
        "search": look.wanted.contains,
        "rows": look.rows,
    }


def _further(topic: Topic, look: Asked) -> Html | None:
    """The way to further partitions, where none is named and there are more than a page takes in."""
    count, after = len(topic.partitions), look.first + PARTITIONS_AT_ONCE
    if look.partition is not None or count <= PARTITIONS_AT_ONCE:
        return None
    path = url("/console/topics/{}/records", topic.name, **_query(look))
    said = f"Partitions {look.first:,} to {min(after, count) - 1:,} of {count:,}. "
    way = link("The next ones", f"{path}&first={after}", rel="next") if after < count else None
    return tag("p", said, way)


def _exports(topic: Topic, look: Asked) -> Html:
    """The same look as a file."""
    path = "/console/topics/{}/export"
    ways = (
        link(shown, url(path, topic.name, format=kind, **_query(look)))
        for kind, shown in (("jsonl", "JSON lines"), ("csv", "CSV"))
    )
    return tag("p", "From there on, of all partitions that were asked for: ", *ways, class_="ways")


def _life(topic: Topic, one: Found) -> Html:
    """The way to where it came from and where it is."""
    to = url("/console/topics/{}/life", topic.name, partition=one.partition, offset=one.offset)
    return tag("p", link("The life of this record", to))


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


def _row(topic: Topic, one: Found, chars: int) -> Turns[tuple[Content, ...]]:
    alone = url(
        "/console/topics/{}/records",
        topic.name,
        partition=one.partition,
        start="offset",
        at=one.offset,
        rows=1,
    )
    offset = link(number(one.offset) or "", alone)
    texts = []
    for each in (one.text.key, one.text.value, one.text.headers):
        shown = tag("em", "null") if each is None else tag("pre", (yield from in_pieces(_cut(each, chars))))
        texts.append(shown)
    return one.partition, offset, moment(one.timestamp), *texts


def _cut(text: str, chars: int) -> str:
    return text if len(text) <= chars else f"{text[:chars]} … ({len(text):,} characters)"
