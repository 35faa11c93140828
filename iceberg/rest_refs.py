"""Tags and branches of topics' tables: engines set and drop them; what they name stays (history.py)."""

from __future__ import annotations

from typing import Any

from pyiceberg.table import CommitTableRequest
from pyiceberg.table.update import RemoveSnapshotRefUpdate, SetSnapshotRefUpdate, TableUpdate

from iceberg import history
from iceberg.rest_errors import bad_request, forbidden, unavailable
from iceberg.segments import SegmentReader
from objectstore.store import StoreError

REFS_MAX = 100
"""Tags and branches of one table: each may keep a snapshot of its own in every metadata file, about 1 kB."""
NAME_MAX = 256
"""Characters of a tag's or branch's name."""
_LONG_MAX, _INT_MAX = (1 << 63) - 1, (1 << 31) - 1


def is_ref(update: TableUpdate) -> bool:
    """Whether an update sets or drops a tag or a branch other than `main`. Raises CatalogError 400."""
    if not isinstance(update, SetSnapshotRefUpdate | RemoveSnapshotRefUpdate) or update.ref_name == "main":
        return False
    if isinstance(update, SetSnapshotRefUpdate):
        _require_bounds(update)
    return True


def _require_bounds(update: SetSnapshotRefUpdate) -> None:
    if not 0 < len(update.ref_name) <= NAME_MAX:
        raise bad_request(f"ref-name has {len(update.ref_name)} characters: it may have 1 to {NAME_MAX}")
    for name, value, most in (
        ("max-ref-age-ms", update.max_ref_age_ms, _LONG_MAX),
        ("max-snapshot-age-ms", update.max_snapshot_age_ms, _LONG_MAX),
        ("min-snapshots-to-keep", update.min_snapshots_to_keep, _INT_MAX),
    ):
        if value is not None and not 0 < value <= most:
            raise bad_request(f"{name} of {update.ref_name!r} is {value}: it may be 1 to {most}")


def require_few(metadata: dict[str, Any]) -> None:
    """That a table has no more refs than it may. Raises CatalogError 403."""
    count = len(metadata["refs"])
    if count > REFS_MAX:
        raise forbidden(f"the table would have {count} tags and branches, {REFS_MAX} at most: drop some")


async def findable(
    segments: SegmentReader, base: dict[str, Any], request: CommitTableRequest
) -> dict[str, Any]:
    """A topic's table with those snapshots that the commit's refs shall name, of whatever age.

    Raises CatalogError 400 where one cannot be named, 503 where the history cannot be read.
    """
    for update in request.updates:
        if not isinstance(update, SetSnapshotRefUpdate):
            continue
        number = update.snapshot_id
        if number == history.of(base).base:
            raise bad_request(
                f"{update.ref_name!r} cannot name snapshot {number}: it is the table's first, into which "
                "older ones are folded, so it would not stay as it is. Name a later one"
            )
        if any(each["snapshot-id"] == number for each in base["snapshots"]):
            continue
        try:
            found = await segments.snapshots(base)
        except (StoreError, ValueError) as error:
            raise unavailable(f"the table's history cannot be read: {error}") from error
        for each in found:
            if each["snapshot-id"] == number:
                base = history.with_copy(base, each)
    return base
