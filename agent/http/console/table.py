"""One table: how far it is, its snapshots, files, columns over time, and some rows."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from starlette.requests import Request

from agent.config.redaction import names
from agent.http.answers import Problem
from agent.http.answers import number as whole
from agent.http.asking import may
from agent.http.catalog_access import CatalogAccess
from agent.http.console.listing import word
from agent.http.console.markup import Content, Html, in_pieces, link, many, pairs, table, tag, url
from agent.http.console.reading import readable
from agent.http.console.searching import Places
from agent.http.console.shell import Page
from agent.http.console.table_looks import TableLooks
from agent.http.console.values import shown
from agent.http.console.words import moment, number, size
from agent.http.needs import READ_QUIETLY
from agent.http.parts import Parts
from agent.http.tables import told_of
from agent.net.listening import ANONYMOUS
from agent.telemetry.trail import http_actor
from coordination.state.types import Table
from iceberg import ledger
from iceberg.head import Head
from iceberg.rest_access import Gate
from iceberg.rest_errors import CatalogError
from iceberg.view_names import is_view
from objectstore.store import StoreError
from objectstore.turns import Turns, in_turns

HERE: Final = "/console/tables"
PATH: Final = "/console/table"
SNAPSHOTS: Final = 25
"""Of a page."""
FILES: Final = 50
"""That are shown, of the newest manifests."""
SCHEMAS: Final = 20
"""That are shown, the newest."""
COLUMNS: Final = 500
"""Of a schema, nested ones too; and changes of one that are told."""
RANGES_CHARS: Final = 200


class _Asked(NamedTuple):
    key: tuple[str, str]
    table: Table
    gate: Gate
    skip: int
    sample: bool

    @property
    def name(self) -> str:
        return ".".join(self.key)


class OneTable:
    """Makes the page."""

    def __init__(self, parts: Parts, places: Places, looks: TableLooks) -> None:
        self._parts, self._places, self._looks = parts, places, looks
        self._cleared = frozenset(names(parts.config.redaction.cleared_principals, ";"))

    async def page(self, request: Request) -> Page:
        """Of a table that the catalog would show whoever asks; rows for whom it would let read it."""
        asked = self._asked(request)
        told = told_of(self._parts, asked.table)
        with self._places:
            try:
                async with asyncio.timeout(self._parts.config.console.search_ms_max / 1000):
                    content = await self._content(asked)
            except TimeoutError:
                content = [_bad("The store does not answer in time: raise console.search_ms_max")]
            except (
                StoreError,
                ValueError,
                LookupError,
                TypeError,
                AttributeError,
            ) as error:  # what another engine wrote
                content = [_bad(f"Its files cannot be looked at: {error}")]
        live = many((pairs(_facts(told)), *content))
        return Page(f"Table {asked.name}", HERE, live, refreshes=False)

    def _asked(self, request: Request) -> _Asked:
        """Raises Problem 404 for what is not there, or not for whoever asks; 403 for rows that are not."""
        state, name = self._parts.replica.state, word(request, "name")
        namespace, _, last = name.rpartition(".")
        access = CatalogAccess(self._parts, http_actor.get(), self._cleared)
        # Stricter than for engines, whom the bucket asks, too: nobody in particular is not cleared.
        known = self._parts.config.http.authentication != "none"
        access.cleared = known and access.principal in self._cleared - {ANONYMOUS}
        gate, key = Gate(self._parts.replica, access), (namespace, last)
        sample = request.query_params.get("rows") == "1"
        try:
            gate.describe(key)
            found = state.tables.get(key)
            if found is None or is_view(found.metadata_location):
                raise Problem(404, f"table {name!r} does not exist", "see the list of tables")
            if sample:
                readable(self._parts)
                gate.read(key)
        except CatalogError as error:
            raise Problem(error.status, str(error), "see the list of tables") from None
        return _Asked(key, found, gate, whole(request, "from", 0), sample)

    async def _content(self, asked: _Asked) -> Sequence[Html]:
        peeking = await self._looks.peeking()
        head = await peeking.head(asked.table.metadata_location)
        found = await peeking.snapshots(head.metadata, asked.skip, SNAPSHOTS)
        files = await peeking.files(head, lambda _: True, FILES)
        rows = await self._sample(asked, head) if asked.sample else self._offer(asked)
        return [
            pairs(_of_head(head)),
            *rows,
            tag("h2", f"Snapshots ({found.of:,})"),
            table(_SNAPSHOT_HEADS, map(_snapshot, found.some)),
            *_ways(asked, found.of),
            tag("h2", "Files"),
            tag("p", f"The newest, of {files.looked_at:,} of {files.of:,} manifests.", class_="doc"),
            table(_FILE_HEADS, ((_file(each)) for each in files.files), "none whose bounds tell its offsets"),
            *await in_turns(_schemas(head.metadata)),
        ]

    def _offer(self, asked: _Asked) -> list[Html]:
        if not may(self._parts, READ_QUIETLY, asked.gate.topic_of(asked.key)):
            return []
        return [tag("p", link("Show some rows", url(PATH, name=asked.name, rows=1)))]

    async def _sample(self, asked: _Asked, head: Head) -> list[Html]:
        """The first rows of the newest file."""
        peeking, most = await self._looks.peeking(), self._parts.config.console.table_rows_max
        title = tag("h2", "Some rows")
        files = await peeking.files(head, lambda _: True, 1)
        if not files.files or not head.topic_id:
            return [title, tag("p", "no rows, or in files that only their engine reads")]
        try:
            rows = await peeking.rows(files.files[0], most)
        except ValueError as error:
            return [title, _bad(f"{error}: see console.table_file_bytes_max")]
        columns = list(rows[0]) if rows else []
        written = await asyncio.to_thread(_texts, rows, columns)
        said = tag("p", f"The first of {files.files[0].location}", class_="doc")
        return [title, said, table(columns, await in_turns(_cells(written)))]


def _cells(written: list[list[str]]) -> Turns[list[list[Html]]]:
    rows = []
    for row in written:
        cells = []
        for each in row:
            cells.append(tag("pre", (yield from in_pieces(each))))
            yield
        rows.append(cells)
    return rows


def _texts(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> list[list[str]]:
    """In a thread."""
    return [[shown(row.get(name)) for name in columns] for row in rows]


def _bad(text: str) -> Html:
    return tag("p", text, class_="bad")


def _facts(told: Mapping[str, Any]) -> dict[str, Content]:
    topic = str(told["topic"] or "")
    problems = told["problems"] if isinstance(told["problems"], list | tuple) else ()
    wrong = "; ".join(str(each) for each in (told["last_error"], *problems) if each)
    return {
        "Topic": link(topic, url("/console/topics/{}", topic)) if topic else None,
        "Records behind": number(told["records_behind"]),
        "Seconds behind": number(told["seconds_behind"]),
        "Committed by": told["committed_by"] or None,
        "Last commit": told["last_commit"],
        "Last audit that found them equal": told["audited_equal"],
        "What that audit's run found": None
        if told["audit_findings"] is None
        else str(told["audit_findings"]),
        "Records not audited": number(told["records_not_audited"]),
        "What is wrong": _bad(wrong) if wrong else "nothing that this agent knows",
    }


def _of_head(head: Head) -> dict[str, Content]:
    metadata, current = head.metadata, ledger.current_snapshot(head.metadata)
    summary = {} if current is None else current.get("summary") or {}
    total = {name: _total(summary, name) for name in ("records", "data-files", "files-size", "delete-files")}
    held = total["files-size"]
    return {
        "Format version": metadata["format-version"],
        "Id": metadata["table-uuid"],
        "Location": metadata["location"],
        "Metadata": head.location,
        "Changed": moment(int(metadata["last-updated-ms"])),
        "Rows": number(total["records"]),
        "Data files": number(total["data-files"]),
        "Size of them": None if held is None else size(held),
        "Files of deletions": number(total["delete-files"]),
    }


def _total(summary: Mapping[str, Any], name: str) -> int | None:
    value = str(summary.get(f"total-{name}", ""))
    return int(value) if value.isascii() and value.isdigit() and len(value) < 20 else None


_SNAPSHOT_HEADS: Final = (
    *("Snapshot", "Time", "Operation", "Rows added#", "Files added#", "Files removed#", "Rows then#"),
    *("Schema#", "Offsets that it added"),
)


def _snapshot(one: Mapping[str, Any]) -> tuple[Content, ...]:
    summary: Mapping[str, str] = one.get("summary") or {}
    counted = (summary.get(each) for each in ("added-records", "added-data-files", "deleted-data-files"))
    ranges = str(summary.get("floe.ranges", ""))
    cut = f"{ranges[:RANGES_CHARS]} …" if len(ranges) > RANGES_CHARS else ranges
    at = moment(int(one.get("timestamp-ms", -1)))
    told = str(one["snapshot-id"]), at, summary.get("operation"), *counted
    return *told, summary.get("total-records"), one.get("schema-id"), cut or None


def _ways(asked: _Asked, total: int) -> Iterator[Html]:
    if asked.skip:
        yield tag("p", link("Newest snapshots", url(PATH, name=asked.name)))
    if asked.skip + SNAPSHOTS < total:
        to = f"{url(PATH, name=asked.name)}&from={asked.skip + SNAPSHOTS}"
        yield tag("p", link("Older snapshots", to, rel="next"))


_FILE_HEADS: Final = ("Partition#", "First offset#", "Last offset#", "Rows#", "Size#", "Location")


def _file(one: Any) -> tuple[Content, ...]:
    offsets = number(one.first), number(one.last)
    return one.partition, *offsets, number(one.rows), size(one.size), one.location


def _schemas(metadata: Mapping[str, Any]) -> Turns[list[Html]]:
    """The columns now, and what each schema changed."""
    schemas = sorted(metadata["schemas"], key=lambda each: int(each["schema-id"]))
    current, rows = metadata["current-schema-id"], list[tuple[Content, ...]]()
    before: dict[int, tuple[str, str]] = {}
    found: dict[int, tuple[str, str]] = {}
    for each in schemas:
        columns = dict(_columns(each["fields"]))
        rows.append((_numbered(each["schema-id"], current), number(len(columns)), _changes(before, columns)))
        found = columns if each["schema-id"] == current else found
        before = columns
        yield
    heads = ("Column", "Id#", "Type")
    listed = [(name, number, kind) for number, (name, kind) in list(found.items())[:COLUMNS]]
    return [
        tag("h2", f"Columns ({len(found):,})"),
        table(heads, listed),
        tag("h2", f"Schemas ({len(schemas):,})"),
        table(("Schema#", "Columns#", "What it changed"), rows[: -SCHEMAS - 1 : -1]),
    ]


def _numbered(schema_id: object, current: object) -> Content:
    return f"{schema_id} (current)" if schema_id == current else str(schema_id)


def _columns(fields: Sequence[Mapping[str, Any]], before: str = "") -> Iterator[tuple[int, tuple[str, str]]]:
    """By id: full name and type, nested ones behind what they are in."""
    for each in fields:
        yield from _column(f"{before}{each['name']}", int(each["id"]), each["type"])


def _column(name: str, number_: int, kind: Any) -> Iterator[tuple[int, tuple[str, str]]]:
    if not isinstance(kind, Mapping):
        yield number_, (name, str(kind))
        return
    yield number_, (name, str(kind["type"]))
    if kind["type"] == "struct":
        yield from _columns(kind["fields"], f"{name}.")
    for inside in ("key", "value", "element"):
        if inside in kind:
            yield from _column(f"{name}.{inside}", int(kind[f"{inside}-id"]), kind[inside])


def _changes(before: Mapping[int, tuple[str, str]], after: Mapping[int, tuple[str, str]]) -> str:
    if not before:
        return "the first that is kept"
    new = [f"new: {after[each][0]}" for each in after if each not in before]
    gone = [f"gone: {before[each][0]}" for each in before if each not in after]
    other = [
        f"{before[each][0]} {before[each][1]} is {after[each][0]} {after[each][1]}"
        for each in after
        if each in before and after[each] != before[each]
    ]
    told = [*new, *gone, *other]
    more = f"; and {len(told) - SCHEMAS} more" if len(told) > SCHEMAS else ""
    return "; ".join(told[:SCHEMAS]) + more or "nothing that is shown"
