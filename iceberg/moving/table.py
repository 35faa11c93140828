"""One table of a copied bucket: its metadata, lists and manifests once more, with the copy's URLs.

What is made gets names of its own, by what it holds; what the copy has stays. So whoever looks at the table
sees it as it was until the pointer moves, and a try that died is made again with the same names. Files that
readers go to by what these say stay as they are: Parquet, statistics.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from collections import OrderedDict
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from coordination.restore.report import TableMoved
from coordination.steps import reach
from iceberg import history
from iceberg.history import Segment
from iceberg.json_steps import PLAIN
from iceberg.moving.deletes import moved_deletes
from iceberg.moving.manifests import Listed, Stored, delete_files, listed, moved_list, moved_manifest
from iceberg.moving.splicing import Unreadable
from iceberg.moving.urls import Prefix
from iceberg.sealed import Damaged, read, sealed
from iceberg.view_names import is_view
from iceberg.warehouse import Warehouse
from objectstore import tasks
from objectstore.retry import find_ours
from objectstore.store import CREATE, Ambiguous, NotFound, ObjectStore, Precondition

_T = TypeVar("_T")
LISTS_AT_ONCE = 16
"""Manifest lists that are read and held at a time."""
MANIFESTS_AT_ONCE = 4
"""Manifests that are read and written at a time: engines make them of 8 MiB."""
MANIFESTS_KNOWN_MAX = 100_000
"""Of one table, whose new names are remembered; those that are forgotten are made again, the same."""
DELETE_FILE_BYTES_MAX = 512 << 20
"""Of a file of deleted positions, which is in memory while it is written anew."""
LOST_TOLD_MAX = 100
"""Files of one table that are told of by name."""
PUFFIN = ".puffin"
SEAL = re.compile(r"\.[xcm][0-9a-f]{16}$")
"""What a name ends with that has a checksum, before its end; `m`: of a Puffin file, made here."""


class CannotMove(Exception):
    """The table stays as it is. The message says why, and what to do."""


class TableMove:
    """Of one table; what becomes of it is told in `moved`. With `write` off all is read and nothing stored.

    Its `written` counts files that name others, without those that had nothing to change.
    """

    def __init__(self, store: ObjectStore, prefix: Prefix, moved: TableMoved, *, write: bool) -> None:
        self._store, self._prefix, self._write = store, prefix, write
        self._warehouse = Warehouse(prefix.target)
        self._known: OrderedDict[str, Stored] = OrderedDict()  # by what the source calls them
        self._lost: set[str] = set()
        self._lists: dict[str, str] = {}
        self._quiet = False
        self.moved = moved

    async def run(self) -> None:
        """Store all that the table needs. Raises CannotMove, StoreError."""
        location = self._prefix.moved(self.moved.former)
        assert location is not None, "the caller looked at it"
        reach("move/table")
        try:
            content = await read(self._store, self._warehouse, location)
            told = await asyncio.to_thread(_decoded, content)
            made = told if is_view(location) else await self._table(told)
            moved = self._prefix.everywhere(made, self._lists)
            encoded = await asyncio.to_thread(lambda: PLAIN.encode(moved).encode())
            self.moved.metadata = await self._put(location, encoded, "move/put-metadata")
            reach("move/moved")
        except (Damaged, NotFound) as error:
            raise CannotMove(
                f"its metadata is not in the copy as it was written ({error}): bring the object back and "
                "promote again, or drop the table: a topic's is made anew from what the topic holds"
            ) from None
        except Unreadable as error:
            raise CannotMove(f"its metadata cannot be told anew: {error}") from None
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise CannotMove(f"its metadata is not as Iceberg's specification says ({error!r})") from None

    # Metadata.

    async def _table(self, metadata: dict[str, Any]) -> dict[str, Any]:
        """The metadata with its snapshots' lists made, and its segments."""
        snapshots: Sequence[Mapping[str, Any]] = metadata.get("snapshots") or ()
        if any("manifest-list" not in each for each in snapshots):
            raise Unreadable("a snapshot without a manifest list (format version 1): upgrade the table")
        self._lists = await self._make_lists([each["manifest-list"] for each in snapshots])
        self.moved.snapshots += len(snapshots)
        if history.PROPERTY in (metadata.get("properties") or {}):
            told = history.of(metadata)
            segments = [await self._segment(metadata["location"], each) for each in told.segments]
            metadata = history.with_history(metadata, replace(told, segments=tuple(segments)))
        formers = [(each.get("summary") or {}).get(history.FORMER) for each in snapshots]
        self._quiet = True  # of these some are gone as they should
        self._lists |= await self._make_lists([*filter(None, formers)])
        return metadata

    async def _segment(self, location: str, segment: Segment) -> Segment:
        """A part of the table's past; as it is where it is lost, as a table with a gap goes on."""
        place = self._place(f"{location}/{segment.name}")
        try:
            texts = history.from_bytes(await read(self._store, self._warehouse, place))
        except (NotFound, Damaged):
            self._lose(place)
            return segment
        snapshots: list[dict[str, Any]] = await asyncio.to_thread(json.loads, f"[{texts.snapshots}]")
        lists = await self._make_lists([each["manifest-list"] for each in snapshots])
        self.moved.snapshots += len(snapshots)
        moved = self._prefix.everywhere(snapshots, lists)
        text = await asyncio.to_thread(lambda: ",".join(map(PLAIN.encode, moved)))
        content = history.to_bytes(texts._replace(snapshots=text))
        made = await self._put(place, content, "move/put-segment")
        return segment._replace(name=made.removeprefix(f"{self._place(location)}/"))

    # Lists and manifests.

    async def _make_lists(self, locations: Sequence[str]) -> dict[str, str]:
        """Have these lists in the copy, and all that they lead to; what each is called there."""
        made: dict[str, str] = {}
        for at in range(0, len(locations), LISTS_AT_ONCE):
            some = locations[at : at + LISTS_AT_ONCE]
            contents = await _together(self._content(each) for each in some)
            found = {where: content for where, content in zip(some, contents, strict=True) if content}
            await self._make_manifests(
                [each for content in found.values() for each in await asyncio.to_thread(listed, content)]
            )
            moved = await _together(self._made_list(*each) for each in found.items())
            made.update(zip(found, moved, strict=True))
            self._forget()
        return made

    async def _made_list(self, location: str, content: bytes) -> str:
        made = await asyncio.to_thread(moved_list, content, self._prefix, self._known)
        return await self._put(self._place(location), made, "move/put-list")

    async def _make_manifests(self, wanted: Iterable[Listed]) -> None:
        due = {
            each.location: each
            for each in wanted
            if each.location not in self._known and self._place(each.location) not in self._lost
        }
        ordered = [*due.values()]
        for at in range(0, len(ordered), MANIFESTS_AT_ONCE):
            await _together(map(self._manifest, ordered[at : at + MANIFESTS_AT_ONCE]))

    async def _manifest(self, manifest: Listed) -> None:
        content = await self._content(manifest.location, manifest.size)
        if content is None:
            return
        deletes = dict[str, Stored]()
        for each in await asyncio.to_thread(delete_files, content) if manifest.deletes else ():
            made = await self._delete_file(each.location, each.form)
            if made is not None:
                deletes[each.location] = made
        moved = await asyncio.to_thread(moved_manifest, content, self._prefix, deletes)
        where = await self._put(self._place(manifest.location), moved, "move/put-manifest")
        self._known[manifest.location] = Stored(where, len(moved))

    async def _delete_file(self, location: str, form: str) -> Stored | None:
        place = self._place(location)
        try:
            size = (await self._store.head(self._warehouse.key(place))).size
        except NotFound:
            self._lose(place)
            return None
        if size > DELETE_FILE_BYTES_MAX:
            raise Unreadable(
                f"{place} has {size} bytes of deleted positions, {DELETE_FILE_BYTES_MAX} can be told anew: "
                "rewrite the table's position delete files at the source first"
            )
        content = await self._content(location)
        if content is None:
            return None
        moved = await asyncio.to_thread(moved_deletes, form, content, self._prefix)
        self.moved.delete_files += 1
        return Stored(await self._put(place, moved, "move/put-deletes"), len(moved))

    def _forget(self) -> None:
        while len(self._known) > MANIFESTS_KNOWN_MAX:
            self._known.popitem(last=False)

    # Files.

    def _place(self, location: str) -> str:
        """Where a file that the table names is in the copy. Raises Unreadable for one of elsewhere."""
        moved = self._prefix.moved(location)
        if moved is None and self._prefix.there(location):
            return location
        if moved is None:
            raise Unreadable(f"it names {location}, which is not below {self._prefix.source}")
        return moved

    async def _content(self, location: str, size: int | None = None) -> bytes | None:
        """A file as it was written; None where the copy has it not, or not so."""
        place = self._place(location)
        try:
            return await read(self._store, self._warehouse, place, size)
        except (NotFound, Damaged):
            self._lose(place)
            return None

    def _lose(self, place: str) -> None:
        if place in self._lost:
            return
        self._lost.add(place)
        if self._quiet:
            return
        self.moved.lost_count += 1
        if len(self.moved.lost) < LOST_TOLD_MAX:
            self.moved.lost.append(place)

    async def _put(self, place: str, content: bytes, step: str) -> str:
        """Store what is made of the file at `place`; its own location. Nothing is overwritten."""
        location = await asyncio.to_thread(named, place, content)
        if location == place:  # nothing in it was to be changed
            return location
        self.moved.written += 1
        if not self._write:
            return location
        key = self._warehouse.key(location)
        reach(step)
        try:
            await self._store.put(key, [content], CREATE)
        except (Ambiguous, Precondition):
            if await find_ours(self._store, key, [content]) is None:
                raise
        return location


def named(location: str, content: bytes) -> str:
    """The location with the content's checksum in the name, in place of one that it had (sealed.py)."""
    for end in (".metadata.json", ".avro", ".history", ".parquet"):
        if location.endswith(end):
            return sealed(SEAL.sub("", location.removesuffix(end)) + end, content)
    if location.endswith(PUFFIN):
        return f"{SEAL.sub('', location.removesuffix(PUFFIN))}.m{_digest(content)}{PUFFIN}"
    raise Unreadable(f"{location} ends with none of .metadata.json, .avro, .history, .parquet and {PUFFIN}")


async def _together(works: Iterable[Coroutine[Any, Any, _T]]) -> list[_T]:
    """The outcome of each; where one fails the others have ended when that is raised."""
    running = [tasks.owned(each, "move a table") for each in works]
    try:
        return [*await asyncio.gather(*running)]
    finally:
        for each in running:
            each.cancel()
        await asyncio.gather(*running, return_exceptions=True)


def _digest(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=8).hexdigest()


def _decoded(content: bytes) -> dict[str, Any]:
    found = json.loads(content)
    if not isinstance(found, dict) or "format-version" not in found:
        raise Unreadable("it is no Iceberg metadata")
    return found
