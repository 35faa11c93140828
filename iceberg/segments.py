"""The files of a table's history (history.py): read, written, and folded into the base."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pyiceberg.manifest import ManifestEntry, ManifestFile

from iceberg import history, ledger, lineage, manifest_avro, manifests
from iceberg.history import Policy, Segment, Texts
from iceberg.manifests import Source
from iceberg.metadata import Metadata, decode_steps, encode_steps
from iceberg.sealed import Damaged, read, sealed
from iceberg.steps import Steps
from iceberg.warehouse import Warehouse
from objectstore.store import NotFound, ObjectStore, StoreError
from objectstore.turns import in_turns

CACHE_BYTES_MAX = 32 << 20
"""Bytes of segments that a reader remembers: they never change."""
BASE_BYTES = 1 << 20
"""Bytes of manifests that become one of the base; its last one is written anew up to this size."""
BASELESS_MAX = 1_000
"""Snapshots that a table names whose base cannot be made."""
RETRY_COMMITS = 100
"""Commits after one that could not merge or fold, before it is tried again."""

_logger = logging.getLogger("floe.iceberg.history")


class SegmentReader:
    """Reads segments of any table and remembers some."""

    def __init__(self, store: ObjectStore, warehouse: Warehouse, bytes_max: int = CACHE_BYTES_MAX) -> None:
        self._store = store
        self._warehouse = warehouse
        self._bytes_max = bytes_max
        self._known: OrderedDict[str, Texts] = OrderedDict()
        self._bytes = 0

    async def read(self, metadata: Mapping[str, Any], segment: Segment) -> Texts:
        """A segment's content. Raises StoreError; ValueError when it is none."""
        location = f"{metadata['location']}/{segment.name}"
        found = self._known.get(location)
        if found is None:
            found = history.from_bytes(await read(self._store, self._warehouse, location))
            self._known[location] = found
            self._bytes += _size(found)
        self._known.move_to_end(location)
        while self._bytes > self._bytes_max and len(self._known) > 1:
            self._bytes -= _size(self._known.popitem(last=False)[1])
        return found

    async def snapshots(self, metadata: Mapping[str, Any]) -> list[dict[str, Any]]:
        """All snapshots of the segments, oldest first. Raises what `read` raises."""
        found: list[dict[str, Any]] = []
        for segment in history.of(metadata).segments:
            found += await in_turns(history.decode_steps(await self.read(metadata, segment)))
        return found

    async def composed(self, metadata: Metadata) -> Metadata:
        """The metadata with its whole history, for engines. Raises what `read` raises."""
        if history.PROPERTY not in (metadata.get("properties") or {}):
            return metadata
        texts = [await self.read(metadata, each) for each in history.of(metadata).segments]
        return history.composed(metadata, texts)

    async def behind_gap(self, metadata: Metadata) -> Metadata:
        """What of the history can be read without a gap, for engines: where `composed` fails."""
        texts: list[Texts] = []
        for each in reversed(history.of(metadata).segments):
            try:
                texts.insert(0, await self.read(metadata, each))
            except (StoreError, ValueError):
                break
        return history.behind_gap(metadata, texts)

    async def plain(self, metadata: Metadata) -> Metadata:
        """The metadata of a table that Floe commits no more, its history in it as any engine keeps it."""
        if history.PROPERTY not in (metadata.get("properties") or {}):
            return metadata
        parts = await in_turns(encode_steps(await self.composed(metadata)))
        return await in_turns(decode_steps(b"".join(parts)))


class HistoryKeeper:
    """Keeps one table's history, commit by commit; what it stores is seen once the table's pointer moves."""

    def __init__(
        self,
        store: ObjectStore,
        warehouse: Warehouse,
        steps: Steps,
        inline_max: int,
        new_id: Callable[[], int],
    ) -> None:
        """`inline_max`: snapshots that a metadata file names; `new_id` makes one for a new base."""
        self._store = store
        self._warehouse = warehouse
        self._steps = steps
        self._inline_max = inline_max
        self._new_id = new_id
        self._reader = SegmentReader(store, warehouse, 0)
        self._wait = 0
        self._fold_wait = 0

    async def kept(self, metadata: Metadata, policy: Policy, now_ms: int) -> Metadata:
        """The metadata of the next commit with its history in order. Raises StoreError.

        `now_ms`: by which time snapshots may be too old. What cannot be read is told, and delays no commit:
        a segment more, or a history that is longer for a while, does no harm.
        """
        if metadata["current-snapshot-id"] == -1:
            return metadata
        found = history.without_old_refs(history.begun(history.checked(metadata)), now_ms)
        found = history.without_old_schemas(found)
        found = await self._move(found)
        if self._wait:
            self._wait -= 1
            return found
        try:
            if history.beheaded(found):
                first = history.oldest_inline(found)
                found = history.folded(found, await self._anew(found, first), ())
            found = await self._fold(await self._merge(found), policy, now_ms)
        except (StoreError, ValueError) as error:
            self._wait = RETRY_COMMITS
            _logger.warning("history of %s is left as it is for now: %s", metadata["location"], error)
        return found

    async def _move(self, metadata: Metadata) -> Metadata:
        """The oldest of too many snapshots in a segment of their own."""
        if not history.of(metadata).base:  # it is made below
            return history.cut(metadata, BASELESS_MAX)
        going = history.movable(metadata, self._inline_max)
        if not going:
            return metadata
        lean = [{**each, "summary": ledger.told_elsewhere(each["summary"])} for each in going]
        texts = history.encode(lean, history.entries(metadata, going))
        return history.moved(metadata, going, await self._put(metadata, texts, 0))

    async def _merge(self, metadata: Metadata) -> Metadata:
        """Segments of one level in one of the next, while there are enough."""
        while some := history.mergeable(history.of(metadata)):
            texts = history.join([await self._reader.read(metadata, each) for each in some])
            metadata = history.merged(metadata, some, await self._put(metadata, texts, some[0].level + 1))
        return metadata

    async def _put(self, metadata: Metadata, texts: Texts, level: int) -> str:
        location, content = metadata["location"], history.to_bytes(texts)
        number = metadata["current-snapshot-id"]
        name = await asyncio.to_thread(sealed, f"metadata/{number:016x}-{level}.history", content)
        await self._steps.before("store-history")
        await self._store.put(self._warehouse.key(f"{location}/{name}"), [content])
        return name

    async def _anew(self, metadata: Metadata, first: Mapping[str, Any]) -> dict[str, Any]:
        """A new base from what snapshot `first` has and did not add, where nothing else can be built upon.

        One that replaced files is passed over by streams: what it has then are the rows of before.
        """
        replaced = first["summary"]["operation"] == "replace"
        number = first["snapshot-id"]
        before = {
            **first,
            "snapshot-id": first["parent-snapshot-id"],
            "sequence-number": first["sequence-number"] - 1,
        }
        end = lineage.end_of(first) if replaced else first.get(lineage.FIRST)
        return await self._base(
            metadata,
            before,
            self._new_id(),
            [],
            [
                Source(each, lambda entry: replaced or entry.snapshot_id != number)
                for each in await self._listed(first)
            ],
            {history.MADE: str(metadata["last-updated-ms"])},
            end or None,  # 0: rows from before it had no ids
        )

    async def _fold(self, metadata: Metadata, policy: Policy, now_ms: int) -> Metadata:
        """The base with the rows of all snapshots whose time is over; those are gone."""
        old = history.due(metadata, policy, now_ms)
        if not old or self._fold_wait:
            self._fold_wait = max(0, self._fold_wait - 1)
            return metadata
        try:
            made = await self._grown(metadata, old, policy, now_ms)
            if made is None:
                self._fold_wait = RETRY_COMMITS
                return metadata
        except (Damaged, NotFound, ValueError) as error:
            _logger.error(
                "history of %s is begun anew, streams in its oldest part end: %s", metadata["location"], error
            )
            made = await self._anew(metadata, await self._behind(metadata, len(old)))
        count = sum(each.size for each in old)
        _logger.info("%s: %d snapshots were folded into its first", metadata["location"], count)
        return history.folded(metadata, made, old)

    async def _behind(self, metadata: Metadata, count: int) -> dict[str, Any]:
        """The first snapshot behind so many segments."""
        rest = history.of(metadata).segments[count:]
        if not rest:
            return history.oldest_inline(metadata)
        return history.first_of(await self._reader.read(metadata, rest[0]))

    async def _grown(
        self, metadata: Metadata, old: Sequence[Segment], policy: Policy, now_ms: int
    ) -> dict[str, Any] | None:
        """The base with the rows of the oldest segments. Raises StoreError, and ValueError.

        None while files that left the table with one of them have their grace period.
        """
        gone: list[dict[str, Any]] = []
        for each in old:
            texts = await self._reader.read(metadata, each)
            gone += await in_turns(history.decode_steps(texts))
        number = history.of(metadata).base
        base = next(each for each in metadata["snapshots"] if each["snapshot-id"] == number)
        left = any(each["summary"]["operation"] != "append" for each in gone)
        count = history.of(metadata).count + len(metadata["snapshots"])
        if left and now_ms - gone[-1]["timestamp-ms"] < policy.grace_ms and count <= policy.most:
            return None
        listed = await self._listed(gone[-1])
        if history.outlived(base, gone, policy, now_ms):
            # Places in it would mean other files: it is a new one.
            told = {history.MADE: str(metadata["last-updated-ms"]), history.FORMER: base["manifest-list"]}
            sources = [Source(each, lambda entry: True) for each in listed]
            end = lineage.end_of(gone[-1])
            return await self._base(metadata, gone[-1], self._new_id(), [], sources, told, end)
        sources = await self._added_by(gone, listed)
        told, known = history.regrown(base, gone), await self._listed(base)
        # Some of its files never had ids if it is from before: then its rows have none, as the others before.
        end = lineage.end_of(gone[-1]) if lineage.end_of(base) is not None else None
        return await self._base(metadata, gone[-1], number, known, sources, told, end)

    async def _added_by(
        self, gone: Sequence[Mapping[str, Any]], listed: Sequence[ManifestFile]
    ) -> list[Source]:
        """Where the files are named that these snapshots appended: in `listed`, the manifests of the last of
        them, and, if they were replaced since, where they are called removed.
        """
        appended = {each["sequence-number"] for each in gone if each["summary"]["operation"] == "append"}
        first = gone[0]["sequence-number"]

        def takes(entry: ManifestEntry) -> bool:
            return entry.file_sequence_number in appended

        found = [Source(each, takes) for each in listed if each.sequence_number >= first]
        for snapshot in gone:
            if snapshot["summary"]["operation"] == "replace":
                own = [
                    each
                    for each in await self._listed(snapshot)
                    if each.added_snapshot_id == snapshot["snapshot-id"] and each.deleted_files_count != 0
                ]
                found += [Source(each, takes, removed=True) for each in own]
        return found

    async def _base(
        self,
        metadata: Metadata,
        last: Mapping[str, Any],
        number: int,
        known: Sequence[ManifestFile],
        sources: Sequence[Source],
        told: Mapping[str, str],
        end: int | None,
    ) -> dict[str, Any]:
        """A snapshot `number` without a parent that has all rows up to `last`, as if it had added them.

        Its files are those of `known`, in their order, and behind them those of `sources`. `told`: what its
        summary says besides. `end`: behind which id its rows end, all of which have ids (lineage.py); None:
        they have none.
        """
        prefix = f"{metadata['location']}/metadata/{metadata['current-snapshot-id']:016x}"
        listed = list(known)
        group: list[Source] = []
        if listed and listed[-1].manifest_length < BASE_BYTES:
            group.append(Source(listed.pop(), lambda entry: True))
        for source in sorted(sources, key=lambda each: each.manifest.sequence_number):
            if not source.removed and not manifests.live(source.manifest):
                continue
            of = source.manifest.partition_spec_id  # a manifest has files of one spec
            size = sum(each.manifest.manifest_length for each in group)
            if group and (size >= BASE_BYTES or group[-1].manifest.partition_spec_id != of):
                listed += await self._write(group, metadata, number, f"{prefix}-b{len(listed)}.avro", end)
                group = []
            group.append(source)
        listed += await self._write(group, metadata, number, f"{prefix}-b{len(listed)}.avro", end)
        location, content, _ = await asyncio.to_thread(
            manifests.write_list, f"{prefix}-base.avro", number, None, last["sequence-number"], listed, end
        )
        await self._steps.before("store-base")
        await self._store.put(self._warehouse.key(location), [content])
        counts = {
            "added-data-files": str(sum(each.added_files_count or 0 for each in listed)),
            "added-records": str(sum(each.added_rows_count or 0 for each in listed)),
        }
        return {
            "snapshot-id": number,
            "sequence-number": last["sequence-number"],
            "timestamp-ms": last["timestamp-ms"],
            "manifest-list": location,
            "schema-id": last["schema-id"],
            **lineage.given(0, end),
            "summary": {
                "operation": "append",
                **counts,
                **told,
                "floe.folded-through": str(last["snapshot-id"]),
            },
        }

    async def _write(
        self,
        group: Sequence[Source],
        metadata: Metadata,
        number: int,
        location: str,
        end: int | None,
    ) -> list[ManifestFile]:
        """What the base takes of some manifests in one of its own; none when that is nothing.

        `end`: as for `_base`.
        """
        contents = {
            each.manifest_path: await read(
                self._store, self._warehouse, each.manifest_path, each.manifest_length
            )
            for each in {one.manifest.manifest_path: one.manifest for one in group}.values()
        }
        if not group:
            return []
        form = manifests.form(metadata, group[0].manifest.partition_spec_id)
        if end is None:
            form = form._replace(version=2)
        written = await asyncio.to_thread(manifests.write_as_added, location, form, number, group, contents)
        if written is None:
            return []
        if end is not None and (rows := manifest_avro.unnumbered(written.manifest)):
            raise ValueError(f"{rows} rows of the first snapshot would get other ids than they have")
        await self._steps.before("store-base")
        await self._store.put(self._warehouse.key(written.manifest.manifest_path), [written.content])
        return [written.manifest]

    async def _listed(self, snapshot: Mapping[str, Any]) -> list[ManifestFile]:
        location = snapshot["manifest-list"]
        content = await read(self._store, self._warehouse, location)
        return await asyncio.to_thread(manifest_avro.read_list, location, content)


def _size(texts: Texts) -> int:
    return len(texts.snapshots) + len(texts.log)
