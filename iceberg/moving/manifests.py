"""Manifests and manifest lists whose URLs are told anew. Pure; CPU work only: call it in a thread.

Ids of fields and their meaning are the specification's ("Manifests", "Manifest Lists", "Reserved Field IDs").
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from iceberg.moving.splicing import AvroFile, Patch, Spot, Spots, Unreadable, integer, text
from iceberg.moving.urls import Prefix

MANIFEST_PATH, MANIFEST_LENGTH, LIST_CONTENT = 500, 501, 517
STATUS, FILE_PATH, FILE_FORMAT, FILE_SIZE = 0, 100, 101, 104
CONTENT, REFERENCED_DATA_FILE = 134, 143
BOUNDS = ((126, 127), (129, 130))
"""Of lower and upper bounds: the ids of a map's keys, and of its values."""
DELETED_PATH = 2147483546
"""The column of position delete files that says which data file a row is deleted from."""
DELETED, POSITION_DELETES = 2, 1
LOWEST, HIGHEST = b"", "\U0010ffff".encode()
"""Below and above all URLs, as bounds that are always true."""
_OF_MANIFEST = frozenset(
    (STATUS, FILE_PATH, FILE_FORMAT, FILE_SIZE, CONTENT, REFERENCED_DATA_FILE, *BOUNDS[0], *BOUNDS[1])
)


class Stored(NamedTuple):
    """Where a file is in the copy, and how long it is, bytes."""

    location: str
    size: int


class Listed(NamedTuple):
    """A manifest as its list names it. `deletes`: it may have delete files."""

    location: str
    size: int
    deletes: bool


class DeleteFile(NamedTuple):
    """A file of a manifest that names data files itself: positions in them, or vectors (`form`: puffin)."""

    location: str
    form: str


def listed(content: bytes) -> list[Listed]:
    """The manifests that a list names. Raises Unreadable."""
    file = AvroFile(content, {MANIFEST_PATH, MANIFEST_LENGTH, LIST_CONTENT})
    _require(file, MANIFEST_PATH, MANIFEST_LENGTH)
    return [
        Listed(_text(spots, MANIFEST_PATH), _int(spots, MANIFEST_LENGTH), _content(spots, LIST_CONTENT) != 0)
        for spots in file.records()
    ]


def moved_list(content: bytes, prefix: Prefix, stored: Mapping[str, Stored]) -> bytes:
    """The list with its manifests where they are in the copy. Raises Unreadable.

    `stored`: those that were written anew; others keep their names.
    """

    def change(spots: Spots) -> Iterator[Patch]:
        path, size = _one(spots, MANIFEST_PATH), _one(spots, MANIFEST_LENGTH)
        known = stored.get(path.value)
        yield from _path(path, prefix, None if known is None else known.location)
        if known is not None:
            yield Patch(size.start, size.end, integer(known.size))

    file = AvroFile(content, {MANIFEST_PATH, MANIFEST_LENGTH})
    _require(file, MANIFEST_PATH, MANIFEST_LENGTH)
    return file.spliced(lambda spots: [*change(spots)])


def delete_files(content: bytes) -> list[DeleteFile]:
    """The delete files of a manifest that name data files, without those that it calls removed."""
    file = AvroFile(content, {STATUS, FILE_PATH, FILE_FORMAT, CONTENT})
    _require(file, STATUS, FILE_PATH, FILE_FORMAT)
    return sorted(
        {
            DeleteFile(_text(spots, FILE_PATH), _text(spots, FILE_FORMAT).lower())
            for spots in file.records()
            if _content(spots, CONTENT) == POSITION_DELETES and _int(spots, STATUS) != DELETED
        }
    )


def moved_manifest(content: bytes, prefix: Prefix, stored: Mapping[str, Stored]) -> bytes:
    """The manifest with its files where they are in the copy. Raises Unreadable.

    `stored`: delete files that were written anew; others keep their names.
    """
    file = AvroFile(content, _OF_MANIFEST)
    _require(file, STATUS, FILE_PATH, FILE_SIZE)
    return file.spliced(lambda spots: [*_moved_file(spots, prefix, stored)])


def _moved_file(spots: Spots, prefix: Prefix, stored: Mapping[str, Stored]) -> Iterator[Patch]:
    path = _one(spots, FILE_PATH)
    known = stored.get(path.value)
    yield from _path(path, prefix, None if known is None else known.location)
    if known is not None:
        size = _one(spots, FILE_SIZE)
        yield Patch(size.start, size.end, integer(known.size))
    for each in spots.get(REFERENCED_DATA_FILE, ()):
        yield from _path(each, prefix, None)
    for (key, value), otherwise in zip(BOUNDS, (LOWEST, HIGHEST), strict=True):
        for number, bound in zip(spots.get(key, ()), spots.get(value, ()), strict=True):
            if number.value == DELETED_PATH:
                yield Patch(bound.start, bound.end, text(_bound(bound.value, prefix, otherwise)))


def _path(spot: Spot, prefix: Prefix, known: str | None) -> Iterator[Patch]:
    moved = known or prefix.moved(spot.value)
    if moved is not None:
        yield Patch(spot.start, spot.end, text(moved))


def _bound(value: bytes, prefix: Prefix, otherwise: bytes) -> bytes:
    """A bound of data files' URLs. One that was cut off says nothing any more."""
    moved = prefix.moved(value.decode(errors="replace"))
    return otherwise if moved is None else moved.encode()


def _content(spots: Spots, number: int) -> int:
    """What a file holds; data where nothing says it (version 1)."""
    found: Sequence[Spot] = spots.get(number, ())
    return int(found[0].value) if found else 0


def _text(spots: Spots, number: int) -> str:
    return str(_one(spots, number).value)


def _int(spots: Spots, number: int) -> int:
    return int(_one(spots, number).value)


def _one(spots: Spots, number: int) -> Spot:
    found = spots.get(number, ())
    if len(found) != 1:
        raise Unreadable(f"a record has the field {number} {len(found)} times")
    return found[0]


def _require(file: AvroFile, *numbers: int) -> None:
    missing = [each for each in numbers if each not in file.fields]
    if missing:
        raise Unreadable(f"its schema has no field with the id {missing[0]}")
