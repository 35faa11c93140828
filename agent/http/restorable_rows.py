"""/admin/restorable/{name}/rows and /file: what a topic's table has of records that left the log.

For `floe restore topic --with-table`. The agent tells the table's data files and gives their bytes; whoever
asks checks them by the checksums in their names and opens them: rows are not this process's work.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from pyiceberg.manifest import ManifestContent
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from agent.http.answers import Problem, number
from agent.http.barrier import barrier
from agent.http.restorable import RestorableRoutes
from iceberg import ledger, manifests
from iceberg.head import Head, load
from iceberg.ledger import LedgerError
from iceberg.sealed import Damaged, read
from iceberg.warehouse import Warehouse
from objectstore.store import NotFound, StoreError

if TYPE_CHECKING:
    from agent.http.parts import Parts
    from coordination.state.types import Partition, Table, Topic
    from iceberg.small_files import LiveFile

BYTES_MAX: Final = 8 << 20
"""Of a data file in one answer."""
FILES_MAX: Final = 100_000
"""Data files of one partition that one answer names, some 200 bytes each."""
READS_MAX: Final = 2
"""At once on one agent; further ones wait."""
_BEGIN_ANEW: Final = "begin anew"


class RestorableRows:
    """Tells the data files of a topic's table, and gives their bytes."""

    def __init__(self, parts: Parts, topics: RestorableRoutes) -> None:
        self._parts, self._topics = parts, topics
        self._turn = asyncio.Semaphore(READS_MAX)

    async def rows(self, request: Request) -> Response:
        """Of `partition` the files with rows below its log start, and up to where the table has it."""
        await barrier(self._parts)
        topic, _ = self._topics.found(request)
        partition, table = self._topics.partition(topic, request), self._table(topic)
        start = partition.log_start
        where = f"table {table.namespace}.{table.name}"
        async with self._turn, _told(where):
            head = await load(self._parts.store, self._warehouse, table.metadata_location)
            known = ledger.next_offsets(head.metadata, topic.topic_id)
            files = await self._files(head, partition, start)
        return JSONResponse(
            {
                "table": f"{table.namespace}.{table.name}",
                "start": start,
                "next_offset": known[partition.index] if partition.index < len(known) else 0,
                "files": [[one.location, one.size, one.rows, one.first, one.last] for one in files],
            }
        )

    async def file(self, request: Request) -> Response:
        """Bytes of the data file at `location` from `offset` on, `bytes` of them at most."""
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

    async def _files(self, head: Head, partition: Partition, below: int) -> list[LiveFile]:
        """Those with rows of the partition below an offset, by their first one. Raises Problem 409."""
        found: list[LiveFile] = []
        for each in filter(manifests.live, head.manifests):
            if each.content != ManifestContent.DATA:
                raise Problem(409, f"{each.manifest_path} deletes rows: they cannot be told from here")
            content = await read(self._parts.store, self._warehouse, each.manifest_path, each.manifest_length)
            named = await asyncio.to_thread(manifests.entries, each, content)
            files = await asyncio.to_thread(manifests.live_files, each, content)
            if len(files) < len(named):
                raise Problem(409, f"{each.manifest_path} has files that do not say which offsets they hold")
            found += (one for one in files if one.partition == partition.index and one.first < below)
            if len(found) > FILES_MAX:
                raise Problem(
                    409,
                    f"more than {FILES_MAX:,} data files have rows of partition {partition.index}",
                    "wait until floe.table.compaction has made them fewer",
                )
        return sorted(found, key=lambda one: (one.first, one.location))


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
