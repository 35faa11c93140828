"""Times and sequence numbers of commits, so that every engine can load the table afterwards. Pure.

Java's engines refuse at every load (Iceberg 1.12, TableMetadata's constructor) a snapshot whose sequence
number is above the table's last, and a log or a last update that goes back by more than a minute.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyiceberg.table import CommitTableRequest
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update import AddSnapshotUpdate, SetSnapshotRefUpdate, UpgradeFormatVersionUpdate

from iceberg.metadata import newest_ms
from iceberg.rest_errors import bad_request, commit_failed

BEHIND_MS_MAX = 60_000
"""How far a snapshot may be stamped before what the table has: Java's tolerance."""
AHEAD_MS_MAX = 3_600_000
"""How far ahead of the cluster's clock: nobody else could commit before that time has come. Stores refuse
whoever is a quarter of an hour off, so no clock that is right is that far from another."""
_LONG_MAX = (1 << 63) - 1


def require_loadable(request: CommitTableRequest, base: Mapping[str, Any] | None, now_ms: int) -> None:
    """Raises CatalogError: 409 for a snapshot that was made on an older table, so that it is made anew; 400
    for one of a wrong clock, or that no table can have.

    `now_ms`: the cluster's clock.
    """
    known: Mapping[str, Any] = base or {}
    version, last = int(known.get("format-version", 1)), int(known.get("last-sequence-number") or 0)
    for update in request.updates:
        match update:
            case UpgradeFormatVersionUpdate():
                version = max(version, update.format_version)
            case SetSnapshotRefUpdate(ref_name="main", type=kind) if kind != "branch":
                raise bad_request(f"Cannot set main to a {kind}, it must be a branch")
            case AddSnapshotUpdate():
                last = _next_sequence(update.snapshot, version, last)
                _require_clock(update.snapshot, base, now_ms)


def _next_sequence(given: Snapshot, version: int, last: int) -> int:
    """The table's last sequence number with the snapshot. One without a parent may have the last once more,
    as in the reference: two engines replaced a table at once."""
    title, number = f"snapshot {given.snapshot_id}", given.sequence_number
    if number is None or not 0 <= number <= _LONG_MAX or not 0 <= given.snapshot_id <= _LONG_MAX:
        raise bad_request(f"{title}, sequence-number {number}: no numbers of a snapshot")
    told = given.summary.additional_properties if given.summary is not None else {}
    if not all(isinstance(each, str) for each in told.values()):
        raise bad_request(f"{title}: its summary has values that are no strings")
    if version == 1:
        if number:
            raise bad_request(f"{title}: sequence-number {number} in a table of format version 1")
        return last
    if number < last or (number == last and given.parent_snapshot_id is not None):
        raise commit_failed(
            f"Requirement failed: the table is at sequence number {last}, {title} was made for {number}"
        )
    return number


def _require_clock(given: Snapshot, base: Mapping[str, Any] | None, now_ms: int) -> None:
    title, stamp = f"snapshot {given.snapshot_id} is stamped {given.timestamp_ms} ms", given.timestamp_ms
    if stamp > now_ms + AHEAD_MS_MAX:
        raise bad_request(
            f"{title}, {(stamp - now_ms) // 1000} s ahead of the cluster's clock: set the clock of the engine"
        )
    newest = newest_ms(base) if base is not None else 0
    if stamp < newest - BEHIND_MS_MAX:
        raise bad_request(
            f"{title}, {(newest - stamp) // 1000} s before the table's newest time: engines would not load "
            f"the table any more. Set the clock of the engine: the cluster's says {now_ms} ms; where the "
            f"table's is the wrong one ({newest} ms), wait until it has come"
        )


def stamped(
    content: dict[str, Any],
    request: CommitTableRequest,
    base: Mapping[str, Any] | None,
    location: str | None,
    now_ms: int,
) -> dict[str, Any]:
    """The metadata after a commit to `base` at `location`, with the catalog's times for pyiceberg's, which
    are the machine's. `now_ms`: the cluster's clock.

    Where an engine stamped its snapshots, those times count, but for a log, which never goes back.
    """
    former = content.get("metadata-log") or []
    if base is not None and (not former or former[-1]["metadata-file"] != location):
        return content  # nothing was changed
    floor = newest_ms(base) if base is not None else 0
    added = {
        each.snapshot.snapshot_id: each.snapshot.timestamp_ms
        for each in request.updates
        if isinstance(each, AddSnapshotUpdate)
    }
    log = _log(content, base, added, max(now_ms, floor))
    times = [*(added.values() or (now_ms,)), *(each["timestamp-ms"] for each in log[-1:]), floor]
    found = {**content, "last-updated-ms": max(times), "snapshot-log": log}
    if base is None:
        return found
    return {**found, "metadata-log": [*former[:-1], {**former[-1], "timestamp-ms": floor}]}


def _log(
    content: Mapping[str, Any], base: Mapping[str, Any] | None, added: Mapping[int, int], now_ms: int
) -> list[dict[str, Any]]:
    """The snapshot log. Its new entries: an added snapshot's own time; of a rollback, the cluster's."""
    known = {(each["snapshot-id"], each["timestamp-ms"]) for each in (base or {}).get("snapshot-log") or ()}
    log: list[dict[str, Any]] = []
    last = 0
    for each in content.get("snapshot-log") or ():
        entry = dict(each)
        number = entry["snapshot-id"]
        if (number, entry["timestamp-ms"]) not in known:
            entry["timestamp-ms"] = max(last, added.get(number, now_ms))
        last = entry["timestamp-ms"]
        log.append(entry)
    return log
