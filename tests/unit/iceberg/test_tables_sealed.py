"""What is read to be built upon is verified: a byte that one read got wrong never gets into a table."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import TABLE_METADATA_FILE_NAME_REGEX
from pyiceberg.manifest import ManifestFile

from coordination.commands import MoveLogStart
from iceberg import maintenance, manifests
from iceberg.committer import CommitterOptions
from iceberg.manifest_avro import READ
from iceberg.sealed import READS_MAX, Damaged, read, sealed
from iceberg.steps import Steps
from iceberg.warehouse import Warehouse
from objectstore.adapters.memory import MemoryStore
from objectstore.store import ObjectStore
from tests.unit.iceberg import rig as rigs
from tests.unit.iceberg.rig import Rig

WAREHOUSE = Warehouse("memory:")
METADATA, LIST, MANIFEST = ".metadata.json", "-snap.", "-m"
OLDER = f"memory:/t/data/1.x{hashlib.blake2b(b'rowsmore', digest_size=8).hexdigest()}.parquet"
"""As data files were named until November 2026."""


class Damaging:
    """A store that flips one byte of the next `times` reads of a key that holds `part`."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._part, self._times = "", 0
        self.hits = 0

    def damage(self, part: str, times: int = 1) -> None:
        self._part, self._times, self.hits = part, times, 0

    async def get(self, key: str) -> bytes:
        content = bytearray(await self._store.get(key))
        if self._part in key and self.hits < self._times:
            self.hits += 1
            content[len(content) // 2] ^= 0x20
        return bytes(content)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    """A cluster of one agent whose store can be told to damage reads; manifests are merged early."""
    async with rigs.running(tmp_path) as found:
        found.store = Damaging(found.store)
        found.options = CommitterOptions(manifests_merged_at=3)
        yield found


async def filled(rig: Rig, commits: int = 2, **configs: str) -> None:
    """Some commits, each by a committer that remembers nothing."""
    await rig.create_topic(**configs)
    await more(rig, commits)


async def more(rig: Rig, commits: int = 1) -> None:
    for number in range(commits):
        await rig.produce([b"%d" % number, b"x"])
        await rig.drain(rig.committer())


@pytest.mark.parametrize("part", [METADATA, LIST, MANIFEST])
async def test_a_byte_that_one_read_got_wrong_is_read_again(rig: Rig, part: str) -> None:
    await filled(rig, 3)
    rig.store.damage(part)
    await more(rig)  # the fourth commit reads the metadata, the list, and the manifests that it merges
    assert rig.store.hits == 1
    rig.store.damage(part, 0)
    await rig.assert_table_is_topic_rows(8)


@pytest.mark.parametrize("part", [METADATA, LIST, MANIFEST])
async def test_what_stays_damaged_stops_the_commit_and_is_not_copied(rig: Rig, part: str) -> None:
    await filled(rig, 3)
    before = await rig.head()
    rig.store.damage(part, READS_MAX)
    await rig.produce([b"late"])
    with pytest.raises(Damaged, match="restore"):
        await rig.drain(rig.committer())
    assert (await rig.head()).location == before.location
    await rig.drain(rig.committer())
    await rig.assert_table_is_topic_rows(7)


@pytest.mark.parametrize("part", [LIST, MANIFEST])
async def test_no_live_file_is_taken_for_an_orphan(rig: Rig, part: str) -> None:
    await filled(rig)
    head, late_ms = await rig.head(), rig.parts.clock.now_ms() + 1000
    rig.store.damage(part)
    assert await maintenance.collect(rig.store, rig.warehouse, head, late_ms, 0, Steps()) == 0
    assert rig.store.hits == 1
    rig.store.damage(part, READS_MAX)
    with pytest.raises(Damaged):
        await maintenance.collect(rig.store, rig.warehouse, head, late_ms, 0, Steps())
    await rig.assert_table_is_topic_rows(4)


async def test_files_that_go_with_the_log_start_are_chosen_by_what_was_written(rig: Rig) -> None:
    await filled(rig, floe__table__retention="follow")
    committer = rig.committer()
    await rig.produce([b"a"])
    await rig.drain(committer)
    handle = rig.replica.state.topics["t"].partitions[0].handle
    await rig.replica.propose(MoveLogStart(partition=[handle], offset=[3]))
    rig.store.damage(MANIFEST)
    assert await committer.follow() == 2
    assert rig.store.hits == 1


async def test_names_without_a_checksum_are_believed_when_two_reads_agree() -> None:
    store = Damaging(MemoryStore())
    location = "memory:/t/metadata/00001-of-another-engine.metadata.json"
    await store.put(WAREHOUSE.key(location), [b'{"format-version": 2}'])
    store.damage("of-another")
    assert await read(store, WAREHOUSE, location) == b'{"format-version": 2}'
    assert store.hits == 1
    with pytest.raises(Damaged, match="21 bytes, its manifest list says 20"):
        await read(store, WAREHOUSE, location, 20)


async def test_a_manifest_of_another_engine_has_the_length_that_its_list_says() -> None:
    store = MemoryStore()
    location = "memory:/t/metadata/of-another-engine-m0.avro"
    await store.put(WAREHOUSE.key(location), [b"0123456789"])
    assert await read(store, WAREHOUSE, location, 10) == b"0123456789"
    with pytest.raises(Damaged, match="10 bytes, its manifest list says 11"):
        await read(store, WAREHOUSE, location, 11)


def test_the_checksum_stands_before_the_ending_that_engines_look_at() -> None:
    json = sealed("s3://b/t/metadata/00007-f81d4fae-7dec-11d0-a765-00a0c91e6bf6.metadata.json", b"{}")
    avro = sealed("s3://b/t/metadata/17-m0.avro", b"{}")
    (digest,) = {
        json.split(".x")[1].removesuffix(".metadata.json"),
        avro.split(".x")[1].removesuffix(".avro"),
    }
    assert len(bytes.fromhex(digest)) == 8
    assert TABLE_METADATA_FILE_NAME_REGEX.fullmatch(json.rsplit("/", 1)[-1])


@pytest.mark.parametrize("name", [sealed("memory:/t/data/1.parquet", b"rows", b"more"), OLDER])
async def test_every_flipped_bit_of_a_data_file_is_seen(name: str) -> None:
    """By the two CRCs that names of data files have, and by the digest that they had before."""
    store, content = MemoryStore(), b"rowsmore"
    await store.put(WAREHOUSE.key(name), [content])
    assert await read(store, WAREHOUSE, name, len(content)) == content
    for bit in range(8 * len(content)):
        damaged = bytearray(content)
        damaged[bit // 8] ^= 1 << bit % 8
        await store.put(WAREHOUSE.key(name), [damaged])
        with pytest.raises(Damaged, match="do not have the checksum in its name"):
            await read(store, WAREHOUSE, name, len(content))


def test_the_name_of_a_data_file_holds_both_crcs_whole() -> None:
    """The check value of each: that of the digits 1 to 9, in however many parts."""
    for parts in ((b"123456789",), (b"1234", b"5678", b"9")):
        assert sealed("memory:/t/data/1.parquet", *parts) == "memory:/t/data/1.ce3069283cbf43926.parquet"


async def test_a_list_and_a_manifest_that_disagree_are_not_built_upon(rig: Rig) -> None:
    """A whole manifest in another one's place: right length and no checksum cannot hide that."""
    await filled(rig)
    head = await rig.head()
    manifest = head.manifests[0]
    content = await rig.store.get(rig.warehouse.key(manifest.manifest_path))
    told = ManifestFile.from_args(
        _table_format_version=READ,
        manifest_path=manifest.manifest_path,
        manifest_length=manifest.manifest_length,
        partition_spec_id=0,
        content=manifest.content,
        sequence_number=manifest.sequence_number,
        min_sequence_number=manifest.min_sequence_number,
        added_snapshot_id=manifest.added_snapshot_id,
        added_files_count=2,
        existing_files_count=0,
        deleted_files_count=0,
        added_rows_count=4,
        existing_rows_count=0,
        deleted_rows_count=0,
    )
    with pytest.raises(Damaged, match="1 live files, its manifest list says 2"):
        manifests.data_files(told, content)
