"""Brings a topic's latest table up to its append table, by copy-on-write, each record's effect exactly once.

One committer per topic holds the claim `latest/<topic>`. A turn is: rows of the append table that the ledger
lacks → newest per key → the files whose keys are touched, made anew → manifests → metadata → one CommitTable
command. As with append tables (iceberg/committer.py) only that command makes anything visible, and the log
refuses it unless the claim is held and the table is at the metadata that the turn was built on; rows and
ledger are one snapshot. So a committer may die between any two steps, and whoever comes next begins with the
pointer.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from coordination.commands import CommitTable
from coordination.replica.clock_watch import deletion_ms
from coordination.replica.errors import OutcomeUnknown
from coordination.state.types import Refused, Topic
from iceberg import flat, ledger, metadata
from iceberg import history as histories
from iceberg.claim import TopicClaim
from iceberg.committer import SNAPSHOT_ID_BITS
from iceberg.head import Head, load, place, pointer, taken
from iceberg.latest_ids import (
    DEBEZIUM,
    ENVELOPE_PROPERTY,
    OF_PROPERTY,
    SOURCE_PROPERTY,
    claim_name,
    envelope_of,
    latest_id,
    latest_key,
    wanted,
)
from iceberg.ledger import Range
from iceberg.merging import UnfitFile
from iceberg.metadata import Metadata
from iceberg.options import Parts
from iceberg.pointer_commit import CommitError, LostRace, move_pointer
from iceberg.sealed import sealed
from iceberg.setup import NewTable, TableSetup, left_behind
from iceberg.snapshots import SnapshotBuilder
from iceberg.upsert import history
from iceberg.upsert.columns import Column, EnvelopeError, envelope_in, latest_fields
from iceberg.upsert.files import Changes, RunFiles, Work
from iceberg.upsert.folding import TooMuch
from iceberg.upsert.plan import Bounds, Take, in_runs, takes
from iceberg.upsert.steps import UpsertSteps
from objectstore.turns import in_turns

_logger = logging.getLogger("floe.iceberg.upsert")

SPAN_MAX = 1 << 62
SKIPPED_KEYLESS = "floe.skipped-keyless"
"""Of a snapshot's summary: records that it passed over because they have no key."""
SKIPPED_UNUSABLE = "floe.skipped-unusable"
"""Of a snapshot's summary: records that it passed over because they are no envelope that says a row."""


@dataclass(frozen=True, slots=True)
class Upserted:
    """What one turn did. `read`: rows of the append table; `files`, `bytes`: that were written; `keyless` and
    `unusable`: rows that changed nothing since they have no key, or are no envelope; `more`: some are left.
    """

    snapshot_id: int
    read: int
    files: int
    bytes: int
    keyless: int
    unusable: int
    more: bool


class LatestCommitter:
    """Keeps one topic's latest table. One task at a time may use it."""

    def __init__(self, parts: Parts, topic: str, steps: UpsertSteps | None = None) -> None:
        self.topic = topic
        self.claim = TopicClaim(parts.replica, claim_name(topic))
        self.conflict = ""
        """Why the table does not have the name that it shall have; empty when it has."""
        self._parts = parts
        self._steps = steps or UpsertSteps()
        self._setup = TableSetup(parts.replica, parts.store, parts.warehouse, parts.clock, self._steps)
        self._files = RunFiles(parts, self._steps)
        self._head: Head | None = None
        self._unsure = ""  # where the metadata of a turn is whose outcome is not known
        self._first = 0  # the partition that the next turn begins with
        self._span = SPAN_MAX  # offsets of a partition that a turn takes at most

    @property
    def head(self) -> Head | None:
        """The table as this committer knows it; None before the first turn and after a lost race."""
        return self._head

    def waiting(self) -> tuple[int, int]:
        """Records of the append table that the latest one lacks, and its rows, as far as they are known here.

        Without a known head it is as if all were new.
        """
        state = self._parts.replica.state
        topic = state.topics.get(self.topic)
        if topic is None:
            return 0, 0
        source = state.tables.get(place(state, topic))
        own = state.tables.get(state.tables_by_topic.get(latest_id(topic.topic_id), ("", "")))
        if source is None or source.topic_id != topic.topic_id:
            return 0, 0
        have = own.next_offsets if own is not None else ()
        new = sum(
            max(0, end - (have[index] if index < len(have) else 0))
            for index, end in enumerate(source.next_offsets)
        )
        current = ledger.current_snapshot(self._head.metadata) if self._head is not None else None
        return new, int(current["summary"].get("total-records", 0)) if current is not None else 0

    @property
    def misnamed(self) -> bool:
        """Whether the table shall have another name than it has."""
        state = self._parts.replica.state
        topic = state.topics.get(self.topic)
        own = state.tables_by_topic.get(latest_id(topic.topic_id)) if topic is not None else None
        return topic is not None and own is not None and own != latest_key(topic)

    async def settled_head(self) -> Head | None:
        """The table's head, if a read barrier shows that only this committer can change the table; else None.

        Raises coordination.log.LogError.
        """
        replica, head = self._parts.replica, self._head
        if head is None or self._unsure or not self.claim.revision:
            return None
        await replica.barrier()
        topic = replica.state.topics.get(self.topic)
        if topic is None or not self.claim.holds(replica.incarnation):
            return None
        key = replica.state.tables_by_topic.get(latest_id(topic.topic_id))
        return head if key is not None and pointer(replica.state, key) == head.location else None

    async def release(self) -> None:
        """Give the claim back."""
        await self.claim.release()

    def turn(self) -> AbstractContextManager[None]:
        """Around `run_once` and what the table needs beside it (Steps.turn)."""
        return self._steps.turn()

    async def run_once(self) -> Upserted | None:
        """Take the next piece of the append table; None when nothing is new, or another agent does it.

        Raises CommitError, LostRace, TableConflict, ClaimRefused, coordination.log.LogError,
        objectstore.store.StoreError.
        """
        replica = self._parts.replica
        if self._unsure:  # first of all: what became of the last turn?
            self._head = None
            await replica.barrier()
        incarnation = replica.incarnation
        topic = replica.state.topics.get(self.topic)
        if not incarnation or topic is None or not self._wanted(topic):
            return None
        if not self.claim.holds(incarnation):
            self._head = None
            if not await self.claim.take(incarnation, self._steps):
                return None
        topic = replica.state.topics.get(self.topic)
        source = await self._source(topic) if topic is not None else None
        if topic is None or source is None:
            return None
        try:
            head = await self._load_head(topic, source, incarnation)
            return await self._turn(topic, source, head, incarnation)
        except (UnfitFile, EnvelopeError, ledger.LedgerError) as error:
            raise CommitError(str(error)) from error

    def _wanted(self, topic: Topic) -> bool:
        state = self._parts.replica.state
        return wanted(topic, state.cluster_configs, state.feature_level)

    async def _source(self, topic: Topic) -> Head | None:
        """The append table's head; None while there is none."""
        state = self._parts.replica.state
        location = pointer(state, place(state, topic))
        if not location:
            return None
        await self._steps.before("load-table")
        try:
            head = await load(self._parts.store, self._parts.warehouse, location)
        except ValueError:  # another engine's table has the name
            return None
        return head if head.topic_id == topic.topic_id.hex() else None

    async def _load_head(self, topic: Topic, source: Head, incarnation: int) -> Head:
        """The head that the state points to, made or renamed first where that is needed."""
        state = self._parts.replica.state
        key = state.tables_by_topic.get(latest_id(topic.topic_id))
        if key is None:
            self._head = await self._create(topic, source, incarnation)
            return self._head
        key = await self._renamed(topic, key, incarnation)
        location = pointer(self._parts.replica.state, key)
        head = self._head
        if head is None or head.location != location:
            try:
                head = await load(self._parts.store, self._parts.warehouse, location)
            except ValueError as error:
                raise CommitError(f"the table's metadata {location}: {error}") from error
        if location == self._unsure:
            self._unsure = ""
        self._head = head
        return head

    async def _create(self, topic: Topic, source: Head, incarnation: int) -> Head:
        """An empty table, where none stands in its way. Raises TableConflict and EnvelopeError."""
        state, key = self._parts.replica.state, latest_key(topic)
        there = state.tables.get(key)
        if there is not None and left_behind(state, there):
            await self._setup.set_aside(key, there.metadata_location, there.topic_id.hex(), incarnation)
        envelope = envelope_of(topic, state.cluster_configs)
        fields = _fields(source, envelope, ())
        told = flat.told({}, flat.is_flat(source.metadata)) | {
            ledger.TOPIC_PROPERTY: topic.name,
            OF_PROPERTY: topic.topic_id.hex(),
            ENVELOPE_PROPERTY: envelope,
            SOURCE_PROPERTY: source.metadata["table-uuid"],
        }
        last = source.metadata["last-column-id"]
        made = NewTable(key, topic.name, latest_id(topic.topic_id), fields, last, told)
        return await self._setup.create(made, self.claim, incarnation)

    async def _renamed(self, topic: Topic, key: tuple[str, str], incarnation: int) -> tuple[str, str]:
        """The name that the table has, once it was given the one that it shall have, if that can be."""
        replica, target = self._parts.replica, latest_key(topic)
        self.conflict = ""
        if key == target:
            return key
        await self._setup.make_namespace(target[0], incarnation)
        await self._steps.before("rename-table")
        message = taken(replica.state, key, pointer(replica.state, key), target)
        result = await replica.propose(message, incarnation=incarnation) if message is not None else None
        if isinstance(result, Refused):
            self.conflict = (
                f"table {'.'.join(key)} is not renamed to {'.'.join(target)}: {result.message}; rename or "
                "drop what is in the way, or give the topic another floe.table.name"
            )
        return replica.state.tables_by_topic.get(latest_id(topic.topic_id), key)

    async def _turn(self, topic: Topic, source: Head, head: Head, incarnation: int) -> Upserted | None:
        """Fold what is new into the table, in one snapshot."""
        await self._steps.before("plan")
        have = ledger.next_offsets(head.metadata, topic.topic_id)
        upto = ledger.next_offsets(source.metadata, topic.topic_id)
        if not any(end > (have[at] if at < len(have) else 0) for at, end in enumerate(upto)):
            return None
        snapshot_id = self._parts.clock.random_bits(SNAPSHOT_ID_BITS) + 1
        work = self._work(topic, source, head, snapshot_id, incarnation)
        files = await self._files.of_source(source)
        while True:
            bounds = Bounds(self._parts.options.latest_bytes_max, self._span)
            taken_now, more = takes(files, have, upto, bounds, self._first)
            try:
                changes = await self._changes(work, head, taken_now)
                break
            except TooMuch:
                self._narrow(taken_now)
        author = f"{incarnation:016x}/{self.claim.revision}"
        after = ledger.advance(have, [Range(x.partition, x.start, x.end) for x in taken_now], len(upto))
        told = ledger.summary(
            topic.topic_id, after, [Range(x.partition, x.start, x.end) for x in taken_now], author
        )
        told |= {SKIPPED_KEYLESS: str(changes.keyless), SKIPPED_UNUSABLE: str(changes.unusable)}
        made = await self._stored(topic, work, head, changes, snapshot_id, told)
        await self._move_pointer(topic, head, made.location, after, incarnation)
        await self._steps.before("remember-head")
        self._head, self._unsure = made, ""
        self._first = (taken_now[-1].partition + 1) % len(upto)
        self._span = min(SPAN_MAX, self._span * 2)
        size = sum(each.size for each in changes.files)
        counts = changes.read, len(changes.files), size, changes.keyless, changes.unusable
        return Upserted(snapshot_id, *counts, more)

    def _narrow(self, tried: list[Take]) -> None:
        """Take fewer offsets: the rows of these are more than memory is meant for."""
        widest = max(each.end - each.start for each in tried)
        if widest <= 1:
            raise CommitError("the rows of one offset are larger than a turn may hold")
        self._span = widest // 2

    def _work(self, topic: Topic, source: Head, head: Head, snapshot_id: int, incarnation: int) -> Work:
        """What the turn builds on. Raises CommitError and EnvelopeError."""
        envelope = envelope_of(topic, self._parts.replica.state.cluster_configs)
        before = head.metadata["properties"].get(ENVELOPE_PROPERTY, "")
        if before != envelope:
            raise CommitError(
                f"the table was made with floe.table.envelope={before}, and now it is {envelope}: drop the "
                "table, and it is made anew from the topic's, or set the config back"
            )
        _require_same_source(source, head)
        columns = flat.nested(metadata.current_fields(source.metadata))
        fields = _fields(source, envelope, metadata.current_fields(head.metadata))
        told = {ledger.TOPIC_PROPERTY: topic.name, SOURCE_PROPERTY: source.metadata["table-uuid"]}
        told |= flat.told(head.metadata["properties"], flat.is_flat(source.metadata))
        base = metadata.with_schema(head.metadata, fields, source.metadata["last-column-id"], told)
        name = f"data/{self.claim.revision:016x}-{incarnation:016x}/{snapshot_id:016x}"
        return Work(source, base, envelope_in(columns) if envelope == DEBEZIUM else None, name)

    async def _changes(self, work: Work, head: Head, some: list[Take]) -> Changes:
        """What the turn does to the table's files, the new ones stored. Raises TooMuch."""
        changes = Changes()
        try:
            runs = in_runs(await self._files.of_table(head))
        except ValueError as error:
            raise UnfitFile(str(error)) from error
        for take in some:
            folded = await self._files.fold(work, take)
            changes.count(folded)
            await self._files.merge(work, take, runs.get(take.partition, []), folded.rows, changes)
        return changes

    async def _stored(
        self,
        topic: Topic,
        work: Work,
        head: Head,
        changes: Changes,
        snapshot_id: int,
        told: Mapping[str, str],
    ) -> Head:
        """The next head, stored and not yet visible."""
        parts, options, now_ms = self._parts, self._parts.options, self._parts.replica.wall_ms()
        builder = SnapshotBuilder(parts.store, parts.warehouse, self._steps, options.manifests_merged_at)
        try:
            made = await builder.overwrite(
                work.base, head.manifests, changes.files, changes.gone, snapshot_id, told, now_ms
            )
        except ValueError as error:
            raise CommitError(f"the table stays as it is: {error}") from error
        kept = self._with_history(topic, made.metadata)
        final = metadata.following(kept, head.location, head.metadata, now_ms, options.retention)
        name = metadata.metadata_name(metadata.version_of(head.location) + 1, parts.clock.random_bytes(16))
        content = await in_turns(metadata.encode_steps(final))
        location = await asyncio.to_thread(sealed, f"{final['location']}/{name}", *content)
        await self._steps.before("store-metadata")
        await parts.store.put(parts.warehouse.key(location), content)
        return Head(location, final, made.manifests)

    def _with_history(self, topic: Topic, found: Metadata) -> Metadata:
        state = self._parts.replica.state
        policy = histories.policy_of(
            found["properties"], topic.configs, state.cluster_configs, history.SNAPSHOTS_MAX
        )
        return history.kept(found, policy.age_ms, deletion_ms(state, self._parts.clock.now_ms()))

    async def _move_pointer(
        self, topic: Topic, head: Head, location: str, after: list[int], incarnation: int
    ) -> None:
        """The one step that makes the turn true."""
        await self._steps.before("commit-table")
        state, table_id = self._parts.replica.state, latest_id(topic.topic_id)
        namespace, name = state.tables_by_topic.get(table_id, latest_key(topic))  # maybe renamed since
        fields: dict[str, Any] = {"namespace": namespace, "name": name, "topic": topic.name}
        fields |= {"claim": self.claim.name, "claim_revision": self.claim.revision}
        fields |= {"expected": head.location, "metadata_location": location}
        message = CommitTable(**fields, next_offsets=after, topic_id=table_id)
        try:
            await move_pointer(self._parts.replica, self.claim, message, incarnation)
        except (OutcomeUnknown, asyncio.CancelledError):
            self._unsure = location
            raise
        except (LostRace, CommitError):
            self._head = None
            raise


def _require_same_source(source: Head, head: Head) -> None:
    """Raises CommitError when the latest table follows another table of the topic than `source`: its columns'
    ids mean others there. One of before this was told is taken to follow the one that is there.
    """
    before, now = head.metadata["properties"].get(SOURCE_PROPERTY), source.metadata["table-uuid"]
    if before not in (None, now):
        raise CommitError(
            f"the table follows the topic's table {before}, in whose place a new one is ({now}): drop this "
            "table, and it is made anew from that one"
        )


def _fields(source: Head, envelope: str, before: Sequence[Mapping[str, Any]]) -> list[Column]:
    """The columns of the latest table, laid out as the append table's are. Raises EnvelopeError."""
    columns = flat.nested(metadata.current_fields(source.metadata))
    fields = latest_fields(columns, envelope, flat.nested(before))
    return flat.flattened(fields) if flat.is_flat(source.metadata) else fields
