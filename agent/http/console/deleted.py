"""Deleted topics that can come back: sizes, tables, when their time is over."""

from __future__ import annotations

from typing import Final

from starlette.requests import Request

from agent.http.console.listing import asked, form, listed, ways
from agent.http.console.markup import Content, many, table, tag
from agent.http.console.offers import to_change
from agent.http.console.shell import Page
from agent.http.console.topics import DELETED
from agent.http.console.words import moment, number, size
from agent.http.parts import Parts
from coordination.state.types import DeletedTopic

HEADS: Final = ("Topic", "Id", "Partitions#", "Size#", "Table", "Deleted", "By", "Kept until", "")
_NOTE: Final = (
    "Until its time is over a topic comes back as it was: records, offsets, configs, groups' positions, and "
    "its table goes on. Then its records go; the table's rows and files stay."
)


class DeletedTopics:
    """Makes the page."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    async def page(self, request: Request) -> Page:
        """All of them, by name; several may have had one."""
        look, deleted = asked(request), self._parts.replica.state.deleted
        by_key = {f"{one.topic.name} {topic_id.hex()}": one for topic_id, one in deleted.items()}
        found = await listed(by_key, look, lambda _: True)
        rows = (self._row(by_key[key]) for key in found.names)
        live = many(
            (
                ways(DELETED, look, found),
                table(HEADS, rows, "no deleted topic"),
                tag("p", _NOTE, class_="doc"),
            )
        )
        return Page("Deleted topics", "/console/topics", live, form(DELETED, look, "deleted topic"))

    def _row(self, one: DeletedTopic) -> tuple[Content, ...]:
        topic = one.topic
        its = self._parts.replica.state.tables_by_topic.get(topic.topic_id)
        return (
            topic.name,
            tag("code", topic.topic_id.hex()),
            number(len(topic.partitions)),
            size(one.size_bytes),
            None if its is None else ".".join(its),
            moment(one.deleted_ms),
            one.by or None,
            moment(one.until_ms),
            to_change(self._parts, "topic-undelete", "bring it back", topic=topic.topic_id.hex()),
        )
