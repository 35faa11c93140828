"""/admin/restorable/{name}/rows and /file: what a topic's table has of records that left the log.

For `floe restore topic --with-table`. The agent tells the table's data files and gives their bytes; whoever
asks checks them by the checksums in their names and opens them: rows are not this process's work.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final, NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from agent.http.answers import Problem, number
from agent.http.barrier import barrier
from agent.http.console.reading import readable
from agent.http.restorable import RestorableRoutes, first, reaches_below
from iceberg import ledger
from iceberg.head import Head, load
from iceberg.ledger import LedgerError
from iceberg.sealed import Damaged, read
from iceberg.warehouse import Warehouse
from objectstore.late import ready
from objectstore.store import NotFound, StoreError

if TYPE_CHECKING:
    from pyiceberg.manifest import ManifestFile

    from agent.http.parts import Parts
    from coordination.state.types import Table, Topic

BYTES_MAX: Final = 8 << 20
"""Of a data file in one answer."""
FILES_MAX: Final = 50_000
"""Data files that one answer names, some 200 bytes each."""
READS_MAX: Final = 2
"""At once on one agent; further ones wait."""
_BEGIN_ANEW: Final = "begin anew"


class OldFile(NamedTuple):
    """A data file with rows of records that left the log: its bytes, rows, lowest and highest offset."""

    location: str
    size: int
    rows: int
    first: int
    last: int


class RestorableRows:
    """Tells the data files of a topic's table, and gives their bytes."""

    def __init__(self, parts: Parts, topics: RestorableRoutes) -> None:
        self._parts, self._topics = parts, topics
        self._turn = asyncio.Semaphore(READS_MAX)

    async def rows(self, request: Request) -> Response:
        """Of each partition whose log begins later the files with rows below that, as of one snapshot, and
        up to where the table has the partition.
        """
        await barrier(self._parts)
        readable(self._parts)
        topic, _ = self._topics.found(request)
        table = self._table(topic)
        held = reaches_below(request)
        starts = {each.index: first(each, held=held) for each in topic.partitions}
        starts = {index: start for index, start in starts.items() if start}
        where = f"table {table.namespace}.{table.name}"
        async with self._turn, _told(where):
            head = await load(self._parts.store, self._warehouse, table.metadata_location)
            known = ledger.next_offsets(head.metadata, topic.topic_id)
            files = await self._files(head, starts)
        partitions = [
            {
                "partition": index,
                "start": start,
                "next_offset": known[index] if index < len(known) else 0,
                "files": sorted(files.get(index, ()), key=lambda one: (one.first, one.location)),
            }
            for index, start in starts.items()
        ]
        told = {"table": f"{table.namespace}.{table.name}", "partitions": partitions}
        return Response(await asyncio.to_thread(json.dumps, told), media_type="application/json")

    async def file(self, request: Request) -> Response:
        """Bytes of the data file at `location` from `offset` on, `bytes` of them at most."""
        readable(self._parts)
        topic, _ = self._topics.found(request)
        location = request.query_params.get("location", "")
        offset, most = number(request, "offset"), min(number(request, "bytes", BYTES_MAX), BYTES_MAX)
        self._require_own(self._table(topic), location)
        async with self._turn, _told(location):
            key = self._warehouse.key(location)
            rest = (await self._parts.store.head(key)).size - offset
            length = min(rest, most)
            found = await self._parts.store.get_range(key, offset, length) if length > 0 else b""
        return Response(bytes(found), media_type="application/octet-stream")

    @property
    def _warehouse(self) -> Warehouse:
        config = self._parts.config
        return Warehouse.of(config.store.url, config.warehouse)

    def _table(self, topic: Topic) -> Table:
        """The topic's table. Raises Problem 404."""
        state = self._parts.replica.state
        table = state.tables.get(state.tables_by_topic.get(topic.topic_id, ("", "")))
        if table is None:
            raise Problem(
                404,
                f"{topic.name} has no table: what left its log is gone",
                "restore it without --with-table",
            )
        return table

    def _require_own(self, table: Table, location: str) -> None:
        """Raises Problem 404 unless it is a data file in this table's own folder."""
        folder, _, _ = table.metadata_location.rpartition("/metadata/")
        inside = location.startswith(f"{folder}/") and "/../" not in location
        if not folder or not inside or not location.endswith(".parquet"):
            raise Problem(
                404,
                f"{location[:300]!r} is no data file of table {table.namespace}.{table.name}",
                "ask /rows",
            )

    async def _files(self, head: Head, below: Mapping[int, int]) -> dict[int, list[OldFile]]:
        """Those with rows of a partition below its offset, by partition. Raises Problem 409, ValueError."""
        await ready("iceberg.manifests")
        from iceberg import manifests

        found: dict[int, list[OldFile]] = {}
        count = 0
        for each in filter(manifests.live, head.manifests):
            content = await read(self._parts.store, self._warehouse, each.manifest_path, each.manifest_length)
            for partition, file in await asyncio.to_thread(_old_files, each, content, below):
                found.setdefault(partition, []).append(file)
                count += 1
            if count > FILES_MAX:
                raise Problem(
                    409,
                    f"more than {FILES_MAX:,} data files have rows of records that left the log",
                    "wait until floe.table.compaction has made them fewer",
                )
        return found


def _old_files(manifest: ManifestFile, content: bytes, below: Mapping[int, int]) -> list[tuple[int, OldFile]]:
    """Of a manifest, each with its partition. In a thread; raises Damaged and ValueError."""
    from pyiceberg.manifest import ManifestContent

    from iceberg import manifests

    if manifest.content != ManifestContent.DATA:
        raise ValueError(f"{manifest.manifest_path} deletes rows: which ones cannot be told from here")
    found = []
    for each in manifests.entries(manifest, content):
        file, extent = each.data_file, manifests.extent_of(each.data_file)
        if extent is None:
            raise ValueError(f"{file.file_path} does not say which offsets it holds")
        if extent.first_offset < below.get(extent.partition, 0):
            size, rows = file.file_size_in_bytes, file.record_count
            old = OldFile(file.file_path, size, rows, extent.first_offset, extent.last_offset)
            found.append((extent.partition, old))
    return found


@asynccontextmanager
async def _told(where: str) -> AsyncIterator[None]:
    """What a table's files can be in the way, as a Problem."""
    try:
        yield
    except NotFound:
        raise Problem(409, f"{where}: a file is gone that was there a moment ago", _BEGIN_ANEW) from None
    except (Damaged, LedgerError) as error:
        raise Problem(409, f"{where}: {error}", "restore it without --with-table") from None
    except StoreError as error:
        raise Problem(503, f"{where} cannot be read now: {error}", "try again") from None
    except ValueError as error:
        raise Problem(409, f"{where}: {error}", "restore it without --with-table") from None
