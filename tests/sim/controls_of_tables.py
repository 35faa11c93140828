"""Rules of tables' files broken: what is merged has the rows of what it was made of, and takes its place."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from coordination.state.data import FEATURE_LEVEL_MAX
from iceberg.compactor import Compactor, Merged
from iceberg.head import Head
from iceberg.manifests import Removed
from iceberg.small_files import LiveFile
from iceberg.snapshots import SnapshotBuilder
from iceberg.upsert import folding
from iceberg.upsert.merging import KeyMerge
from iceberg.upsert.plan import KeyFile
from iceberg.writer import FileContent
from tests.sim.controls import Control
from tests.sim.patching import patched
from tests.sim.plan import Plan


def _merge_loses_rows() -> tuple[tuple[Any, str, Any], ...]:
    """The first of the files is left out of the one that is made, which says that it has all rows."""
    real = Compactor.rewrite

    async def rewrite(self: Compactor, head: Head, files: Sequence[LiveFile], name: str) -> Merged | None:
        found = await real(self, head, files[1:], name)
        rows = sum(each.rows for each in files)
        return found and Merged(files, replace(found.made, rows=rows))

    return ((Compactor, "rewrite", rewrite),)


def _merged_files_stay() -> tuple[tuple[Any, str, Any], ...]:
    """The first of the files stays beside the one that has its rows, and is told as removed."""
    real = SnapshotBuilder._without

    async def without(
        self: SnapshotBuilder, schema: Any, before: Any, gone: Set[str], *rest: Any
    ) -> tuple[Any, Any, Removed]:
        _, _, removed = await real(self, schema, before, gone, *rest)
        kept = min(gone)
        rewritten, listed, _ = await real(self, schema, before, gone - {kept}, *rest)
        return rewritten, listed, removed

    return ((SnapshotBuilder, "_without", without),)


def _older_row_wins() -> tuple[tuple[Any, str, Any], ...]:
    """Of the rows of a key that one turn reads, the oldest is taken."""

    def oldest(rows: pa.Table) -> pa.Table:
        found: dict[bytes, int] = {}
        offsets = [each["offset"] for each in rows.column("kafka").to_pylist()]
        keys = folding.keys_of(rows).to_pylist()
        for at in sorted(range(len(keys)), key=lambda at: offsets[at]):
            found.setdefault(keys[at], at)
        return rows.take(pa.array([found[key] for key in sorted(found)], pa.int64())).combine_chunks()

    return ((folding, "newest", oldest),)


def _forgets_deletes() -> tuple[tuple[Any, str, Any], ...]:
    """A tombstone takes no row away."""
    real = KeyMerge.merge

    def merge(self: KeyMerge, content: memoryview, file: KeyFile, new: pa.Table) -> Iterator[FileContent]:
        return real(self, content, file, new.filter(pc.invert(new.column(folding.GONE))))

    return ((KeyMerge, "merge", merge),)


def _upserts(plan: Plan) -> Plan:
    """A compacted topic that has such a table, and clients of it."""
    return replace(plan, keepers=True, upsert=True)


def _newest_level(plan: Plan) -> bool:
    return plan.level == FEATURE_LEVEL_MAX


def _merges(plan: Plan) -> bool:
    return plan.merges_files


TABLES = (
    Control(
        "merge-loses-rows",
        "tables: a file that was merged has the rows of those it was made of",
        frozenset({"table-differs"}),
        lambda: patched(*_merge_loses_rows()),
        _merges,
    ),
    Control(
        "merged-files-stay",
        "tables: a file that was merged takes the place of those it was made of",
        frozenset({"table-doubled"}),
        lambda: patched(*_merged_files_stay()),
        _merges,
    ),
    Control(
        "older-row-wins",
        "tables: the newest row of each key is that of its greatest offset",
        frozenset({"latest-differs"}),
        lambda: patched(*_older_row_wins()),
        _newest_level,
        _upserts,
    ),
    Control(
        "deletes-are-forgotten",
        "tables: a tombstone takes its key's newest row away",
        frozenset({"latest-differs"}),
        lambda: patched(*_forgets_deletes()),
        _newest_level,
        _upserts,
    ),
)
