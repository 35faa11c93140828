"""Which ids the rows of a v3 table have, read by the specification alone: Avro as it stands in the files, and
nothing of Floe's own reading of it (iceberg/manifest_avro.py).
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any, NamedTuple

import pyarrow.parquet as pq
from pyiceberg.avro.file import AvroFile
from pyiceberg.typedef import Record

from iceberg.manifest_avro import Input
from tests.unit.iceberg.rig import Rig
from tests.unit.iceberg.test_tables_history import served

Place = tuple[int, int]
EXISTING, DELETED = 0, 2


class Ids(NamedTuple):
    """Of a row: `_row_id` and `_last_updated_sequence_number`."""

    row_id: int | None
    sequence: int | None


async def of_snapshot(rig: Rig, snapshot: Mapping[str, Any]) -> dict[Place, Ids]:
    """By partition and offset the ids of all rows of a snapshot, each of which is there once."""
    found: dict[Place, Ids] = {}
    for manifest in await records(rig, snapshot["manifest-list"]):
        number, given = manifest.get("first_row_id"), manifest["sequence_number"]
        doubtful = False
        for entry in await records(rig, manifest["manifest_path"]):
            file = entry["data_file"]
            if entry["status"] == DELETED:
                doubtful |= file.get("first_row_id") is None
                continue
            first, sequence = file.get("first_row_id"), entry["sequence_number"]
            assert sequence is not None or entry["status"] != EXISTING
            if number is None:
                first = None
            elif first is None:
                assert not doubtful, "readers differ in whether a removed file before it counts"
                first, number = number, number + file["record_count"]
            rows = await of_file(rig, file["file_path"], first, given if sequence is None else sequence)
            assert not rows.keys() & found.keys(), "a row is in two files"
            found |= rows
    return found


async def of_file(rig: Rig, location: str, first: int | None, sequence: int) -> dict[Place, Ids]:
    """The ids of the rows of a file whose first row has id `first`, if it does not say otherwise."""
    content = await rig.store.get(rig.warehouse.key(location))
    found = {}
    for at, row in enumerate(pq.read_table(io.BytesIO(content)).to_pylist()):
        place = row["kafka"]["partition"], row["kafka"]["offset"]
        own, came = row.get("_row_id"), row.get("_last_updated_sequence_number")
        if first is None:
            found[place] = Ids(None, None)
        else:
            found[place] = Ids(first + at if own is None else own, sequence if came is None else came)
    return found


async def records(rig: Rig, location: str) -> list[dict[str, Any]]:
    """The records of an Avro file by name, with all that is in them."""
    content = await rig.store.get(rig.warehouse.key(location))
    with AvroFile[Record](Input(location, content)) as reader:
        return [_named(each, reader.schema.as_struct()) for each in reader]


def _named(record: Any, struct: Any) -> dict[str, Any]:
    return {
        each.name: _named(record[at], each.field_type) if each.name == "data_file" else record[at]
        for at, each in enumerate(struct.fields)
    }


class Witness:
    """Looks at a table again and again, and remembers which ids its rows had."""

    def __init__(self) -> None:
        self.ids: dict[Place, Ids] = {}
        self.next = 0

    async def look(self, rig: Rig, *, upgraded: bool = False) -> dict[str, Any]:
        """All that the specification wants of ids, of every snapshot that is kept. `upgraded`: those from
        before, and a base that has rows of such, may have none.

        Returns the metadata as engines get it.
        """
        found = await served(rig)
        assert found["format-version"] == 3
        assert found["next-row-id"] >= self.next, "ids are never given twice"
        self.next = found["next-row-id"]
        current = found["current-snapshot-id"]
        of = {each["snapshot-id"]: each for each in found["snapshots"]}
        self._remember(await of_snapshot(rig, of[current]), of[current])
        for each in found["snapshots"]:
            await self._agrees(rig, each, upgraded)
        for after in found["snapshots"]:
            if "parent-snapshot-id" not in after:
                assert after.get("first-row-id", 0) == 0, "the first one's ids begin at the first"
            before = of.get(after.get("parent-snapshot-id"), {})
            if "first-row-id" in before:
                assert after["first-row-id"] == before["first-row-id"] + before["added-rows"]
        assert of[current]["first-row-id"] + of[current]["added-rows"] == self.next
        return found

    def _remember(self, rows: Mapping[Place, Ids], snapshot: Mapping[str, Any]) -> None:
        for place, ids in rows.items():
            assert ids.row_id is not None
            assert 0 <= ids.row_id < snapshot["first-row-id"] + snapshot["added-rows"]
            known = self.ids.setdefault(place, ids)
            assert known == ids, f"row {place} had {known}, now it has {ids}"
        numbers = [each.row_id for each in self.ids.values()]
        assert len(numbers) == len(set(numbers)), "two rows have one id, of all that ever were"

    async def _agrees(self, rig: Rig, snapshot: Mapping[str, Any], upgraded: bool) -> None:
        rows = await of_snapshot(rig, snapshot)
        if "first-row-id" not in snapshot:
            assert upgraded
            assert set(rows.values()) <= {Ids(None, None)}
            return
        end = snapshot["first-row-id"] + snapshot["added-rows"]
        for place, ids in rows.items():
            assert ids.row_id is not None
            assert ids.row_id < end
            assert self.ids.setdefault(place, ids) == ids, f"snapshot {snapshot['snapshot-id']}, row {place}"
