"""Days of a table's history with virtual stamps: what stays, and what each commit writes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from iceberg import history, metadata
from iceberg.history import Policy
from iceberg.metadata import Metadata
from iceberg.segments import HistoryKeeper, SegmentReader
from iceberg.steps import Steps
from iceberg.warehouse import Warehouse
from objectstore.open import open_store
from objectstore.store import ObjectStore

EVERY_MS = 5_000
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
PARTITIONS = 16
BEGIN_MS = 1_700_000_000_000


class Counted(HistoryKeeper):
    """A keeper whose bases have no files: of them the tests of whole tables tell."""

    async def _listed(self, snapshot: object) -> list[Any]:
        return []

    async def _base(self, metadata: Metadata, last: Any, number: int, *others: object) -> dict[str, Any]:
        summary = {"operation": "append", "added-data-files": "0"}
        return {**last, "snapshot-id": number, "summary": summary} | {"manifest-list": "file:///t/metadata/b"}


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    """A folder."""
    return open_store(f"file://{tmp_path}")


class Table:
    """Commits as the committer makes them, of a table without files."""

    def __init__(self, store: ObjectStore, folder: Path) -> None:
        self.store = store
        self.warehouse = Warehouse(f"file://{folder}")
        location = f"file://{folder}/tables/floe/t-0123456789ab"
        self.now_ms = BEGIN_MS
        self.metadata = metadata.new_table("u", location, [], 1, {}, self.now_ms)
        self.keeper = Counted(store, self.warehouse, Steps(), 32, lambda: 1 << 61)
        self.count = 0
        self.numbers: list[int] = []

    async def commit(self, policy: Policy, clock_ms: int | None = None) -> None:
        """One commit of a record per partition, EVERY_MS after the one before."""
        self.count += 1
        self.now_ms += EVERY_MS
        number = self.count * 1_234_567_890_123_457 % (1 << 62)  # of as many digits as random ones
        self.numbers.append(number)
        parent = self.metadata["current-snapshot-id"]
        snapshot = {
            "snapshot-id": number,
            **({} if parent == -1 else {"parent-snapshot-id": parent}),
            "sequence-number": self.count,
            "timestamp-ms": self.now_ms,
            "manifest-list": f"{self.metadata['location']}/metadata/{number:016x}-snap.x{number:016x}.avro",
            "schema-id": self.metadata["current-schema-id"],
            "summary": self._summary(),
        }
        before = self.metadata
        found = metadata.with_snapshot(before, snapshot)
        found = await self.keeper.kept(found, policy, self.now_ms if clock_ms is None else clock_ms)
        self.metadata = metadata.following(
            found,
            f"{before['location']}/{number:060x}.metadata.json",
            before,
            self.now_ms,
            metadata.Retention(),
        )

    def _summary(self) -> dict[str, str]:
        ranges = ",".join(f"{each}:{self.count}000-{self.count}999" for each in range(PARTITIONS))
        offsets = ",".join([f"{self.count}999"] * PARTITIONS)
        return {
            "operation": "append",
            "added-data-files": str(PARTITIONS),
            "added-records": "16000",
            "added-files-size": "1600000",
            "total-data-files": str(self.count * PARTITIONS),
            "total-records": str(self.count * 16000),
            "total-files-size": str(self.count * 1600000),
            "total-delete-files": "0",
            "floe.topic-id": "0" * 32,
            "floe.next-offsets": offsets,
            "floe.ranges": ranges,
            "floe.committer": "0123456789abcdef/123456",
        }

    async def whole(self) -> list[dict[str, Any]]:
        """The snapshots that engines see, oldest first."""
        reader = SegmentReader(self.store, self.warehouse)
        base, *newest = sorted(self.metadata["snapshots"], key=lambda each: each["sequence-number"])
        return [base, *await reader.snapshots(self.metadata), *newest]


async def test_a_day_of_commits_every_five_seconds_stays(store: ObjectStore, tmp_path: Path) -> None:
    """And each commit writes less than 64 kB of metadata, at 17,280 snapshots as at 100."""
    table, policy, largest, kept = Table(store, tmp_path), Policy(DAY_MS, 1, 20_000), 0, 0
    for number in range(22_000):
        await table.commit(policy)
        if number % 97 == 0:
            largest = max(largest, len(metadata.encode(table.metadata)))
    assert 10_000 < largest < 64 << 10
    base, *chain = await table.whole()
    kept = len(chain)
    assert chain[0]["timestamp-ms"] <= table.now_ms - DAY_MS
    assert 17_280 <= kept <= 17_280 + 2_000
    assert [each["sequence-number"] for each in chain] == list(range(table.count - kept + 1, table.count + 1))
    assert base["sequence-number"] == table.count - kept
    assert len(history.of(table.metadata).segments) < 40


async def test_a_clock_that_is_behind_lets_nothing_go(store: ObjectStore, tmp_path: Path) -> None:
    """What is too old is judged by the time that is agreed on, not by the stamps of a committer."""
    table, policy = Table(store, tmp_path), Policy(HOUR_MS, 1, 20_000)
    for _ in range(1_000):
        await table.commit(policy, clock_ms=BEGIN_MS)
    assert len(await table.whole()) == 1_000
    await table.commit(policy)
    assert len(await table.whole()) < 1_000


async def test_no_more_snapshots_than_are_allowed(store: ObjectStore, tmp_path: Path) -> None:
    table, policy = Table(store, tmp_path), Policy(DAY_MS, 1, 1_000)
    for _ in range(3_000):
        await table.commit(policy)
        assert history.of(table.metadata).count + len(table.metadata["snapshots"]) <= 1_000 + history.FOLD_MIN
    assert len(await table.whole()) > 500


async def test_the_newest_stay_however_old(store: ObjectStore, tmp_path: Path) -> None:
    table = Table(store, tmp_path)
    for _ in range(2_000):
        await table.commit(Policy(0, 700, 20_000))
    assert 700 <= len(await table.whole()) < 2_000


async def test_a_tag_keeps_its_snapshot_until_its_own_time_is_over(
    store: ObjectStore, tmp_path: Path
) -> None:
    table, policy = Table(store, tmp_path), Policy(0, 1, 20_000)
    for _ in range(20):
        await table.commit(policy)
    named = table.metadata["current-snapshot-id"]
    tags = {
        "month": {"snapshot-id": named, "type": "tag"},
        "hour": {"snapshot-id": named, "type": "tag", "max-ref-age-ms": HOUR_MS},
    }
    table.metadata = {**table.metadata, "refs": {**table.metadata["refs"], **tags}}
    for _ in range(100):
        await table.commit(Policy(DAY_MS, 1, 20_000))
    found = await SegmentReader(store, table.warehouse).plain(table.metadata)
    assert [each["snapshot-id"] for each in found["snapshot-log"]] == table.numbers
    for _ in range(1_000):
        await table.commit(policy)
    assert set(table.metadata["refs"]) == {"main", "month"}
    assert named in [each["snapshot-id"] for each in table.metadata["snapshots"]]
    stamps = [each["timestamp-ms"] for each in table.metadata["snapshot-log"]]
    assert stamps == sorted(stamps), "Iceberg refuses metadata whose log is not in order"


async def test_a_tag_of_what_an_earlier_version_moved(store: ObjectStore, tmp_path: Path) -> None:
    """Its history does not say up to where snapshots were moved."""
    table, policy = Table(store, tmp_path), Policy(DAY_MS, 1, 20_000)
    for _ in range(100):
        await table.commit(policy)
    kept = history.of(table.metadata)
    reader = SegmentReader(store, table.warehouse)
    named = (await reader.snapshots(table.metadata))[7]
    older = history.with_history(table.metadata, replace(kept, through=0))
    found = history.with_copy(older, named)
    tag = {"snapshot-id": named["snapshot-id"], "type": "tag"}
    table.metadata = {**found, "refs": {**found["refs"], "a": tag}}
    assert history.of(table.metadata).through == kept.through
    shown = (await reader.plain(table.metadata))["snapshots"]
    assert [each["snapshot-id"] for each in shown] == table.numbers
    for _ in range(100):
        await table.commit(policy)
    shown = (await reader.plain(table.metadata))["snapshots"]
    assert [each["snapshot-id"] for each in shown] == table.numbers
