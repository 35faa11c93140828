"""Rules of tables' files broken: what is merged has the rows of what it was made of, and takes its place."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import replace
from typing import Any

from iceberg.compactor import Compactor, Merged
from iceberg.head import Head
from iceberg.manifests import Removed
from iceberg.small_files import LiveFile
from iceberg.snapshots import SnapshotBuilder
from tests.sim.controls import Control, patched
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
)
