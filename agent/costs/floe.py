"""Floe's rows of the bill."""

from __future__ import annotations

from collections.abc import Iterator

from agent.costs import coefficients as measured
from agent.costs.bill import Row, Side, between_zones, busy, requests, sent, stored
from agent.costs.cores import Cluster
from agent.costs.load import Load, Settings
from agent.costs.prices import HOURS_PER_MONTH, Prices
from coordination.snapshot_keeper import SnapshotOptions

PLANNER = "the flush planner at --put-time and --append-time, produce.*"
MERGES = "the merge planner, merging.*"
KEPT = "collection.grace_s"
EARLY = SnapshotOptions()


def rows(load: Load, settings: Settings, found: Cluster, prices: Prices) -> Iterator[Row]:
    """All of Floe but tables, then the tables."""
    yield from _requests(load, settings, found, prices)
    yield from _storage(load, settings, found, prices)
    yield from _cores(load, found, prices)
    yield from _network(load, found, prices)
    if found.tables is not None:
        yield from _tables(found, prices)


def _requests(load: Load, settings: Settings, found: Cluster, prices: Prices) -> Iterator[Row]:
    side, put, get, merged = Side.FLOE, prices.put_per_1000, prices.get_per_1000, found.merging
    yield requests(side, "PUT chunks", found.chunks_per_s, put, PLANNER)
    yield requests(side, "PUT segments, manifests", merged.puts, put, MERGES)
    early = min(1 / EARLY.seconds_min, found.chunks_per_s / EARLY.revisions_min)  # of a state of 5 MB at most
    snapshots = max(1 / settings.snapshots.interval_s, early)
    yield requests(side, "PUT snapshots of the state", snapshots, put, "snapshots.*")
    tail = (
        found.chunks_per_s * (load.zones - 1) * measured.ZONE_GETS_PER_CHUNK.value if _is_read(load) else 0.0
    )
    yield requests(side, "GET the tail in other zones", tail, get, measured.ZONE_GETS_PER_CHUNK.source)
    cold = load.cold_read / min(measured.FETCH_BYTES.value, merged.segment_bytes)
    cold += load.cold_read / merged.segment_bytes  # of a segment's index
    yield requests(side, "GET old data", cold, get, measured.FETCH_BYTES.source)
    yield requests(side, "GET for merging", merged.gets, get, f"{MERGES}; {measured.MERGE_GETS_64K.source}")
    work = found.compaction
    if load.compacted:
        yield requests(side, "PUT by compaction", work.puts, put, measured.REWRITE_RATIO.source)
        yield requests(side, "GET for compaction", work.gets, get, measured.REWRITE_RATIO.source)
    deletes = (found.chunks_per_s + merged.puts + work.puts) / measured.LIST_KEYS.value
    yield requests(side, "DELETE", deletes, prices.delete_per_1000, measured.LIST_KEYS.source)


def _is_read(load: Load) -> bool:
    """Whether anybody reads what another zone wrote: consumers, or the committers of tables."""
    return bool(load.fanout * (1 - load.read_cold) or load.tables)


def _storage(load: Load, settings: Settings, found: Cluster, prices: Prices) -> Iterator[Row]:
    side, price, merged = Side.FLOE, prices.object_gib_month, found.merging
    kept = 1 - load.compacted * (1 - load.survives)
    in_chunks = load.write * (merged.every_s + settings.kept_s)
    yield stored(side, "chunks until they are merged", in_chunks, price, f"{MERGES}, {KEPT}")
    segments = load.write * kept * load.retention_s
    yield stored(side, "segments", segments, price, "--write, --retention")
    late = load.partitions * merged.segment_bytes / 2
    yield stored(side, "segments until all of each is old", late, price, MERGES)
    replaced = (load.write * merged.rewrites + found.compaction.written) * settings.kept_s
    yield stored(side, "segments replaced lately", replaced, price, f"{MERGES}, {KEPT}")


def _cores(load: Load, found: Cluster, prices: Prices) -> Iterator[Row]:
    side, hour = Side.FLOE, prices.vcpu_hour * HOURS_PER_MONTH
    yield busy(side, "produce", found.produce, measured.PRODUCE_DEFAULT.source)
    yield busy(side, "fetch, the tail", found.fetch_tail, measured.FETCH_TAIL.source)
    yield busy(side, "fetch, old data", found.fetch_cold, measured.FETCH_COLD.source)
    yield busy(
        side,
        "each agent follows and applies the log",
        found.apply * found.agents,
        measured.FOLLOW_ENTRY.source,
    )
    yield busy(side, "merging", found.merging.cores, measured.MERGE_64K.source)
    if load.compacted:
        yield busy(side, "compaction", found.compaction.cores, measured.COMPACT.source)
    paid = found.agents * load.cores_each
    yield Row(side, "cores", f"{found.agents} agents", paid, "vCPU", hour, "--busy, --cores-each, --zones")
    members = measured.LOG_MEMBERS
    yield Row(side, "cores", "etcd", members.value * measured.LOG_CORES.value, "vCPU", hour, members.source)
    disks = members.value * measured.LOG_DISK.value
    yield Row(side, "storage", "etcd's disks", disks, "GiB", prices.block_gib_month, measured.LOG_DISK.source)


def _network(load: Load, found: Cluster, prices: Prices) -> Iterator[Row]:
    side, price, away = Side.FLOE, prices.between_zones_gib, (load.zones - 1) / load.zones
    told = "clients say their zone (--zoned)" if load.zoned else "clients say no zone (--unzoned)"
    clients = 0.0 if load.zoned else away
    yield sent(side, "producers to agents", load.write * clients, price, told)
    yield sent(side, "agents to consumers", load.write * load.fanout * clients, price, told)
    entries = load.batches_per_s * measured.LOG_BYTES_PER_BATCH.value
    copies = between_zones(int(measured.LOG_MEMBERS.value), load.zones) + away * (1 + found.agents)
    yield sent(
        side,
        "etcd to its members and to agents",
        entries * copies,
        price,
        measured.LOG_BYTES_PER_BATCH.source,
    )


def _tables(found: Cluster, prices: Prices) -> Iterator[Row]:
    side, work, put = Side.TABLES, found.tables, prices.put_per_1000
    assert work is not None, "asked for where there are tables"
    pace = "tables.interval_ms, objects_per_s_max"
    yield requests(side, "PUT data files of commits", work.data_puts, put, pace)
    yield requests(side, "PUT metadata of commits", work.metadata_puts, put, measured.COMMIT_OBJECTS.source)
    growth = "the compaction's planner, tables.compacted_file_bytes"
    yield requests(side, "PUT by compaction", work.compaction_puts, put, growth)
    yield requests(side, "GET for compaction", work.gets, prices.get_per_1000, growth)
    yield requests(
        side, "LIST for files that nobody names", work.lists, prices.list_per_1000, "tables.orphan_interval_s"
    )
    gib = prices.object_gib_month
    yield stored(side, "rows", work.rows_bytes, gib, "--table-ratio, --table-retention")
    kept = "floe.table.history.ms, tables.orphan_grace_s"
    yield stored(side, "files replaced lately", work.replaced_bytes, gib, f"{growth}; {kept}")
    yield stored(side, "metadata", work.metadata_bytes, gib, f"{measured.COMMIT_BYTES_100.source}; {kept}")
    yield busy(side, "commits", work.commit_cores, measured.TABLE_COMMIT.source)
    yield busy(side, "compaction", work.compaction_cores, measured.TABLE_COMPACT.source)
