"""Turns the committed records of one topic into snapshots of its table, each record exactly once.

One committer per topic holds the claim `committer/<topic>`. A commit is: read records that the ledger
lacks → data files → manifests → metadata → one CommitTable command. Only that command makes anything
visible, and the log refuses it unless the claim is still held and the table still is at the metadata that
this commit was built on. So a committer may die between any two steps: whoever comes next starts from the
pointer and the ledger in its snapshot; files that no snapshot names are garbage (iceberg/maintenance.py).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from coordination.commands import CommitTable
from coordination.replica.clock_watch import deletion_ms
from coordination.replica.errors import OutcomeUnknown
from coordination.state.types import Topic
from iceberg import flat, history, ledger, lineage, metadata, partitioning, sorting
from iceberg.claim import TopicClaim, claim_name
from iceberg.compactor import Compactor, Merged
from iceberg.data_files import DataFiles, Work
from iceberg.groups import FILES_MAX
from iceberg.head import Head, compacts, follows, load, place, pointer
from iceberg.layout import Layout
from iceberg.manifests import AddedFile, Removed
from iceberg.metadata import Metadata
from iceberg.obstacles import Obstacles, Replan
from iceberg.options import Committed, CommitterOptions, Compacted, Parts
from iceberg.plan import CommitPlan, Unplanned, fitting
from iceberg.pointer_commit import CommitError, LostRace, move_pointer
from iceberg.sealed import sealed
from iceberg.segments import HistoryKeeper
from iceberg.setup import NewTable, TableSetup, properties_of
from iceberg.snapshots import SnapshotBuilder
from iceberg.steps import Steps
from iceberg.topic_layouts import TopicLayouts
from iceberg.writer import TooManyFiles
from objectstore.store import StoreError
from objectstore.turns import in_turns

__all__ = ["CommitError", "Committed", "Committer", "CommitterOptions", "Compacted", "LostRace", "Parts"]

_logger = logging.getLogger("floe.iceberg.committer")

SNAPSHOT_ID_BITS = 62
REPLANS_MAX = 1_000  # of one commit: a few find all that is damaged or gone, unless ever more of it is


class Committer:
    """Commits one topic. One task at a time may use it."""

    def __init__(self, parts: Parts, topic: str, steps: Steps | None = None) -> None:
        self.topic = topic
        self.claim = TopicClaim(parts.replica, claim_name(topic))
        self._parts = parts
        self._steps = steps or Steps()
        self.turn = self._steps.turn
        """Around one turn: see Steps."""
        self._setup = TableSetup(parts.replica, parts.store, parts.warehouse, parts.clock, self._steps)
        self._head: Head | None = None
        options = parts.options
        self._layouts = TopicLayouts(parts.replica, raw_bytes=options.raw_bytes, types_max=options.types_max)
        self._followed: list[int] | None = None  # log starts below which the table has been looked through
        self._obstacles = Obstacles(parts.reader, parts.merged)
        self._files = DataFiles(parts, self._steps, self._obstacles, self._layouts)
        self._compactor = Compactor(parts, self._steps)
        self.conflict = ""
        """Why the table does not have the name that it shall have; empty when it has."""
        self._other_layout = ""  # why it is not laid out as its config says
        self._history = HistoryKeeper(
            parts.store,
            parts.warehouse,
            self._steps,
            parts.options.retention.snapshots,
            lambda: parts.clock.random_bits(SNAPSHOT_ID_BITS) + 1,
        )
        self._narrow = False  # commits take few rows, since they make many files
        self._unsure = ""  # where the metadata of a commit is whose outcome is not known

    @property
    def head(self) -> Head | None:
        """The table as this committer knows it; None before the first commit and after a lost race."""
        return self._head

    @property
    def compaction_due(self) -> bool:
        """Whether small files wait to be made large ones."""
        state = self._parts.replica.state
        topic = state.topics.get(self.topic)
        wanted = topic is not None and compacts(topic, state.cluster_configs)
        return wanted and self._head is not None and self._compactor.waits(self._head)

    @property
    def problems(self) -> tuple[str, ...]:
        """What is wrong with the table though it goes on: its name, its layout, its version,
        and files that cannot be read.
        """
        told = self.conflict, self._other_layout, self._version_problem()
        return (*filter(None, told), *self._compactor.problems())

    def _version_problem(self) -> str:
        """Why the table has another format version than its topic says; empty for none."""
        topic = self._parts.replica.state.topics.get(self.topic)
        head = self._head
        if topic is None or head is None or head.topic_id != topic.topic_id.hex():
            return ""
        return lineage.problem(head.metadata, self._wanted_version(topic))

    def _wanted_version(self, topic: Topic) -> int:
        return lineage.wanted(topic.configs, self._parts.replica.state.cluster_configs)

    @property
    def unsure(self) -> bool:
        """Whether a commit of this committer may still land: nothing of the table may be deleted then."""
        return bool(self._unsure)

    async def settled_head(self) -> Head | None:
        """The table's head, if a read barrier shows that only this committer can change the table; else None.

        Who stood still for longer than its lease takes its old head for the table's and its successor's
        files for garbage. Raises coordination.log.LogError.
        """
        replica, head = self._parts.replica, self._head
        if head is None or self._unsure or not self.claim.revision:
            return None
        await replica.barrier()
        topic = replica.state.topics.get(self.topic)
        if topic is None or not self.claim.holds(replica.incarnation):
            return None
        return head if pointer(replica.state, place(replica.state, topic)) == head.location else None

    async def run_once(self) -> Committed | None:
        """Commit the next piece of the topic; None when there is nothing to do or another agent commits.

        Once all that can be read is committed, CommitError tells of damage that is in the way of the rest.
        Raises CommitError, LostRace, ClaimRefused, coordination.log.LogError, objectstore.store.StoreError.
        """
        replica = self._parts.replica
        if self._unsure:  # first of all: what became of the last commit?
            self._head = None
            await replica.barrier()
        incarnation = replica.incarnation
        if not incarnation or self.topic not in replica.state.topics:
            return None
        if not await self._hold_claim(incarnation):
            return None
        topic = replica.state.topics.get(self.topic)
        if topic is None:
            return None
        head = await self._load_head(topic, incarnation)
        await self._steps.before("plan")
        topic = replica.state.topics.get(self.topic)
        if topic is None or topic.topic_id.hex() != head.topic_id:
            return None
        self._layouts.begin()
        await self._obstacles.begin(topic.partitions)
        for _ in range(REPLANS_MAX):
            if replica.state.topics.get(self.topic) is not topic:
                return None
            try:
                work = await self._plan(topic, head)
                if work is not None:
                    return await self._commit(work, incarnation)
            except TooManyFiles:
                self._narrow = True
                continue
            except Replan:
                await replica.barrier()
                continue
            if self._obstacles:
                raise CommitError(f"records are damaged or lost: {self._obstacles.told()}")
            return None
        raise CommitError("what the table lacks moved or was lost again and again while it was read")

    async def follow(self) -> int:
        """Remove the files whose rows all lie below their partition's log start; how many rows went.

        Only for a topic that wants it (`floe.table.retention=follow`), on the head that was committed last.
        Raises what `run_once` raises.
        """
        work = self._idle_work(follows)
        if work is None:
            return 0
        topic, incarnation = work.topic, self._parts.replica.incarnation
        starts = [partition.held_start for partition in topic.partitions]
        if starts == self._followed:
            return 0
        await self._steps.before("find-old-files")
        found = await self._without_old(work, starts, incarnation)
        if found is not None:
            after, removed = found
            await self._move_pointer(work, after.location, incarnation)
            await self._remember(work.head, after)
            _logger.info(
                "topic %s: %d rows of records that left the log for good left the table",
                topic.name,
                removed.rows,
            )
        self._followed = starts
        return found[1].rows if found is not None else 0

    def _idle_work(self, wanted: Callable[[Topic, Mapping[str, str]], bool]) -> Work | None:
        """A commit on the head that was committed last, which adds no rows; None when there is none to build
        upon, or the topic's configs do not want it.
        """
        replica, head = self._parts.replica, self._head
        topic = replica.state.topics.get(self.topic)
        if head is None or self._unsure or not replica.incarnation or not self.claim.revision:
            return None
        if topic is None or topic.topic_id.hex() != head.topic_id:
            return None
        if not wanted(topic, replica.state.cluster_configs):
            return None
        known = ledger.next_offsets(head.metadata, topic.topic_id)
        return Work(topic, topic.topic_id, head, self._layouts.build(topic, head), _NO_FILES, known)

    async def compact(self) -> Compacted | None:
        """Make large files of small ones, when it is time; None when nothing was done.

        On the head that was committed last, under the same claim and in the same steps as a commit: its
        snapshot has the same rows and the same ledger. Raises what `run_once` raises.
        """
        work = self._idle_work(compacts)
        if work is None or not self._compactor.due(work.head):
            return None
        incarnation = self._parts.replica.incarnation
        with self._compactor.paced():
            await self._steps.before("find-small-files")
            merges = await self._compactor.merges(work.head)
            snapshot_id = self._parts.clock.random_bits(SNAPSHOT_ID_BITS) + 1
            name = f"data/{self.claim.revision:016x}-{incarnation:016x}/{snapshot_id:016x}"
            done = [await self._compactor.rewrite(work.head, each, name) for each in merges]
            merged = [each for each in done if each is not None]
            if merged:
                after = await self._replaced(work, merged, snapshot_id, incarnation)
                await self._move_pointer(work, after.location, incarnation)
                await self._remember(work.head, after)
                self._compactor.replaced(work.head, after, merged)
        gone = sum(len(each.files) for each in merged)
        size = sum(each.made.size for each in merged)
        return Compacted(snapshot_id, gone, len(merged), size) if merged else None

    async def _replaced(
        self, work: Work, merged: Sequence[Merged], snapshot_id: int, incarnation: int
    ) -> Head:
        """The head with merged files instead of those they were made of, stored and not yet visible."""
        before, now_ms = work.head, self._parts.replica.wall_ms()
        try:
            head = await self._builder().replace(
                before.metadata,
                before.manifests,
                [each.made for each in merged],
                {one.location for each in merged for one in each.files},
                snapshot_id,
                ledger.summary(work.topic_id, work.after, (), f"{incarnation:016x}/{self.claim.revision}"),
                now_ms,
            )
        except ValueError as error:
            self._compactor.forget()
            raise CommitError(f"small files stay as they are: {error}") from error
        return await self._store_metadata(head, before, now_ms)

    async def _without_old(
        self, work: Work, starts: Sequence[int], incarnation: int
    ) -> tuple[Head, Removed] | None:
        """The head without old files, stored and not yet visible; None when there are none."""
        parts, before = self._parts, work.head
        now_ms = parts.replica.wall_ms()
        author = f"{incarnation:016x}/{self.claim.revision}"
        found = await self._builder().remove(
            before.metadata,
            before.manifests,
            lambda extent: extent.partition < len(starts) and extent.last_offset < starts[extent.partition],
            parts.clock.random_bits(SNAPSHOT_ID_BITS) + 1,
            ledger.removal_summary(work.topic_id, work.after, starts, author),
            now_ms,
        )
        if found is None:
            return None
        head, removed = found
        return await self._store_metadata(head, before, now_ms), removed

    def _builder(self) -> SnapshotBuilder:
        parts, options = self._parts, self._parts.options
        return SnapshotBuilder(parts.store, parts.warehouse, self._steps, options.manifests_merged_at)

    async def release(self) -> None:
        """Give the claim back, so that another agent need not wait for this one's end to be noticed."""
        await self.claim.release()

    async def _hold_claim(self, incarnation: int) -> bool:
        if self.claim.holds(incarnation):
            return True
        if not await self.claim.take(incarnation, self._steps):
            return False
        self._head = self._followed = None
        return True

    async def _load_head(self, topic: Topic, incarnation: int) -> Head:
        """The head that the state points to, made or put in order first where that is needed."""
        self.conflict = await self._setup.rename(topic, self.claim, incarnation)
        key = place(self._parts.replica.state, topic)
        location = pointer(self._parts.replica.state, key)
        head = self._head
        if head is None or head.location != location:
            await self._steps.before("load-table")
            try:
                head = await load(self._parts.store, self._parts.warehouse, location) if location else None
            except ValueError as error:  # another engine's, or none at all
                raise CommitError(f"the table's metadata {location}: {error}") from error
        if head is None or head.topic_id != topic.topic_id.hex():
            if head is not None:
                await self._setup.set_aside(key, head.location, head.topic_id, incarnation)
            fresh = self._layouts.build(topic, None)
            told = properties_of(topic, fresh) | flat.told({}, fresh.flat)
            version = self._wanted_version(topic)
            made = NewTable(key, topic.name, topic.topic_id, fresh.fields, fresh.ids.last, told, version)
            head = await self._setup.create(made, self.claim, incarnation)
        self._head, self._other_layout = head, self._layouts.refusal(topic, head)
        if head.location == self._unsure:
            self._unsure = ""
        return head

    async def _plan(self, topic: Topic, head: Head) -> Work | None:
        replica, options = self._parts.replica, self._parts.options
        before = ledger.next_offsets(head.metadata, topic.topic_id)
        passed = self._obstacles.passed(topic.partitions, before)
        known = ledger.advance(before, [each.range for each in passed], len(topic.partitions))
        limits = self._obstacles.limits(topic.partitions)
        try:
            found = await fitting(
                self._parts.merged,
                topic,
                known,
                options.bounds if not self._narrow else options.bounds.narrowed(FILES_MAX),
                limits,
                lambda: replica.state.topics.get(topic.name) is topic,
            )
        except Unplanned as unplanned:
            for lost in unplanned.lost:
                self._obstacles.note(topic.partitions[lost.partition], lost)
            raise Replan from unplanned
        if found is None:
            return None
        if found.more and not found.too_small and not found.files and not passed:
            raise Replan  # all that there is was merged while it was planned
        found = replace(found, files=(*passed, *found.files))
        ranges = [each.range for each in found.files]
        if any(topic.partitions[each.partition].log_start > each.start for each in ranges):
            raise Replan  # by what records below the log start were judged is not known any more
        spans = self._layouts.spans(topic, ranges)
        layout, version = self._layouts.build(topic, head, spans), self._wanted_version(topic)
        if not found.files and _as_wanted(head.metadata, layout, version):
            return None
        after = ledger.advance(before, ranges, len(topic.partitions))
        told = _shaped(head.metadata, layout, {})
        ids = told["default-spec-id"], told["default-sort-order-id"]
        files_max = FILES_MAX if not self._narrow else _ANY
        return Work(topic, topic.topic_id, head, layout, found, after, spans, *ids, files_max, version)

    async def _commit(self, work: Work, incarnation: int) -> Committed:
        snapshot_id = self._parts.clock.random_bits(SNAPSHOT_ID_BITS) + 1
        name = f"data/{self.claim.revision:016x}-{incarnation:016x}/{snapshot_id:016x}"
        files = await self._files.write(work, name)
        head = await self._store_head(work, files, snapshot_id, incarnation)
        await self._move_pointer(work, head.location, incarnation)
        await self._remember(work.head, head)
        self._compactor.added(work.head, head, files)
        self._narrow = self._narrow and 2 * len(files) > FILES_MAX
        return Committed(
            snapshot_id if work.plan.files else None,
            sum(each.rows for each in files),
            sum(each.size for each in files),
            len(files),
            work.plan.more or bool(self._obstacles),
            work.layout.problems,
        )

    async def _store_head(
        self, work: Work, files: list[AddedFile], snapshot_id: int, incarnation: int
    ) -> Head:
        """Manifests and metadata of the next head, stored and not yet visible."""
        before, now_ms = work.head, self._parts.replica.wall_ms()
        base = lineage.upgraded(before.metadata, work.format_version)
        base = _shaped(base, work.layout, properties_of(work.topic, work.layout))
        head = Head("", base, before.manifests)
        if work.plan.files:
            added = [each.range for each in work.plan.files]
            author = f"{incarnation:016x}/{self.claim.revision}"
            summary = ledger.summary(work.topic_id, work.after, added, author)
            head = await self._builder().append(base, before.manifests, files, snapshot_id, summary, now_ms)
        return await self._store_metadata(head, before, now_ms)

    async def _store_metadata(self, head: Head, before: Head, now_ms: int) -> Head:
        """The metadata file that succeeds `before`, stored and not yet visible."""
        parts, options = self._parts, self._parts.options
        kept = await self._with_history(head.metadata)
        final = metadata.following(kept, before.location, before.metadata, now_ms, options.retention)
        version = metadata.version_of(before.location) + 1
        name = metadata.metadata_name(version, parts.clock.random_bytes(16))
        content = await in_turns(metadata.encode_steps(final))
        location = await asyncio.to_thread(sealed, f"{before.metadata['location']}/{name}", *content)
        await self._steps.before("store-metadata")
        await parts.store.put(parts.warehouse.key(location), content)
        return Head(location, final, head.manifests)

    async def _with_history(self, found: Metadata) -> Metadata:
        """The metadata with the history of its table as it is to be kept. What is too old is agreed on."""
        replica = self._parts.replica
        topic = replica.state.topics.get(self.topic)
        policy = history.policy_of(
            found["properties"],
            topic.configs if topic is not None else {},
            replica.state.cluster_configs,
            self._parts.options.retention.history_max,
        )
        policy = replace(policy, grace_ms=int(self._parts.options.orphan_grace_s * 1000))
        now_ms = deletion_ms(replica.state, self._parts.clock.now_ms())
        return await self._history.kept(found, policy, now_ms)

    async def _move_pointer(self, work: Work, location: str, incarnation: int) -> None:
        """The one step that makes the commit true."""
        await self._steps.before("commit-table")
        namespace, name = place(self._parts.replica.state, work.topic)  # it may have been renamed since
        message = CommitTable(
            namespace=namespace,
            name=name,
            expected=work.head.location,
            metadata_location=location,
            claim=self.claim.name,
            claim_revision=self.claim.revision,
            topic=work.topic.name,
            next_offsets=work.after,
            topic_id=work.topic_id,
        )
        try:
            await move_pointer(self._parts.replica, self.claim, message, incarnation)
        except (OutcomeUnknown, asyncio.CancelledError):
            self._unsure = location
            raise
        except (LostRace, CommitError):
            self._head = None
            raise

    async def _remember(self, before: Head, after: Head) -> None:
        """`after` has succeeded `before`. Metadata files that it names no more are deleted where the table's
        properties say so; else, and where that fails, they go with the orphans (maintenance.py).
        """
        await self._steps.before("remember-head")
        self._head, self._unsure = after, ""
        gone = metadata.forgotten(before.metadata, after.metadata)
        if gone:
            with suppress(StoreError):
                await self._parts.store.delete([self._parts.warehouse.key(each) for each in gone])


def _as_wanted(found: Metadata, layout: Layout, version: int) -> bool:
    """Whether the table has the columns, partition spec and sort order of a layout, and the version."""
    same = partitioning.current(found) == layout.spec and sorting.current(found) == layout.order
    return same and found["format-version"] >= version and metadata.has_schema(found, layout.fields)


def _shaped(before: Metadata, layout: Layout, properties: Mapping[str, str]) -> Metadata:
    """The table with the columns, the partition spec and the sort order of a layout."""
    properties = {**properties, **flat.told(before["properties"], layout.flat)}
    base = metadata.with_schema(before, layout.fields, layout.ids.last, properties)
    return sorting.with_order(partitioning.with_spec(base, layout.spec), layout.order)


_ANY = 1 << 31  # files of a commit of few rows: a transaction is taken whole
_NO_FILES = CommitPlan((), more=False)
