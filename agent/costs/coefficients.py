"""What was measured or assumed, each with where it comes from. Settings, prices and constants are elsewhere.

A row of docs/benchmarks.md is quoted by its name; a test holds value and row together.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Coefficient:
    """A number, its unit and its origin. `row`: the name of its row in docs/benchmarks.md, or empty."""

    value: float
    unit: str
    source: str
    row: str = ""


def _measured(value: float, unit: str, bench: str, row: str) -> Coefficient:
    return Coefficient(value, unit, f"{bench}: {row}", row)


def _assumed(value: float, unit: str, why: str) -> Coefficient:
    return Coefficient(value, unit, f"assumed: {why}")


BATCH_LARGE, BATCH_DEFAULT = 256_000, 16_000
"""Batches of the two loads of bench_cost, bytes."""
_CPU = "CPU-s/GB"
_PRODUCE = "server's CPU of produce, batches of"
PRODUCE_LARGE = _measured(1.53, _CPU, "bench_cost", f"{_PRODUCE} 256 kB")
PRODUCE_DEFAULT = _measured(6.11, _CPU, "bench_cost", f"{_PRODUCE} 16 kB")
FETCH_TAIL = _measured(0.29, _CPU, "bench_cost", "server's CPU of fetching the tail")
FETCH_COLD = _measured(2.54, _CPU, "bench_cost", "agent CPU of fetching old data")
LOG_BYTES_PER_BATCH = _measured(11.7, "B", "bench_cost", "bytes of the log per batch, batches of 16 kB")
KAFKA_PRODUCE_LARGE = _measured(2.75, _CPU, "bench_cost", f"{_PRODUCE} 256 kB")
KAFKA_PRODUCE_DEFAULT = _measured(9.41, _CPU, "bench_cost", f"{_PRODUCE} 16 kB")
KAFKA_FETCH = _measured(0.39, _CPU, "bench_cost", "server's CPU of fetching the tail")
APPLY = _measured(1_049_273, "slices/s/core", "bench_apply", "apply, chunks of 30 batches, idempotent")

_MERGING = "merging, 128 partitions, slices of"
MERGE_64K = _measured(284.29, "MB/s", "bench_merging", f"{_MERGING} 64 kB: per core")
MERGE_1K = _measured(36.26, "MB/s", "bench_merging", f"{_MERGING} 1 kB: per core")
MERGE_GETS_64K = _measured(0.37, "GETs/MB", "bench_merging", f"{_MERGING} 64 kB: reads of the store")
MERGE_BENCH_SLICES = (64_000, 1_000)
"""Bytes of a slice in these rows."""
COMPACT = _measured(82.78, "MB/s", "bench_compaction", "compaction, per core: 1000 B values, none")

TABLE_COMMIT = _measured(445.0, "MB/s/core", "bench_tables", "committer, 1 kB raw records")
TABLE_BENCH_RECORD = 1_000
"""Bytes of a record in that row."""
TABLE_COMPACT = _measured(
    6.55, _CPU, "bench_table_compaction", "compaction of a table, 1 kB raw records, helper process"
)
COMMIT_OBJECTS = _measured(
    3.39, "PUTs", "bench_table_metadata", "metadata of a commit after 250, 100 partitions, 0 columns: objects"
)
COMMIT_BYTES_1 = _measured(
    31.61, "kB", "bench_table_metadata", "metadata of a commit after 250, 1 partitions, 0 columns: bytes"
)
COMMIT_BYTES_100 = _measured(
    95.28, "kB", "bench_table_metadata", "metadata of a commit after 250, 100 partitions, 0 columns: bytes"
)
ZONE_GETS_PER_CHUNK = _measured(
    1.0,
    "GETs",
    "bench_zones",
    "GETs at the tail, 3 zones, 2 agents in each, 12 consumers, per chunk and zone that did not write it",
)

_SCALE = "scale, real agents"
IDLE = _measured(1.5, "% of a core", "bench_scale", f"{_SCALE}: an idle agent of three")
FOLLOW_ENTRY = _measured(551.0, "µs", "bench_scale", f"{_SCALE}: to follow and apply an entry")
FOLLOW_CROWD = _measured(
    141.0, "µs", "bench_scale", f"{_SCALE}: to follow and apply one of many entries that come at once"
)
LIVE_AGENT = _measured(27.6, "ns", "bench_scale", f"{_SCALE}: to apply an entry, for each live agent")
FLUSH = _measured(2_646.0, "µs", "bench_scale", f"{_SCALE}: a request of one batch, alone in its chunk")
RELAYED = _measured(87.4, "µs", "bench_scale", f"{_SCALE}: to hand an entry on to one follower")
ETCD_APPEND = _measured(1_244.0, "µs", "bench_scale", f"{_SCALE}: etcd's CPU of an append")
ETCD_CROWD = _measured(200.0, "µs", "bench_scale", f"{_SCALE}: etcd's CPU of an append, one of many at once")
ENTRY_BYTES = _measured(47.7, "B", "bench_scale", f"{_SCALE}: bytes of the log of an entry, batches left out")
WATCH_BYTES = _measured(
    101.0, "B", "bench_scale", f"{_SCALE}: sent by etcd with an entry to one watch, the entry left out"
)
ANSWER_BYTES = _measured(43.7, "B", "bench_scale", f"{_SCALE}: sent by etcd to the author of an entry")
PUTS_LARGE = _measured(0.19, "PUTs/MiB", "bench_cluster_produce", "PUTs of that, full load (large batches)")
PUTS_DEFAULT = _measured(0.97, "PUTs/MiB", "bench_cluster_produce", "PUTs of that, client's defaults")
STATE_PRODUCER = _measured(272.54, "B", "bench_steps", "500,000 producers, memory of each")

ETCD_EVENT = Coefficient(31.0, "µs", "decision 0022 (bench_fanout): etcd's CPU of 50 watches less that of 12")
STATE_PARTITION = Coefficient(1_840.0, "B", "decision 0034 (bench_state): a replica of 200,000 partitions")
STATE_MAX = _assumed(1.0, "GiB", "what an agent's state may take (issue's goal for 200,000 partitions)")
NETWORK = _assumed(625_000_000, "B/s", "5 Gbit/s, what a virtual machine of two cores has for long")
FETCH_BYTES = _assumed(
    1_048_576, "B", "consumers' max.partition.fetch.bytes, Kafka's default, in each read of old data"
)
REWRITE_RATIO = _assumed(2.0, "bytes read per new byte", "min.cleanable.dirty.ratio is 0.5, Kafka's default")
LOG_MEMBERS = _assumed(3, "members", "of etcd, and controllers of Kafka, one in each of three zones")
LOG_CORES = _assumed(2, "vCPU", "of each of them")
LOG_DISK = _assumed(20, "GiB", "of each of them")
ENTRIES_MAX = _assumed(1_000, "entries/s", "what one log is designed for (docs/limits.md)")
LIST_KEYS = _assumed(1_000, "keys", "of one LIST or DELETE request, S3's bound")
MEASURED = tuple(each for each in list(globals().values()) if isinstance(each, Coefficient) and each.row)
"""All that quote a row."""
