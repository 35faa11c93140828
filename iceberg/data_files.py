"""The data files of one commit: read, written and stored, a bounded number of them side by side.

The store is far away and the helper process writes one file at a time; so while one is written, others are
read and stored. They come back in the order of the plan.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain

from coordination.state.types import Span, Topic
from iceberg import partitioning
from iceberg.compactor import sealed_name
from iceberg.groups import FILES_MAX, Group
from iceberg.head import Head
from iceberg.layout import Layout, MissingSchemas
from iceberg.manifests import AddedFile, added_file
from iceberg.obstacles import Obstacles, Replan
from iceberg.options import Parts
from iceberg.plan import CommitPlan, FilePlan
from iceberg.steps import Steps
from iceberg.topic_layouts import TopicLayouts
from objectstore import tasks


@dataclass(frozen=True, slots=True)
class Work:
    """What one commit takes, fixed before its first await."""

    topic: Topic
    topic_id: bytes
    head: Head
    layout: Layout
    plan: CommitPlan
    after: list[int]
    spans: Sequence[Sequence[Span]] = ()
    spec_id: int = 0
    order_id: int = 0
    """Of the partition spec and of the sort order of its files."""
    files_max: int = FILES_MAX
    format_version: int = 2
    """The lowest that the table shall have."""


class DataFiles:
    """Makes the files of one topic's commits. `obstacles` and `layouts` learn what is in their way."""

    def __init__(self, parts: Parts, steps: Steps, obstacles: Obstacles, layouts: TopicLayouts) -> None:
        self._parts = parts
        self._steps = steps
        self._obstacles = obstacles
        self._layouts = layouts

    async def write(self, work: Work, name: str) -> list[AddedFile]:
        """The files of a commit, stored. Raises Replan when something is in the way.

        Then the rest is read all the same, to learn of all that is in the way: to plan and write again for
        each damaged partition would be quadratic. Whatever else fails ends it once what is under way is over.
        """
        making = _Making(enumerate(zip(work.plan.files, work.spans, strict=True)))
        count = min(self._parts.options.files_in_flight_max, len(work.plan.files))
        some = [tasks.owned(self._some(work, name, making), "data files") for _ in range(count)]
        try:
            ends = await asyncio.gather(*some, return_exceptions=True)
        finally:
            for each in some:
                each.cancel()
        for failed in filter(None, (making.failed, *ends, making.in_the_way)):
            raise failed
        return [*chain.from_iterable(files for _, files in sorted(making.made.items()))]

    async def _some(self, work: Work, name: str, making: _Making) -> None:
        for number, (each, spans) in making.plans:
            try:
                making.made[number] = await self._one(work, name, each, spans, making)
            except Replan as replan:
                making.in_the_way = making.in_the_way or replan
            except BaseException as error:
                making.failed = making.failed or error
                raise
            if making.failed is not None:
                return

    async def _one(
        self, work: Work, name: str, each: FilePlan, spans: Sequence[Span], making: _Making
    ) -> list[AddedFile]:
        await self._steps.before("read-records")
        slices = await self._obstacles.records(work.topic.partitions[each.range.partition], each)
        if making.in_the_way is not None:
            return []
        try:
            return await self._file(work, each, slices, name, spans, making)
        except MissingSchemas as missing:
            await self._layouts.want(missing)
            raise Replan from missing

    async def _file(
        self,
        work: Work,
        each: FilePlan,
        slices: Sequence[memoryview],
        name: str,
        spans: Sequence[Span],
        making: _Making,
    ) -> list[AddedFile]:
        parts = self._parts
        partition, start, end = each.range
        await self._steps.before("write-file")
        made = await parts.writer.write(
            work.layout, partition, slices, start, end, each.aborted, spans, making.files_left(work)
        )
        making.files += len(made)
        found = []
        for written in made:  # whose names differ by their checksums
            location = await sealed_name(work.head, name, partition, start, end, written.parts)
            await self._steps.before("store-file")
            await parts.store.put(parts.warehouse.key(location), written.parts)
            group = Group(work.spec_id, written.values)
            found.append(added_file(location, written, group, work.order_id))
        return found


@dataclass(slots=True)
class _Making:
    """One commit's files while they are made: those to come, and what became of the others, by number."""

    plans: Iterator[tuple[int, tuple[FilePlan, Sequence[Span]]]]
    made: dict[int, list[AddedFile]] = field(default_factory=dict)
    in_the_way: Replan | None = None
    failed: BaseException | None = None
    files: int = 0

    def files_left(self, work: Work) -> int:
        """How many files the next one may be cut into by its partition values, about."""
        return max(partitioning.FILES_OF_ONE, work.files_max - self.files)
