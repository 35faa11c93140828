"""Names: order of keys is order of numbers, and strangers are not mistaken for ours."""

from __future__ import annotations

import pytest

from objectstore.naming import (
    NUMBER_MAX,
    ChunkId,
    SnapshotId,
    chunk_key,
    incarnation_prefix,
    parse_chunk_key,
    parse_incarnation_folder,
    parse_snapshot_key,
    snapshot_key,
)

NUMBERS = [0, 1, 15, 16, 255, 256, 1 << 32, (1 << 63) - 1, NUMBER_MAX]


def test_chunk_keys_come_back_and_sort_as_numbers() -> None:
    chunks = [ChunkId(incarnation, number) for incarnation in NUMBERS for number in NUMBERS]
    keys = [chunk_key(chunk) for chunk in chunks]
    assert [parse_chunk_key(key) for key in keys] == chunks
    assert keys == sorted(keys)
    assert all(
        key.startswith(incarnation_prefix(chunk.incarnation)) for key, chunk in zip(keys, chunks, strict=True)
    )


def test_snapshot_keys_come_back_and_sort_by_revision() -> None:
    ids = [SnapshotId(revision, 7) for revision in NUMBERS]
    keys = [snapshot_key(*snapshot) for snapshot in ids]
    assert [parse_snapshot_key(key) for key in keys] == ids
    assert keys == sorted(keys)


def test_incarnation_folders_come_back() -> None:
    for number in NUMBERS:
        segment = incarnation_prefix(number).removeprefix("chunks/").removesuffix("/")
        assert parse_incarnation_folder(segment) == number


@pytest.mark.parametrize(
    "key",
    [
        "",
        "chunks/",
        "cluster.json",
        "chunks/1/2.chunk",
        "chunks/000000000000000A/0000000000000001.chunk",
        "chunks/0000000000000001/0000000000000001.chunk.tmp",
        "other/chunks/0000000000000001/0000000000000001.chunk",
        "chunks/0000000000000001/0000000000000001.chunk\n",
    ],
)
def test_strangers_are_not_chunks(key: str) -> None:
    assert parse_chunk_key(key) is None
    assert parse_snapshot_key(key) is None
    assert parse_incarnation_folder(key) is None
