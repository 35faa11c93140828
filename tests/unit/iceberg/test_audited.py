"""What audits found is told by any agent, from the snapshots of the catalog's table `audits.offsets`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog.rest import RestCatalog

from coordination.commands import DropTable
from coordination.state.types import Done
from iceberg import audited
from iceberg.audited import FINDINGS, FROM, OFFSETS, TOPIC_ID, Audits, Outcome, take
from iceberg.head import pointer
from tests.unit.iceberg import rig as rigs
from tests.unit.iceberg import serving
from tests.unit.iceberg.rig import Rig

ROWS = pa.table({"topic": pa.array(["t"])})


class Telling:
    """A rig whose table of audits is written as Spark writes it, and an agent that follows it."""

    def __init__(self, rig: Rig, url: str) -> None:
        self.rig = rig
        self.audits = Audits(rig.replica, rig.store, rig.warehouse)
        self._url = url

    async def audit(self, findings: int, offsets: str, topic: str = "t") -> None:
        """An audit is kept."""
        topic_id = self.rig.replica.state.topics[topic].topic_id.hex()
        await self.say({TOPIC_ID: topic_id, FINDINGS: str(findings), OFFSETS: offsets})

    async def say(self, summary: Mapping[str, str]) -> None:
        """A snapshot with this in its summary."""
        await asyncio.to_thread(self._append, summary)

    def _append(self, summary: Mapping[str, str]) -> None:
        catalog = RestCatalog("c", uri=self._url)
        catalog.create_namespace_if_not_exists(audited.TABLE[0])
        table = catalog.create_table_if_not_exists(audited.TABLE, ROWS.schema)
        table.append(ROWS, snapshot_properties=dict(summary))

    async def told(self, topic: str = "t") -> tuple[int, bool, int] | None:
        """(findings, whether any was equal, records behind) of the topic, at the next look."""
        await self.audits.look()
        found = self.audits.now.get(topic)
        return None if found is None else (found.findings, found.equal_ms > 0, found.behind)


@pytest.fixture
async def telling(tmp_path: Path) -> AsyncIterator[Telling]:
    async with rigs.running(tmp_path) as rig, serving.served(serving.catalog_of(rig)) as url:
        await rig.create_topic()
        await rig.produce([b"a", b"b", b"c"])
        yield Telling(rig, url)


async def test_an_audit_is_told_and_how_far_the_topic_went_on(telling: Telling) -> None:
    assert await telling.told() is None
    await telling.audit(0, "0:2,1:0")
    assert await telling.told() == (0, True, 1)
    await telling.rig.produce([b"d"], partition=1)
    assert await telling.told() == (0, True, 2)
    before = telling.audits.now["t"].equal_ms
    await telling.audit(0, "0:3,1:1")
    assert await telling.told() == (0, True, 0)
    assert telling.audits.now["t"].equal_ms > before


async def test_an_unequal_audit_is_told_and_moves_nothing_on(telling: Telling) -> None:
    await telling.audit(7, "0:3")
    assert await telling.told() == (7, False, 3)
    await telling.audit(0, "0:3")
    assert await telling.told() == (0, True, 0)
    equal_ms = telling.audits.now["t"].equal_ms
    await telling.rig.produce([b"d"])
    await telling.audit(2, "0:4")
    assert await telling.told() == (2, True, 1)
    assert telling.audits.now["t"].equal_ms == equal_ms


async def test_another_topic_of_the_name_was_never_audited(telling: Telling) -> None:
    await telling.audit(3, "0:3")
    await telling.rig.delete_topic()
    assert await telling.told() is None
    await telling.rig.create_topic()
    assert await telling.told() is None


async def test_what_cannot_be_read_is_tried_again_and_what_is_gone_is_forgotten(telling: Telling) -> None:
    await telling.audit(0, "0:3")
    await telling.told()
    await telling.audit(5, "0:3")
    rig = telling.rig
    key = rig.warehouse.key(pointer(rig.replica.state, audited.TABLE))
    content = bytes(await rig.store.get(key))
    await rig.store.delete([key])
    assert await telling.told() == (0, True, 0), "as it was before"
    await rig.store.put(key, [content])
    assert await telling.told() == (5, True, 0)
    dropped = await rig.replica.propose(DropTable(namespace="audits", name="offsets"))
    assert isinstance(dropped, Done)
    assert await telling.told() is None


HOSTILE: tuple[Mapping[str, object], ...] = (
    {},
    {TOPIC_ID: "zz", FINDINGS: "1"},
    {TOPIC_ID: "00", FINDINGS: "-1"},
    {TOPIC_ID: "00", FINDINGS: "²"},
    {TOPIC_ID: "00", FINDINGS: "9" * 5_000},
    {TOPIC_ID: 7, FINDINGS: 1},
)


@pytest.mark.parametrize("summary", HOSTILE)
def test_what_anybody_wrote_into_the_table_is_passed_over(summary: Mapping[str, object]) -> None:
    outcomes: dict[bytes, Outcome] = {}
    take(outcomes, {"timestamp-ms": 1, "summary": summary})
    take(outcomes, {"timestamp-ms": 1})
    assert outcomes == {}


def test_offsets_that_are_none_are_passed_over_and_topics_are_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(audited, "TOPICS_MAX", 2)
    outcomes: dict[bytes, Outcome] = {}
    for topic_id in ("00", "01", "00", "02"):
        summary = {TOPIC_ID: topic_id, FINDINGS: "0", OFFSETS: "0:1,x:2,3,4:-5,6:7"}
        take(outcomes, {"timestamp-ms": 9, "summary": summary})
    assert outcomes == {key: Outcome(0, 9, {0: 1, 6: 7}) for key in (b"\0", b"\2")}


def test_what_was_found_stays_until_an_audit_that_looked_at_it_finds_it_equal() -> None:
    """A weekly whole audit finds damage in an old row, and an increment ends behind it that began before."""
    outcomes: dict[bytes, Outcome] = {}

    def after(at_ms: int, findings: int, begun: str, ends: str) -> Outcome:
        summary = {TOPIC_ID: "00", FINDINGS: str(findings), FROM: begun, OFFSETS: ends}
        take(outcomes, {"timestamp-ms": at_ms, "summary": summary})
        return outcomes[b"\0"]

    assert after(1, 0, "0:0,1:0", "0:9,1:5") == Outcome(0, 1, {0: 9, 1: 5})
    whole = after(2, 4, "0:0,1:0", "0:9,1:5")
    assert (whole.findings, whole.equal_ms, whole.next_offsets) == (4, 1, {0: 9, 1: 5})
    assert after(3, 0, "0:9,1:5", "0:10,1:6") == whole, "what was found was not looked at"
    half = after(4, 0, "0:0", "0:11")
    assert (half.findings, half.equal_ms, half.unequal) == (4, 1, {1: 0})
    assert after(5, 0, "0:9,1:0", "0:12,1:7") == Outcome(0, 5, {0: 12, 1: 7})
    assert after(6, 1, "0:12,1:7", "0:13,1:8").findings == 1
    assert after(7, 0, "0:12,1:7", "0:14,1:8") == Outcome(0, 7, {0: 14, 1: 8})


def test_an_equal_audit_of_an_older_version_settles_all() -> None:
    """It does not tell from where on it compared."""
    outcomes: dict[bytes, Outcome] = {}
    for findings, more in (("2", {FROM: "0:0"}), ("0", {})):
        take(outcomes, {"timestamp-ms": 3, "summary": {TOPIC_ID: "00", FINDINGS: findings, **more}})
    assert outcomes == {b"\0": Outcome(0, 3, {})}
