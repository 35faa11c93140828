"""Tables: how far each is behind its topic, what it holds, and when it was last compared with it."""

from __future__ import annotations

from typing import Final

from starlette.requests import Request

from agent.http.asking import may
from agent.http.console.listing import asked, form, listed, ways
from agent.http.console.markup import Content, Html, link, many, table, tag, url
from agent.http.console.shell import Page
from agent.http.console.words import number, size
from agent.http.needs import DESCRIBE_CLUSTER_QUIETLY, DESCRIBE_QUIETLY
from agent.http.parts import Parts
from agent.http.tables import told_of
from coordination.state.types import Table
from iceberg.view_names import is_view
from objectstore.turns import Turns, in_turns

HERE: Final = "/console/tables"
HEADS: Final = (
    *(
        "Table",
        "Topic",
        "Records behind#",
        "Seconds behind#",
        "Committed by",
        "Last commit",
        "Files#",
        "Size#",
    ),
    *("Snapshots#", "Last audit that found them equal", "What is wrong"),
)


class Tables:
    """Makes the page."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    async def several(self, request: Request) -> Page:
        """Those of topics that may be described."""
        look, state = asked(request), self._parts.replica.state
        by_name = {f"{one.namespace}.{one.name}": one for one in list(state.tables.values())}
        found = await listed(by_name, look, lambda name: self._may(by_name[name]))
        rows = await in_turns(self._rows([by_name[name] for name in found.names]))
        note = tag("p", "Sizes and errors are known to the agent that commits a table.", class_="doc")
        live = many((ways(HERE, look, found), table(HEADS, rows, "no such table"), note))
        return Page("Tables", HERE, live, form(HERE, look, "table"))

    def _may(self, one: Table) -> bool:
        if is_view(one.metadata_location):
            return False
        if one.topic:
            return may(self._parts, DESCRIBE_QUIETLY, one.topic)
        return may(self._parts, DESCRIBE_CLUSTER_QUIETLY)

    def _rows(self, tables: list[Table]) -> Turns[list[tuple[Content, ...]]]:
        rows = []
        for one in tables:
            rows.append(_row(told_of(self._parts, one)))
            yield
        return rows


def _row(told: dict[str, object]) -> tuple[Content, ...]:
    topic = str(told["topic"] or "")
    wrong = [str(each) for each in (told["last_error"], *_texts(told["problems"])) if each]
    return (
        link(str(told["table"]), url("/console/table", name=str(told["table"]))),
        link(topic, url("/console/topics/{}", topic)) if topic else None,
        number(_number(told["records_behind"])),
        number(_number(told["seconds_behind"])),
        _text(told["committed_by"]),
        _text(told["last_commit"]),
        number(_number(told["files"])),
        None if told["bytes"] is None else size(_number(told["bytes"]) or 0),
        number(_number(told["snapshots"])),
        _text(told["audited_equal"]),
        tag("span", "; ".join(wrong), class_="bad") if wrong else Html(),
    )


def _text(value: object) -> str | None:
    return str(value) if value else None


def _texts(value: object) -> tuple[str, ...]:
    return tuple(map(str, value)) if isinstance(value, list | tuple) else ()


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None
