"""Data files of one commit are made side by side, so many at a time, and come in the order of the plan."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from iceberg import manifests
from iceberg.committer import Committer
from iceberg.steps import Steps
from iceberg.writer import FileContent
from iceberg.writing import ThreadWriter
from objectstore.store import StoreError
from tests.unit.iceberg import rig as rigs
from tests.unit.iceberg.rig import Rig

PARTITIONS = 7
AT_ONCE = 3


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    """A cluster of one agent, with a record in each partition of a topic."""
    async with rigs.running(tmp_path) as found:
        found.options = replace(found.options, files_in_flight_max=AT_ONCE)
        await found.create_topic(partitions=PARTITIONS)
        for number in range(PARTITIONS):
            await found.produce([b"%d" % number], partition=number)
        yield found


class Gate(ThreadWriter):
    """A file is written once as many others are being made; the later of those first."""

    def __init__(self) -> None:
        self.inside = self.most = 0
        self._full = asyncio.Event()

    async def write(self, *arguments: Any) -> list[FileContent]:
        """See FileWriter."""
        self.inside += 1
        self.most = max(self.most, self.inside)
        if self.inside == AT_ONCE:
            self._full.set()
        await self._full.wait()
        for _ in range(100 * (PARTITIONS - arguments[1])):  # as many would come in as are let
            await asyncio.sleep(0)
        found = await super().write(*arguments)
        self.inside -= 1
        return found


async def test_so_many_files_are_made_at_once_and_none_more(rig: Rig) -> None:
    gate = Gate()
    committer = Committer(replace(rig.parts, writer=gate), "t")
    assert await rig.drain(committer) == PARTITIONS
    assert gate.most == AT_ONCE
    await rig.assert_table_is_topic({number: [b"%d" % number] for number in range(PARTITIONS)})
    (manifest,) = (await rig.head()).manifests
    content = await rig.store.get(rig.warehouse.key(manifest.manifest_path))
    assert [each.partition for each in manifests.live_files(manifest, content)] == [*range(PARTITIONS)]


class Fails(Steps):
    """The store fails at one file; the others are counted."""

    def __init__(self) -> None:
        self.seen: Counter[str] = Counter()

    async def before(self, step: str) -> None:
        await super().before(step)
        self.seen[step] += 1
        if (step, self.seen[step]) == ("store-file", 2):
            raise StoreError("the store is away")


async def test_one_that_fails_ends_the_commit_and_nothing_is_under_way_then(rig: Rig) -> None:
    steps = Fails()
    committer = rig.committer(steps=steps)
    with pytest.raises(StoreError, match="the store is away"):
        await committer.run_once()
    known = dict(steps.seen)
    assert known["read-records"] <= 2 * AT_ONCE < PARTITIONS, "no more were begun"
    for _ in range(1000):
        await asyncio.sleep(0)
    assert steps.seen == known
    assert await rig.drain(committer) == PARTITIONS
    await rig.assert_table_is_topic({number: [b"%d" % number] for number in range(PARTITIONS)})
