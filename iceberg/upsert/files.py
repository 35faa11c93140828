"""What a turn reads and writes of data files: the append table's rows folded, its own files made anew."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from iceberg import manifests, metadata
from iceberg.compactor import sealed_name
from iceberg.evolution import KEY_RAW_ID
from iceberg.head import Head
from iceberg.manifests import AddedFile, added_file
from iceberg.merging import UnfitFile
from iceberg.metadata import Metadata
from iceberg.options import Parts
from iceberg.sealed import read
from iceberg.small_files import LiveFile
from iceberg.steps import Steps
from iceberg.upsert import folding
from iceberg.upsert.columns import Envelope
from iceberg.upsert.folding import Fold, Folded, keys_of
from iceberg.upsert.merging import KeyMerge
from iceberg.upsert.plan import KeyFile, Share, Take, groups, shares
from iceberg.writer import FileContent


@dataclass(slots=True)
class Changes:
    """What a turn does to the table: files that come, locations of those that go, and counts of rows.

    `read`, `keyless`, `unusable` as in folding.Folded.
    """

    files: list[AddedFile] = field(default_factory=list)
    gone: set[str] = field(default_factory=set)
    read: int = 0
    keyless: int = 0
    unusable: int = 0

    def count(self, folded: Folded) -> None:
        """Add the counts of one partition."""
        self.read += folded.read
        self.keyless += folded.keyless
        self.unusable += folded.unusable


@dataclass(frozen=True, slots=True)
class Work:
    """What one turn builds on: the append table's head, the latest table's metadata with the columns that it
    shall have, and where its files go (`name`, below the table's location).
    """

    source: Head
    base: Metadata
    envelope: Envelope | None
    name: str


class RunFiles:
    """Reads and writes for one latest table."""

    def __init__(self, parts: Parts, steps: Steps) -> None:
        self._parts = parts
        self._steps = steps

    async def of_source(self, head: Head) -> list[LiveFile]:
        """The append table's files. Raises StoreError."""
        found: list[LiveFile] = []
        for manifest in filter(manifests.live, head.manifests):
            content = await self._read(manifest.manifest_path, manifest.manifest_length)
            found += await asyncio.to_thread(manifests.live_files, manifest, content)
        return found

    async def of_table(self, head: Head) -> list[KeyFile]:
        """The latest table's own files. Raises StoreError, and UnfitFile for one that Floe did not write."""
        found: list[KeyFile] = []
        for manifest in filter(manifests.live, head.manifests):
            content = await self._read(manifest.manifest_path, manifest.manifest_length)
            for entry in await asyncio.to_thread(manifests.entries, manifest, content):
                file = entry.data_file
                extent, low = manifests.extent_of(file), (file.lower_bounds or {}).get(KEY_RAW_ID)
                if extent is None or low is None:
                    raise UnfitFile(f"{file.file_path} has no bounds of its partition and keys")
                size, rows = file.file_size_in_bytes, file.record_count
                found.append(KeyFile(extent.partition, low, rows, size, file.file_path))
        return found

    async def fold(self, work: Work, take: Take) -> Folded:
        """The newest rows of what one partition has to give. Raises UnfitFile, TooMuch and StoreError."""
        source = json.dumps(metadata.current_fields(work.source.metadata))
        target = json.dumps(metadata.current_fields(work.base))
        fold = Fold(source, target, work.envelope, folding.FOLDED_BYTES_MAX)
        for each in take.files:
            await self._steps.before("read-records")
            content = memoryview(await self._read(each.location, each.size))
            await self._steps.before("fold-rows")
            told = each.location, each.rows, take.partition, take.start, take.end
            await asyncio.to_thread(fold.add, content, *told)
        return await asyncio.to_thread(fold.done)

    async def merge(
        self, work: Work, take: Take, run: Sequence[KeyFile], rows: pa.Table, changes: Changes
    ) -> None:
        """Store what takes the place of files whose keys are touched. Raises UnfitFile and StoreError."""
        target = self._parts.options.latest_file_bytes
        keys = keys_of(rows)
        touched = await asyncio.to_thread(shares, run, len(rows), lambda at: keys[at].as_py())
        for group in groups(run, touched, target):
            await self._rewrite(
                work, take, [(run[each.file] if run else None, each) for each in group], rows, changes
            )

    async def _rewrite(
        self,
        work: Work,
        take: Take,
        group: Sequence[tuple[KeyFile | None, Share]],
        rows: pa.Table,
        changes: Changes,
    ) -> None:
        """One stretch of neighbours anew; as it is where none of their rows changed."""
        own = [file for file, _ in group if file is not None]
        weight, count = sum(each.size for each in own), sum(each.rows for each in own)
        per_row = weight // count if count else take.bytes_per_row
        fields = json.dumps(metadata.current_fields(work.base))
        merge = KeyMerge(fields, take.partition, self._parts.options.latest_file_bytes, per_row)
        made: list[AddedFile] = []
        for file, share in group:
            new = rows.slice(share.first, share.end - share.first)
            if file is None:
                await self._steps.before("merge-rows")
                steps = merge.begin(new)
            else:
                await self._steps.before("read-file")
                content = memoryview(await self._read(file.location, file.size))
                await self._steps.before("merge-rows")
                steps = merge.merge(content, file, new)
            made += await self._stored(work, take, steps)
        made += await self._stored(work, take, merge.rest())
        if merge.changed:
            changes.files += made
            changes.gone |= {each.location for each in own}

    async def _stored(self, work: Work, take: Take, steps: Iterator[FileContent]) -> list[AddedFile]:
        found = []
        while (made := await asyncio.to_thread(next, steps, None)) is not None:
            head = Head("", work.base, ())
            location = await sealed_name(head, work.name, take.partition, take.start, take.end, made.parts)
            await self._steps.before("store-file")
            await self._parts.store.put(self._parts.warehouse.key(location), made.parts)
            found.append(added_file(location, made))
        return found

    async def _read(self, location: str, length: int) -> bytes:
        return await read(self._parts.store, self._parts.warehouse, location, length)
