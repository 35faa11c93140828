"""What the source gives damaged: told with the records that are lost with it, and copied as it is, but noted.

What is sound of a damaged object may be all that is left of it, so the destination has it, too. It would pass
for whole there, having its size: so `copy.json` names it before it is put, and each round takes it again,
until the source gives it whole. Pieces of the log and snapshots are not put: what leads to a state is whole.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import dataclass
from dataclasses import replace as changed

from coordination.copying.referred import Referred
from coordination.places import Place, lost_of_chunk, lost_of_segment, places_of
from coordination.state import State
from coordination.state.deleted import existing
from objectstore import copied
from objectstore.copied import COPY_KEY, CopyMark
from objectstore.copying import DAMAGED_MAX, Copier, Damaged
from objectstore.naming import (
    LOG,
    SNAPSHOTS,
    ManifestId,
    SegmentId,
    key_below,
    parse_chunk_key,
    parse_manifest_key,
    parse_segment_key,
)
from objectstore.segment import SegmentInfo
from objectstore.store import NotFound, ObjectStore

REASON_CHARACTERS_MAX = 300


@dataclass(frozen=True, slots=True)
class DamagedObject:
    """`places`: records that cannot be read of it. `table`: whose file it is, if one's."""

    key: str
    reason: str
    places: tuple[Place, ...] = ()
    table: str = ""


class Damages:
    """Of one destination. `known`: keys that it has, or is about to have, damaged as the source gave them."""

    def __init__(self, source: ObjectStore, target: ObjectStore, url: str, referred: Referred) -> None:
        self._source, self._target, self._url, self._referred = source, target, url, referred
        self.known: set[str] = set()
        self.found: dict[str, DamagedObject] = {}
        """Of the last round, but for what nothing refers to."""

    def begin(self, mark: CopyMark) -> None:
        """A round begins; what the destination says of itself."""
        self.known, self.found = set(mark.damaged), {}

    def marked(self, mark: CopyMark) -> CopyMark:
        """The mark, as it must be with what is known."""
        return changed(mark, damaged=tuple(sorted(self.known)))

    async def keep(self, copier: Copier, mark: CopyMark, state: State, gone: Container[str]) -> None:
        """Copy what is damaged as it is, when the destination has noted it. `gone`: from the source alone.

        Raises NotOurCopy, StoreError.
        """
        before = self.known
        data = [each for key, each in copier.damaged.items() if not _of_log(key)]
        self.known = {key for key in before if key in gone or key in copier.damaged}
        room = max(0, DAMAGED_MAX - len(self.known))
        new = [each.meta.key for each in data if each.meta.key not in before][:room]
        self.known.update(new)
        if new:
            await copied.still_ours(self._target, mark)
            await self._target.put(COPY_KEY, [self.marked(mark).encode()])
        for each in data:
            try:
                await self._one(copier, each, state, put=each.meta.key in new)
            except NotFound:  # collected meanwhile: the next look knows
                continue

    async def _one(self, copier: Copier, each: Damaged, state: State, *, put: bool) -> None:
        key = each.meta.key
        content = await copier.as_it_is(each.meta, put=put or not await self._there(each))
        if _of_records(key) and not await self._referred.names(state, key):
            return
        places = await self._places(state, key, content)
        reason = each.reason[:REASON_CHARACTERS_MAX]
        self.found[key] = DamagedObject(key, reason, places, table_of(state, self._url, key))

    def of_log(self, found: Iterable[Damaged]) -> None:
        """Pieces and snapshots among those that were not put."""
        for each in found:
            if _of_log(each.meta.key):
                reason = each.reason[:REASON_CHARACTERS_MAX]
                self.found[each.meta.key] = DamagedObject(each.meta.key, reason)

    async def _there(self, each: Damaged) -> bool:
        if each.meta.key not in self.known:
            return True  # there are too many: this one is not put
        try:
            return (await self._target.head(each.meta.key)).size == each.meta.size
        except NotFound:
            return False

    async def _places(self, state: State, key: str, content: bytes) -> tuple[Place, ...]:
        """The records that cannot be read with the object as it is."""
        if (chunk := parse_chunk_key(key)) is not None:
            return await lost_of_chunk(state, chunk, content)
        if (listed := parse_manifest_key(key)) is not None:
            return _of_manifest(state, listed)
        if (segment := parse_segment_key(key)) is not None:
            info = await self._info(state, segment)
            return () if info is None else lost_of_segment(state, segment.partition, info, content)
        return ()

    async def _info(self, state: State, segment: SegmentId) -> SegmentInfo | None:
        """The segment as its partition's manifest has it; None where no side has that whole."""
        partition = existing(state, segment.partition) if segment.partition < len(state.partitions) else None
        if partition is None or partition.merged is None:
            return None
        found = await self._referred.manifest(partition.merged.manifest)
        if found is None:
            return None
        named_so = (found[number] for number in range(len(found)) if found[number].segment == segment)
        return next(named_so, None)


def table_of(state: State, url: str, key: str) -> str:
    """The table below whose folder a file of the store at `url` lies; empty where it is none of a table's."""
    for table in state.tables.values():
        current = key_below(url, table.metadata_location) or ""
        folder, _, _ = current.rpartition("/metadata/")
        if folder and key.startswith(f"{folder}/"):
            return f"{table.namespace}.{table.name}"
    return ""


def _of_manifest(state: State, listed: ManifestId) -> tuple[Place, ...]:
    handle = listed.partition
    partition = existing(state, handle) if handle < len(state.partitions) else None
    if partition is None or partition.merged is None or partition.merged.manifest != listed:
        return ()
    return places_of(state, handle, partition.merged.start_offset, partition.merged.end_offset)


def _of_log(key: str) -> bool:
    return key.startswith((LOG, SNAPSHOTS))


def _of_records(key: str) -> bool:
    kinds = (parse_chunk_key, parse_segment_key, parse_manifest_key)
    return any(parse(key) is not None for parse in kinds)
