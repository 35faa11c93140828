"""Topics' tables with everything that an engine may stumble over, and what each question must answer.

Expected values are written by hand from protobuf's and the docs' rules, not read back through Floe.
Values are plain JSON: bytes as hex, decimals and integers beyond 2^53 as text, instants as ISO 8601 in
UTC with microseconds, maps as sorted pairs (`programs/plain.py` brings what engines give to that form).
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from coordination.commands import MoveLogStart
from coordination.state.types import Done
from iceberg.committer import Committer, CommitterOptions
from iceberg.small_files import FileSizes
from tests.engines import all_types
from tests.engines.question import Question
from tests.unit.iceberg import rig as rigs
from tests.unit.iceberg import serving
from tests.unit.iceberg.rig import Rig
from tests.unit.schema import samples

OLD = b"""syntax = "proto3"; package p;
message M { int32 a = 1; string b = 2; float f = 3; repeated int32 many = 4; string gone = 5; }"""
NEW = b"""syntax = "proto3"; package p;
message M { int64 renamed = 1; string b = 2; double f = 3; repeated int64 many = 4; string more = 6; }"""
LOG_START = 4


@dataclass(slots=True)
class Lake:
    """A catalog that is served, and questions about its tables."""

    url: str
    questions: list[Question] = field(default_factory=list)


@asynccontextmanager
async def served(folder: Path) -> AsyncIterator[Lake]:
    """Make the tables below `folder` and serve their catalog."""
    async with rigs.running(folder) as rig, serving.served(serving.catalog_of(rig)) as url:
        yield Lake(
            url,
            [
                *await _types(rig),
                *await _evolution(rig),
                *await _travel(rig),
                *await _retention(rig),
                *await _version_3(rig),
            ],
        )


async def _types(rig: Rig) -> list[Question]:
    await rig.create_topic("types", partitions=1)
    await rig.bind(samples.ZOO, "zoo.All", topic="types", tombstones=True)
    await rig.produce([all_types.full(), b"", None], topic="types")
    await rig.drain(rig.committer("types"))
    return all_types.QUESTIONS


async def _evolution(rig: Rig) -> list[Question]:
    """A field renamed, three widened, one gone, one new: rows of both messages."""
    await rig.create_topic("evolved", partitions=1)
    committer = rig.committer("evolved")
    await rig.bind(OLD, "p.M", topic="evolved")
    old = samples.message_type(OLD, "p.M").message_class
    await rig.produce([old(a=-1, b="b", f=0.5, many=[1], gone="gone").SerializeToString()], topic="evolved")
    await rig.drain(committer)
    await rig.bind(NEW, "p.M", topic="evolved")
    new = samples.message_type(NEW, "p.M").message_class
    content = new(renamed=1 << 40, b="c", f=1e300, many=[1 << 40], more="more").SerializeToString()
    await rig.produce([content], topic="evolved")
    await rig.drain(committer)
    return [
        Question(
            "evolution",
            "rows from before and after a message changed: renamed, widened, dropped and new fields",
            "evolved",
            tuple(f"value.{name}" for name in ("renamed", "b", "f", "many", "gone", "more")),
            [[-1, "b", 0.5, [1], "gone", None], [1 << 40, "c", 1e300, [1 << 40], None, "more"]],
        )
    ]


async def _travel(rig: Rig) -> list[Question]:
    """Three commits, each a snapshot, in two partitions."""
    await rig.create_topic("travelled", partitions=2)
    committer = rig.committer("travelled")
    snapshots = []
    for number in range(3):
        for partition in (0, 1):
            await rig.produce([b"%d" % number], partition=partition, topic="travelled")
        await rig.drain(committer)
        snapshots.append((await rig.head("travelled")).metadata["current-snapshot-id"])
    paths = ("kafka.partition", "kafka.offset", "value.__raw__")
    rows: list[list[Any]] = [[part, at, str(at).encode().hex()] for part in (0, 1) for at in range(3)]
    return [
        Question("now", "all rows of two partitions", "travelled", paths, rows),
        Question(
            "time travel",
            "a snapshot that is not the newest",
            "travelled",
            paths,
            [row for row in rows if row[1] < 2],
            snapshot=snapshots[1],
        ),
        Question(
            "filter",
            "a condition on an offset, inside a struct",
            "travelled",
            paths,
            [row for row in rows if row[1] >= 2],
            where=("kafka.offset", 2),
        ),
    ]


async def _retention(rig: Rig) -> list[Question]:
    """A topic whose first rows are gone."""
    topic = await rig.create_topic("retained", partitions=1, floe__table__retention="follow")
    committer = rig.committer("retained")
    for number in range(3):
        await rig.produce([b"%d" % number] * 2, topic="retained")
        await rig.drain(committer)
    handle = topic.partitions[0].handle
    moved = await rig.replica.propose(MoveLogStart(partition=[handle], offset=[LOG_START]))
    assert isinstance(moved, Done)
    assert await committer.follow() == LOG_START
    paths = ("kafka.offset", "value.__raw__")
    return [
        Question(
            "retention",
            "what retention has left",
            "retained",
            paths,
            [[at, b"2".hex()] for at in (LOG_START, LOG_START + 1)],
        )
    ]


async def _version_3(rig: Rig) -> list[Question]:
    """A table of format version 3: a file that compaction made, with its rows' ids in it, and a newer one."""
    await rig.create_topic("v3", partitions=1, **{"floe__table__format-version": "3"})
    await rig.bind(samples.ZOO, "zoo.All", topic="v3", tombstones=True)
    options = CommitterOptions(files=FileSizes(merged_at=3, busy_percent_max=100))
    committer = Committer(replace(rig.parts, options=options), "v3")
    for value in (all_types.full(), b"", None):
        await rig.produce([value], topic="v3")
        await rig.drain(committer)
    assert await committer.compact()
    await rig.produce([all_types.full()], topic="v3")
    await rig.drain(committer)
    assert (await rig.head("v3")).metadata["format-version"] == 3
    return all_types.of_version_3("v3")
