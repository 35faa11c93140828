"""A stream over a table, as Spark's reader goes (Iceberg 1.12, SyncSparkMicroBatchPlanner, SnapshotUtil).

It knows a snapshot and how many of its files it has read, begins at the oldest known ancestor of the current
snapshot with the files that this one *added*, and goes on along the parents.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pyiceberg.manifest import ManifestEntryStatus

from iceberg import manifest_avro, manifests
from tests.unit.iceberg.rig import Rig


class Expired(Exception):
    """The snapshot at which the stream stands is not there, or not behind the current one: Spark ends it."""


class Refused(Exception):
    """The stream comes to a snapshot that overwrites: Spark ends it."""


@dataclass
class Stream:
    """One stream and its checkpoint. `read`: the files that it has read, in order."""

    rig: Rig
    at: tuple[int, int] | None = None
    read: list[str] = field(default_factory=list)

    async def go(self, metadata: dict[str, Any], files_max: int = 1 << 30) -> None:
        """Read what there is, `files_max` files at most."""
        known = {each["snapshot-id"]: each for each in metadata["snapshots"]}
        chain = _ancestors(known, metadata["current-snapshot-id"])
        if self.at is None:
            self.at = (chain[-1]["snapshot-id"], 0)
        number, place = self.at
        if number not in known:
            raise Expired(number)
        while True:
            if known[number]["summary"]["operation"] == "overwrite":
                raise Refused(number)
            files = await added(self.rig, known[number]) if _is_read(known[number]) else []
            taken = files[place : place + files_max]
            self.read += taken
            files_max -= len(taken)
            self.at = (number, place + len(taken))
            if not files_max or number == metadata["current-snapshot-id"]:
                return
            after = [each for each in chain if each.get("parent-snapshot-id") == number]
            if not after:
                raise Expired(number)
            number, place = after[0]["snapshot-id"], 0


def _is_read(snapshot: dict[str, Any]) -> bool:
    """As `shouldProcess`: what was written anew was read before. Rows that left end no stream here."""
    return snapshot["summary"]["operation"] != "replace"


def _ancestors(known: dict[int, dict[str, Any]], current: int) -> list[dict[str, Any]]:
    found = [known[current]]
    while (parent := found[-1].get("parent-snapshot-id")) in known:
        found.append(known[parent])
    return found


async def added(rig: Rig, snapshot: dict[str, Any]) -> list[str]:
    """The files that a snapshot added, in the order of its manifests; its summary says how many."""
    location, number = snapshot["manifest-list"], snapshot["snapshot-id"]
    found: list[str] = []
    for manifest in manifest_avro.read_list(location, await rig.store.get(rig.warehouse.key(location))):
        if manifest.added_snapshot_id != number:
            continue
        content = await rig.store.get(rig.warehouse.key(manifest.manifest_path))
        found += [
            entry.data_file.file_path
            for entry in manifests.entries(manifest, content)
            if entry.status is ManifestEntryStatus.ADDED and entry.snapshot_id == number
        ]
    if snapshot["summary"]["operation"] == "append":
        assert snapshot["summary"]["added-data-files"] == str(len(found))
    return found
