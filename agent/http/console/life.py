"""A record's life: who sent it, where its bytes are, since when, which row it is, and what is gone by now."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Final, NamedTuple

from starlette.requests import Request

from agent.http.admin import topic_of
from agent.http.answers import Problem
from agent.http.answers import number as whole
from agent.http.asking import may
from agent.http.console.commits import Commits
from agent.http.console.markup import Content, Html, link, many, pairs, tag, url
from agent.http.console.reading import readable, require_partition
from agent.http.console.searching import Places
from agent.http.console.shell import Page
from agent.http.console.table_looks import TableLooks, snapshot_of
from agent.http.console.words import moment, number, size
from agent.http.needs import READ_QUIETLY
from agent.http.parts import Parts
from agent.telemetry.shown import RecordLife, Stored, Written
from agent.telemetry.trail import http_actor
from coordination.state import quarantine
from coordination.state.quarantine_names import SUFFIX
from coordination.state.types import Partition, Schema, Topic
from objectstore.store import NotFound, ObjectMeta, StoreError

HERE: Final = "/console/topics"
PATH: Final = "/console/topics/{}/life"
GONE: Final = "no more"


class _Asked(NamedTuple):
    topic: Topic
    partition: Partition
    offset: int


class Life:
    """Makes the page. It shows nothing of what a record holds."""

    def __init__(self, parts: Parts, places: Places, tables: TableLooks) -> None:
        self._parts, self._places, self._tables = parts, places, tables
        self._commits = Commits(parts)

    async def page(self, request: Request) -> Page:
        """Of an offset of a partition whose topic may be read."""
        kafka, topic = readable(self._parts), topic_of(self._parts, request)
        partition = require_partition(topic, whole(request, "partition"))
        asked = _Asked(topic, partition, whole(request, "offset"))
        with self._places:
            try:
                async with asyncio.timeout(self._parts.config.console.search_ms_max / 1000):
                    found = await kafka.life(topic.name, partition.index, asked.offset)
                    if found is None:
                        raise Problem(404, "there is no such partition any more", "see the list of topics")
                    if self._parts.trail is not None:
                        self._parts.trail.accessed(http_actor.get(), "Read", [topic.name])
                    shown = [*await self._stored(found), *await self._table(asked)]
            except TimeoutError:
                raise Problem(
                    503, "the store does not answer in time", "try again, or raise console.search_ms_max"
                ) from None
        live = many((*self._record(asked, found), *shown, *self._quarantine(asked, found)))
        title = f"Life of {topic.name}-{partition.index} at {asked.offset:,}"
        return Page(title, HERE, live, _form(asked), refreshes=False)

    def _record(self, asked: _Asked, found: RecordLife) -> Iterator[Html]:
        yield tag("p", _state(asked.offset, found))
        if found.problem:
            yield tag("p", f"More cannot be told: {found.problem}", class_="bad")
        facts: dict[str, Content] = {
            "Offsets that are there": f"{found.log_start:,} to {found.end_offset:,} (exclusive)",
            "Stable end": number(found.last_stable),
        }
        if found.written is not None and found.written.timestamp_ms is not None:
            to = {"partition": asked.partition.index, "start": "offset", "at": asked.offset, "rows": 1}
            facts["What it holds"] = link("the record", url(f"{HERE}/{{}}/records", asked.topic.name, **to))
        facts |= self._judged(asked)
        yield pairs(facts)
        if found.written is not None:
            yield tag("h2", "Its producer")
            yield pairs(_sent(found.written))

    def _judged(self, asked: _Asked) -> dict[str, Content]:
        """By which schemas: of the partition's spans the last that begins at or before it."""
        spans = [each for each in asked.partition.spans if each.first_offset <= asked.offset]
        if not spans:
            return {}
        schemas = self._parts.replica.state.schemas
        own = {"Key judged by": spans[-1].key_schema_id, "Value judged by": spans[-1].value_schema_id}
        return {name: _schema(schemas.get(number)) for name, number in own.items() if number}

    async def _stored(self, found: RecordLife) -> list[Html]:
        head = tag("h2", "Its bytes")
        if found.stored is None:
            kind = "nowhere: the marker of a transaction's end is made when it is read"
            return [head, tag("p", kind if found.marker is not None else GONE)]
        stored, facts = found.stored, dict[str, Content]()
        try:
            meta = await self._parts.store.head(stored.key)
        except NotFound:
            meta, gone = None, GONE
        except StoreError as error:
            meta, gone = None, f"the store does not tell: {error}"
        facts["Object"] = stored.key
        facts["State of the object"] = _object(meta) if meta is not None else tag("span", gone, class_="bad")
        facts["Bytes in it"] = f"{stored.position:,} to {stored.position + stored.length:,} (exclusive)"
        facts["Written by"] = self._author(stored.run)
        facts["Kind"] = "segment, which merging made" if stored.chunk is None else "chunk, as it was sent"
        facts |= self._commit(stored)
        if stored.segment is not None:
            segment = stored.segment
            facts["The segment holds"] = f"{segment.records:,} records in {size(segment.size)}"
            facts["Their times"] = (
                f"{moment(segment.first_timestamp_ms)} to {moment(segment.max_timestamp_ms)}"
            )
            facts["Named by"] = segment.manifest
            facts["The chunk it came in"] = (
                f"{GONE}: its records of this partition were copied to the segment"
            )
        return [head, pairs(facts)]

    def _commit(self, stored: Stored) -> dict[str, Content]:
        """When the log took the chunk, exactly or between which revisions."""
        if stored.chunk is None:
            return {}
        commit = self._commits.of(stored.chunk)
        if commit is not None:
            return {"Committed": f"revision {commit.revision:,}, {moment(commit.at_ms)} by the log's clock"}
        run = self._parts.replica.state.incarnations.get(stored.run)
        if run is None:
            return {"Committed": "before what this agent remembers"}
        bounds = f"revisions {run.registered_revision:,} to {run.last_revision:,}"
        return {"Committed": f"between {bounds}: exactly only agents know that ran then"}

    def _author(self, run: int) -> str:
        known = self._parts.replica.state.incarnations.get(run)
        if known is None:
            return f"an agent whose run {run:016x} the log has forgotten"
        return (
            f"{known.name} (node {known.node_id}), {'in this run' if known.live else 'in a run that is over'}"
        )

    async def _table(self, asked: _Asked) -> list[Html]:
        """Where it is in the topic's table: also when the topic has it no more."""
        state, head = self._parts.replica.state, tag("h2", "Its row")
        key = state.tables_by_topic.get(asked.topic.topic_id)
        known = None if key is None else state.tables.get(key)
        if key is None or known is None:
            return [head, tag("p", "the topic has no table")]
        name, index = ".".join(key), asked.partition.index
        facts: dict[str, Content] = {"Table": link(name, url("/console/table", name=name))}
        done = known.next_offsets[index] if index < len(known.next_offsets) else 0
        if asked.offset >= done:
            facts["State"] = f"not in it yet: it has the partition's offsets below {done:,}"
            return [head, pairs(facts)]
        try:
            facts |= await self._row(known.metadata_location, index, asked.offset)
        except (StoreError, ValueError) as error:
            facts["State"] = tag("span", f"cannot be looked up: {error}", class_="bad")
        return [head, pairs(facts)]

    async def _row(self, location: str, index: int, offset: int) -> dict[str, Content]:
        found = await self._tables.row(location, index, offset)
        facts: dict[str, Content] = {}
        if found.snapshot is not None:
            facts["Came with snapshot"] = snapshot_of(found.snapshot)
        if found.file is None:
            all_ = found.looked_at == found.of
            facts["State"] = (
                f"{GONE}: no file of the table has its offset" if all_ else "in none of the newest files"
            )
            facts["Manifests looked at"] = f"{found.looked_at:,} of {found.of:,}"
            return facts
        facts["File"] = found.file.location
        facts["The file holds"] = f"{found.file.rows:,} rows in {size(found.file.size)}"
        facts["Row of the file"] = number(found.position) or "none: the file lacks this offset"
        return facts

    def _quarantine(self, asked: _Asked, found: RecordLife) -> Iterator[Html]:
        """The records of its batch that broke rules are elsewhere; and where a quarantine's came from."""
        state, topic, written = self._parts.replica.state, asked.topic, found.written
        if topic.name.endswith(SUFFIX):
            yield tag("h2", "Quarantine")
            yield tag(
                "p", "This topic is a quarantine: what the record holds says for which topic it was meant."
            )
            return
        aside = quarantine.of(state, topic)
        if aside is None or not may(self._parts, READ_QUIETLY, aside.name):
            return
        yield tag("h2", "Quarantine")
        said = "A record that has an offset here is not in quarantine; others of its batch may be."
        query: dict[str, object] = {"start": "newest"}
        if written is not None and written.producer_id >= 0:
            query = {"start": "oldest", "search": f'"producer_id": "{written.producer_id}"'}
        yield tag(
            "p", f"{said} ", link(f"Look in {aside.name}", url(f"{HERE}/{{}}/records", aside.name, **query))
        )


def _state(offset: int, found: RecordLife) -> str:
    if offset < found.log_start:
        return f"{GONE}: retention or somebody deleted the offsets below {found.log_start:,}"
    if offset >= found.end_offset:
        return "not written yet"
    if found.marker is not None:
        return f"the marker of a transaction that was {'committed' if found.marker else 'aborted'}, no record"
    if found.problem:
        return "there, but it cannot be read"
    written = found.written
    if written is None or (written.timestamp_ms is None and not written.control):
        return f"{GONE}: compaction took it, its transaction was aborted, or it broke its topic's rules"
    if written.aborted:
        return "there, of a transaction that was aborted: readers of committed records do not see it"
    if offset >= found.last_stable:
        return "there, behind a transaction that is still open: readers of committed records wait for it"
    return "there, and committed"


def _sent(written: Written) -> dict[str, Content]:
    counted = written.sequence >= 0
    return {
        "Producer id": number(written.producer_id) if written.producer_id >= 0 else "none: not idempotent",
        "Epoch": number(written.producer_epoch) if written.producer_id >= 0 else None,
        "Sequence": number(written.sequence) if counted else None,
        "Time": None if written.timestamp_ms is None else moment(written.timestamp_ms),
        "Time set by": written.stamped_by,
        "In a transaction": "yes" if written.transactional else "no",
        "Batch": f"offsets {written.first_offset:,} to {written.last_offset:,}, {written.records:,} records",
        "Compression": written.codec,
    }


def _object(meta: ObjectMeta) -> str:
    return f"there, {size(meta.size)}, stored {moment(meta.modified_ms)} by the store's clock"


def _schema(one: Schema | None) -> str:
    if one is None:
        return "a schema that is gone"
    return one.message or (f"subject {one.subject}" if one.subject else "the subject that it follows")


def _form(asked: _Asked) -> Html:
    return tag(
        "form",
        tag("label", "Partition ", tag("input", name="partition", value=asked.partition.index, size=6)),
        tag("label", "Offset ", tag("input", name="offset", id="search", value=asked.offset, size=22)),
        tag("button", "Look"),
        action=url(PATH, asked.topic.name),
        role="search",
    )
