"""The table side of an agent: committers and the REST catalog, as configured."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from google.protobuf.message import Message

from agent.background.lending import lender_of
from agent.background.traced_tables import TracedLatestSteps, TracedSteps
from agent.config import Config
from agent.telemetry.latest_figures import LatestFigures
from agent.telemetry.metrics import Metrics
from agent.telemetry.table_figures import TableFigures
from agent.telemetry.tracing import Traces
from agent.telemetry.trail import Trail, http_actor
from coordination.clock import Clock
from coordination.replica import Replica
from coordination.state.types import Result
from iceberg.metadata import Retention
from iceberg.options import CommitterOptions, Parts
from iceberg.rest_pointers import CatalogParts
from iceberg.service import CommitterService, ServiceOptions
from iceberg.small_files import FileSizes
from iceberg.upsert.plan import Pace
from iceberg.upsert.service import UpsertOptions, UpsertService
from iceberg.warehouse import Warehouse, s3_client_config
from objectstore.late import ready
from objectstore.merged import MergedRanges
from objectstore.reader import ChunkReader
from objectstore.store import ObjectStore

if TYPE_CHECKING:
    from iceberg.catalog import Catalog
    from iceberg.rest_access import Access

REGION_DEFAULT = "us-east-1"


def warehouse_of(config: Config) -> Warehouse:
    """Where the tables are. Raises OutsideWarehouse (a ValueError) when that is not below the store."""
    return Warehouse.of(config.store.url, config.warehouse)


class LateCatalog:
    """The REST catalog (iceberg/catalog.py), which is imported and made with its first request."""

    def __init__(self, parts: CatalogParts) -> None:
        self._parts = parts
        self._catalog: Catalog | None = None

    async def handle(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        body: bytes,
        access: Access | None = None,
        delegation: str = "",
    ) -> tuple[int, object | None]:
        """See iceberg.catalog.Catalog."""
        await ready("iceberg.catalog")
        from iceberg.catalog import Catalog

        self._catalog = self._catalog or Catalog(self._parts)
        return await self._catalog.handle(method, path, query, body, access, delegation)


def catalog_of(
    config: Config, replica: Replica, store: ObjectStore, clock: Clock, trail: Trail | None = None
) -> LateCatalog:
    """The REST catalog over this agent's state. Clients get locations and endpoints of it, and no credentials
    but those that are lent for one table.
    """
    access: dict[str, str] = {}
    if config.store.url.startswith("s3:"):
        region = config.store.region or REGION_DEFAULT
        access = s3_client_config(endpoint=config.store.endpoint, access_key="", secret_key="", region=region)
    lender = lender_of(config, clock)

    async def propose(message: Message) -> Result:
        told = trail.described([message], replica.state) if trail is not None else ()
        result = await replica.propose(message)
        if trail is not None:
            trail.decided(http_actor.get(), told, [result])
        return result

    return LateCatalog(CatalogParts(replica, store, warehouse_of(config), clock, access, lender, propose))


def parts_of(
    config: Config,
    replica: Replica,
    reader: ChunkReader,
    merged: MergedRanges,
    store: ObjectStore,
    clock: Clock,
) -> Parts:
    """What makes tables works with."""
    return Parts(replica, reader, merged, store, warehouse_of(config), clock, _options(config))


def committers_of(
    config: Config, parts: Parts, metrics: Metrics, traces: Traces | None = None
) -> CommitterService:
    """The service that turns topics into tables."""
    tables = config.tables
    service = CommitterService(
        parts,
        ServiceOptions(
            interval_s=tables.interval_ms / 1000,
            objects_per_s_max=tables.objects_per_s_max,
            committers_in_flight_max=tables.committers_in_flight_max,
            collect_s=tables.orphan_interval_s,
        ),
        steps=None if traces is None or not traces.on else lambda topic: TracedSteps(topic, traces),
    )
    figures = TableFigures(metrics, service.freshness_s)
    figures.also(
        lambda: {topic: (lag.rows, lag.seconds) for topic, lag in service.lags.now.items()},
        lambda: {topic: len(problems) for topic, problems in service.problems().items()},
        service.sizes,
        lambda: service.audits.now,
    )
    service.on_commit = lambda topic, done: figures.note(topic, done.rows)
    return service


def latest_of(config: Config, parts: Parts, metrics: Metrics, traces: Traces | None = None) -> UpsertService:
    """The service that keeps the tables of topics' newest rows."""
    tables = config.tables
    service = UpsertService(
        parts,
        UpsertOptions(
            interval_s=tables.interval_ms / 1000,
            pace=Pace(tables.latest_age_s, tables.latest_share_percent),
            busy_percent_max=tables.latest_busy_percent,
            collect_s=tables.orphan_interval_s,
        ),
        steps=None if traces is None or not traces.on else lambda topic: TracedLatestSteps(topic, traces),
    )
    LatestFigures(metrics, service)
    return service


def _options(config: Config) -> CommitterOptions:
    """What bounds the tables of all topics."""
    tables = config.tables
    return CommitterOptions(
        rows_per_commit_max=tables.rows_per_commit_max,
        bytes_per_commit_max=tables.bytes_per_commit_max,
        rows_per_file_max=tables.rows_per_file_max,
        files_in_flight_max=tables.files_in_flight_max,
        files=FileSizes(
            target_bytes=tables.compacted_file_bytes,
            merged_at=tables.compacted_at_files,
            age_s=tables.compaction_age_s,
            inputs_max=tables.files_per_merge_max,
            files_per_turn_max=tables.compaction_files_max,
            bytes_per_turn_max=tables.compaction_bytes_max,
            busy_percent_max=tables.compaction_busy_percent,
        ),
        retention=Retention(history_max=tables.snapshots_max),
        manifests_merged_at=tables.manifests_merged_at,
        orphan_grace_s=tables.orphan_grace_s,
        raw_bytes=tables.raw_bytes,
        types_max=tables.types_max,
        latest_file_bytes=tables.latest_file_bytes,
        latest_bytes_max=tables.latest_bytes_max,
    )
