"""Small files of a table → large ones, for its committer: which, when, and how each is made.

Which is decided by small_files.py, rows are copied by merging.py. What files the table has is read from its
manifests once and then followed, commit by commit: to read them all again for every few new files would cost
more than the files.
"""

from __future__ import annotations

import asyncio
import bisect
import json
import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from iceberg import ledger, lineage, manifests, metadata, sorting
from iceberg.evolution import OFFSET_ID, PARTITION_ID
from iceberg.head import Head
from iceberg.manifest_avro import manifest_first_row_id
from iceberg.manifests import AddedFile, added_file
from iceberg.merging import Expected, UnfitFile
from iceberg.options import Parts
from iceberg.sealed import Damaged, read, sealed
from iceberg.small_files import LiveFile, chosen, overlapping, within
from iceberg.steps import Steps
from iceberg.writer import Bounds, FileContent
from iceberg.writing import Merging, WriterDied
from objectstore.store import Buffer, NotFound

FILES_KNOWN_MAX = 200_000
"""Files of one table that are kept in mind; of a table with more, manifests are read each time."""
READ_FILES_MAX = 16
READ_BYTES_MAX = 32 << 20
"""Small files that are read at once: so many, or one and as many more as have so many bytes together."""
UNFIT_S = 3_600.0
"""For how long a file is left alone that could not be merged, seconds."""
UNFIT_MAX = 1_000
PROBLEMS_MAX = 3  # that are told

_logger = logging.getLogger("floe.iceberg.compactor")


Shelf = tuple[int, str]
"""A Kafka partition, and the table's own partition in it: its spec and values, as text."""


@dataclass(frozen=True, slots=True)
class Merged:
    """A file that was stored, and those of which it was made."""

    files: Sequence[LiveFile]
    made: AddedFile


@dataclass(frozen=True, slots=True)
class _Unfit:
    """Why some files are left alone, and until when by the monotonic clock."""

    reason: str
    until: float


class Compactor:
    """Of one table; its committer uses it, one task at a time."""

    def __init__(self, parts: Parts, steps: Steps) -> None:
        self._parts = parts
        self._sizes = parts.options.files
        self._steps = steps
        self._at = ""  # the metadata whose files these are; empty: not known
        self._files: dict[Shelf, list[LiveFile]] = {}  # in the order of offsets
        self._small: Counter[Shelf] = Counter()  # small files added since the last look,
        self._bytes: Counter[Shelf] = Counter()  # and their bytes
        self._waits: bool | None = None  # None: nobody has looked yet
        self._rests_until = 0.0
        self._aged_at = parts.clock.monotonic() + self._sizes.age_s  # when few are enough, too
        self._fresh = True  # small files may have come since few were
        self._next: Shelf = (0, "")  # where the next look begins
        self._unfit: dict[str, _Unfit] = {}  # by location

    def problems(self) -> list[str]:
        """Which files could not be merged, and why."""
        found = sorted({each.reason for each in self._unfit.values()})
        more = [f"{len(found) - PROBLEMS_MAX} more files stay small"] if len(found) > PROBLEMS_MAX else []
        return [*found[:PROBLEMS_MAX], *more]

    def waits(self, head: Head) -> bool:
        """Whether there may be something to do."""
        if self._fresh and self._parts.clock.monotonic() >= self._aged_at:
            return True
        if self._waits is not None:
            return self._waits
        current = ledger.current_snapshot(head.metadata)
        count = int(current["summary"].get("total-data-files", 0)) if current is not None else 0
        return count >= self._sizes.merged_at

    def due(self, head: Head) -> bool:
        """Whether it is time to look."""
        return self._parts.clock.monotonic() >= self._rests_until and self.waits(head)

    def forget(self) -> None:
        """Read from the manifests which files there are, next time."""
        self._at, self._files = "", {}

    def added(self, before: Head, after: Head, files: Sequence[AddedFile]) -> None:
        """A commit added files to the table `before`."""
        for each in _live(after, files):
            shelf = _shelf(each)
            if self._at == before.location:
                self._files.setdefault(shelf, []).append(each)
            if self._sizes.is_small(each.size):
                self._fresh = True
                self._small[shelf] += 1
                self._bytes[shelf] += each.size
                enough = self._small[shelf] >= self._sizes.merged_at
                if self._waits is False and (enough or not self._sizes.is_small(self._bytes[shelf])):
                    self._waits = True
        self._moved(before, after)

    def replaced(self, before: Head, after: Head, merged: Sequence[Merged]) -> None:
        """The table `before` has these files instead of those they were made of."""
        gone = {one.location for each in merged for one in each.files}
        made = _live(after, [each.made for each in merged])
        if self._at == before.location:
            for shelf in {_shelf(each.files[0]) for each in merged}:
                kept = [each for each in self._files[shelf] if each.location not in gone]
                for each in made:
                    if _shelf(each) == shelf:
                        bisect.insort(kept, each, key=_order)
                self._files[shelf] = kept
        self._moved(before, after)

    def _moved(self, before: Head, after: Head) -> None:
        known = self._at == before.location and _numbered(before) == _numbered(after)  # else all got ids
        if known and sum(map(len, self._files.values())) <= FILES_KNOWN_MAX:
            self._at = after.location
        else:
            self.forget()

    @contextmanager
    def paced(self) -> Iterator[None]:
        """What is done in here takes `busy_percent_max` of the time at most: after it there is a rest."""
        clock = self._parts.clock
        begun = clock.monotonic()
        try:
            yield
        finally:
            took = clock.monotonic() - begun
            self._rests_until = begun + took * 100 / self._sizes.busy_percent_max

    async def merges(self, head: Head) -> list[list[LiveFile]]:
        """What is to be done now, in the bounds of one turn. Raises StoreError."""
        if self._at != head.location:
            await self._read_files(head)
        self._heal()
        found: list[list[LiveFile]] = []
        over = False
        now = self._parts.clock.monotonic()
        aged = now >= self._aged_at
        for shelf in self._in_turn():
            own = self._files[shelf]
            apart = self._sizes.target_bytes  # what must not be touched is as good as large
            left = overlapping(own) | self._unfit.keys()
            own = [each._replace(size=apart) if each.location in left else each for each in own]
            found += chosen(own, self._sizes, aged=aged)
            found, over = within(found, self._sizes)
            if over:
                self._next = shelf
                break
            await asyncio.sleep(0)
        self._waits = bool(found)  # there may be more of the next size then
        if aged and not over:
            self._aged_at, self._fresh = now + self._sizes.age_s, bool(found)
        self._small.clear()
        self._bytes.clear()
        return found

    def _in_turn(self) -> list[Shelf]:
        """All of them, from the one on where the last look ended."""
        known = sorted(self._files)
        at = bisect.bisect_left(known, self._next)
        return [*known[at:], *known[:at]]

    def _heal(self) -> None:
        now = self._parts.clock.monotonic()
        left = [(name, each) for name, each in self._unfit.items() if each.until > now]
        self._unfit = dict(left[-UNFIT_MAX:])

    async def _read_files(self, head: Head) -> None:
        found: list[LiveFile] = []
        parts = self._parts
        for manifest in filter(manifests.live, head.manifests):
            path, length = manifest.manifest_path, manifest.manifest_length
            content = await read(parts.store, parts.warehouse, path, length)
            found += await asyncio.to_thread(manifests.live_files, manifest, content)
        self.forget()
        for each in await asyncio.to_thread(sorted, found, key=_order):
            self._files.setdefault(_shelf(each), []).append(each)
        self._at = head.location

    async def rewrite(self, head: Head, files: Sequence[LiveFile], name: str) -> Merged | None:
        """One file of these, stored and not yet visible; None when one of them is not what it should be.

        `name`: how it begins, below the table's location. Raises StoreError.
        """
        fields = json.dumps(metadata.current_fields(head.metadata))
        partition, first, last = files[0].partition, files[0].first, files[-1].last
        order = sorting.current(head.metadata)
        merging = self._parts.writer.merging(fields, partition, order, _numbered(head))
        try:
            made = await self._merged(merging, files)
        except (Damaged, NotFound, UnfitFile, WriterDied) as error:
            reason = f"partition {partition}, offsets {first} to {last}: files stay small: {error}"
            _logger.warning("%s: %s", head.metadata["location"], reason)
            until = self._parts.clock.monotonic() + UNFIT_S
            self._unfit |= {each.location: _Unfit(reason, until) for each in files}
            return None
        finally:
            await merging.drop()
        location = await sealed_name(head, name, partition, first, last + 1, made.parts)
        await self._steps.before("store-merged-file")
        await self._parts.store.put(self._parts.warehouse.key(location), made.parts)
        order_id = head.metadata["default-sort-order-id"]
        return Merged(files, added_file(location, made, files[0].group, order_id))

    async def _merged(self, merging: Merging, files: Sequence[LiveFile]) -> FileContent:
        """The rows of the files in one. Raises UnfitFile, WriterDied and StoreError."""
        for some in _together(files):
            await self._steps.before("read-small-files")
            contents = await asyncio.gather(*map(self._content, some))
            await self._steps.before("merge-files")
            for each, content in zip(some, contents, strict=True):
                told = Expected(each.location, each.rows, each.first, each.last, each.row_id, each.sequence)
                await merging.add(memoryview(content), told)
        made = await merging.finish()
        partition, first, last = files[0].partition, files[0].first, files[-1].last
        wanted = {PARTITION_ID: Bounds(partition, partition), OFFSET_ID: Bounds(first, last)}
        rows = sum(each.rows for each in files)
        if made.rows != rows or any(made.bounds[number] != bounds for number, bounds in wanted.items()):
            raise UnfitFile(f"{made.rows} rows with bounds {made.bounds} were made of {rows} rows")
        return made

    async def _content(self, file: LiveFile) -> bytes:
        return await read(self._parts.store, self._parts.warehouse, file.location, file.size)


async def sealed_name(
    head: Head, name: str, partition: int, start: int, end: int, parts: Sequence[Buffer]
) -> str:
    """Where a data file of these offsets (start ≤ offset < end) is; its name has its checksum (sealed.py)."""
    location = f"{head.metadata['location']}/{name}-{partition:05d}-{start:020d}-{end:020d}.parquet"
    return await asyncio.to_thread(sealed, location, *parts)


def _live(head: Head, files: Sequence[AddedFile]) -> list[LiveFile]:
    """Files that the current snapshot of `head` has added."""
    found = []
    for spec_id in sorted({each.group.spec_id for each in files}):
        some = [each for each in files if each.group.spec_id == spec_id]
        row_id, sequence = _numbers(head, spec_id, len(some))
        for file in some:
            offsets = file.bounds[OFFSET_ID]
            place = file.bounds[PARTITION_ID].lower, offsets.lower, offsets.upper
            live = LiveFile(*place, file.rows, file.size, file.location, file.group, row_id, sequence)
            found.append(live)
            row_id = None if row_id is None else row_id + file.rows
    return found


def _numbers(head: Head, spec_id: int, files: int) -> tuple[int | None, int | None]:
    """The id of the first row that the current snapshot of `head` has added under a partition spec, and by
    which commit its rows came; None and None where rows have no ids.
    """
    if not _numbered(head):
        return None, None
    current = head.metadata["current-snapshot-id"]
    (own,) = [
        each
        for each in head.manifests
        if (each.added_snapshot_id, each.partition_spec_id) == (current, spec_id)
        and each.added_files_count == files
    ]
    return manifest_first_row_id(own), own.min_sequence_number


def _numbered(head: Head) -> bool:
    """Whether the rows of the current snapshot have ids."""
    return lineage.end_of(ledger.current_snapshot(head.metadata)) is not None


def _order(file: LiveFile) -> tuple[int, int, int]:
    return file.partition, file.first, file.last


def _shelf(file: LiveFile) -> Shelf:
    """Where a file stands: only files of one place become one."""
    return file.partition, repr(file.group) if file.group.spec_id else ""


def _together(files: Sequence[LiveFile]) -> Iterator[list[LiveFile]]:
    """Files that are read at once, in their order."""
    some: list[LiveFile] = []
    for each in files:
        full = len(some) >= READ_FILES_MAX or sum(one.size for one in some) + each.size > READ_BYTES_MAX
        if some and full:
            yield some
            some = []
        some.append(each)
    if some:
        yield some
