"""The figures that nobody counts for Prometheus: read when it asks. Each name has one meaning and one unit.

What counts for itself is in metrics.py. docs/metrics.md lists both (telemetry/docs.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric


@dataclass(frozen=True, slots=True)
class Figure:
    """One family. A counter's name is without the `_total` that Prometheus sees."""

    name: str
    kind: Literal["gauge", "counter"]
    text: str
    labels: tuple[str, ...] = ()

    def family(self, samples: Iterable[tuple[tuple[str, ...], float]]) -> Metric:
        """As the client library writes it: values of the labels, and the value."""
        made: Callable[..., GaugeMetricFamily | CounterMetricFamily] = (
            GaugeMetricFamily if self.kind == "gauge" else CounterMetricFamily
        )
        family = made(f"floe_{self.name}", self.text, labels=list(self.labels))
        for values, value in samples:
            family.add_metric(list(values), value)
        return family


FIGURES = {
    each.name: each
    for each in (
        Figure("revision", "gauge", "Log revision applied"),
        Figure("lag_revisions", "gauge", "Revisions known to be in the log and not applied"),
        Figure("lag_seconds", "gauge", "Seconds since this agent was first seen behind the log"),
        Figure("ready", "gauge", "1 when /readyz answers 200"),
        Figure("drained", "gauge", "1 while this agent is drained and nothing else is wrong with it"),
        Figure("dependency_up", "gauge", "1 while the log or the store can be read and written", ("name",)),
        Figure("event_loop_delay_seconds", "gauge", "The latest of the newest turns"),
        Figure("check", "gauge", "1 while a check of /readyz is fine", ("name",)),
        Figure(
            "job_failing_since_seconds", "gauge", "Unix time of the first failure since a success", ("name",)
        ),
        Figure("defects", "counter", "Exceptions that nobody expected, by where they ended", ("place",)),
        Figure(
            "newest_defect_seconds",
            "gauge",
            "Unix time of the newest exception that nobody expected, by where it ended",
            ("place",),
        ),
        Figure("restart_needed", "gauge", "1 while a file's content is not what is used", ("setting",)),
        Figure("memory_limit_bytes", "gauge", "Memory that this agent may use; none: no limit is known"),
        Figure(
            "memory_needed_bytes", "gauge", "Memory that it uses when all that is configured is full at once"
        ),
        Figure("clock_skew_ms", "gauge", "Distance of this agent's clock from what most agents say"),
        Figure(
            "state_disputes", "counter", "Times another agent had another state: /status has what was found"
        ),
        Figure("state_rebuilds", "counter", "States made anew after another agent had another one"),
        Figure("replica_queue_bytes", "gauge", "Bytes of commands waiting for their append"),
        Figure("deleted_topics", "gauge", "Topics that were deleted and can come back"),
        Figure("deleted_topics_bytes", "gauge", "Bytes of records that deleted topics hold in the bucket"),
        Figure("held_partitions", "gauge", "Partitions that hold records below their log start"),
        Figure("applied_entries", "counter", "Log entries applied"),
        Figure("cache_bytes", "gauge", "Bytes of caches for readers", ("cache",)),
        Figure(
            "produce_buffered_bytes", "gauge", "Bytes of records that wait for a chunk or are being written"
        ),
        Figure(
            "produce_buffer_bytes_max", "gauge", "Bytes of such records above which connections are not read"
        ),
        Figure("produce_held_bytes", "gauge", "Bytes of produce requests that are not answered yet"),
        Figure("fetch_sessions", "gauge", "Fetch sessions kept"),
        Figure("fetch_session_partitions", "gauge", "Partitions that fetch sessions have together"),
        Figure("rules_held_bytes", "gauge", "Bytes of batches whose rules are evaluated or wait for it"),
        Figure("rules_waiting", "gauge", "Batches that wait for a worker that evaluates rules"),
        Figure("rules_workers", "gauge", "Processes that evaluate rules"),
        Figure("groups_running", "gauge", "Consumer groups that run at this agent", ("protocol",)),
        Figure(
            "leader_changes", "counter", "Times that partitions got other leaders, as agents came or went"
        ),
        Figure("topic_produce_bytes", "counter", "Bytes of batches, of the busiest topics", ("topic",)),
        Figure("topic_produce_records", "counter", "Records accepted, of the busiest topics", ("topic",)),
        Figure("topic_fetch_bytes", "counter", "Bytes sent to consumers, of the busiest topics", ("topic",)),
        Figure("read_slices", "counter", "Slices of records read, by where they were found", ("source",)),
        Figure("store_reads", "counter", "Reads of the store for readers of records, by of what", ("of",)),
        Figure("store_read_bytes", "counter", "Bytes that these reads gave, by of what", ("of",)),
        Figure("warmed_bytes", "counter", "Bytes read ahead when partitions moved here"),
        Figure("whole_chunk_hits", "counter", "Whole chunks found in the zone's cache"),
        Figure("peer_requests", "counter", "Requests to peers"),
        Figure("peer_request_faults", "counter", "Requests to peers that were of no use, by why", ("why",)),
        Figure("peer_read_bytes", "counter", "Bytes of records that peers gave"),
        Figure("peer_served", "counter", "Requests of peers that were answered"),
        Figure("peer_served_bytes", "counter", "Bytes of records that peers were given"),
        Figure("peer_refused", "counter", "Requests of peers that were told to read the bucket"),
        Figure("relay_followed", "gauge", "1 while the log comes from an agent of the zone, 0 from etcd"),
        Figure("relay_entries", "counter", "Entries of the log that came from an agent of the zone"),
        Figure("relay_left", "counter", "Times that this agent left its zone's relay, by why", ("why",)),
        Figure("relay_followers", "gauge", "Agents that follow the log by this one"),
        Figure("relay_sent_bytes", "counter", "Bytes of the log that these were sent"),
        Figure("relay_kept_bytes", "gauge", "Bytes of newest entries that are kept for them"),
    )
}
"""By name, in the order in which they are shown."""

Place = tuple[str, tuple[str, ...]]
RELAY_LEFT = ("refused", "gone", "silent", "behind", "damaged", "differs", "nonsense", "moved")
"""Why a relay is left (agent/cluster/relay/stream.py)."""

READS: Mapping[str, Place] = {
    "tail_hits": ("read_slices", ("tail",)),
    "cold_hits": ("read_slices", ("cold",)),
    "misses": ("read_slices", ("elsewhere",)),
    "peer_hits": ("read_slices", ("peer",)),
    "gets": ("store_reads", ("records",)),
    "index_gets": ("store_reads", ("index",)),
    "whole_gets": ("store_reads", ("chunk",)),
    "get_bytes": ("store_read_bytes", ("records",)),
    "whole_get_bytes": ("store_read_bytes", ("chunk",)),
    "warmed_bytes": ("warmed_bytes", ()),
    "whole_hits": ("whole_chunk_hits", ()),
    "peer_asked": ("peer_requests", ()),
    "peer_failed": ("peer_request_faults", ("failed",)),
    "peer_hedged": ("peer_request_faults", ("hedged",)),
    "peer_corrupt": ("peer_request_faults", ("corrupt",)),
    "peer_hit_bytes": ("peer_read_bytes", ()),
    "peer_served": ("peer_served", ()),
    "peer_served_bytes": ("peer_served_bytes", ()),
    "peer_refused": ("peer_refused", ()),
    "relay_followed": ("relay_followed", ()),
    "relay_entries": ("relay_entries", ()),
    **{f"relay_left_{why}": ("relay_left", (why,)) for why in RELAY_LEFT},
    "relay_followers": ("relay_followers", ()),
    "relay_sent_bytes": ("relay_sent_bytes", ()),
    "relay_kept_bytes": ("relay_kept_bytes", ()),
}
"""Where what an agent counts of reads (agent/app.py, agent/cluster/peers/service.py) is shown."""

QUEUES: Mapping[str, Place] = {
    "cached_bytes": ("cache_bytes", ("records",)),
    "index_cached_bytes": ("cache_bytes", ("index",)),
    "produce_buffered_bytes": ("produce_buffered_bytes", ()),
    "produce_held_bytes": ("produce_held_bytes", ()),
    "fetch_sessions": ("fetch_sessions", ()),
    "fetch_session_partitions": ("fetch_session_partitions", ()),
    "rules_bytes": ("rules_held_bytes", ()),
    "rules_waiting": ("rules_waiting", ()),
    "rules_workers": ("rules_workers", ()),
    "groups_classic": ("groups_running", ("classic",)),
    "groups_consumer": ("groups_running", ("consumer",)),
    "leader_changes": ("leader_changes", ()),
}
"""The same of queues and caches; the others that /status shows are metrics of their own (metrics.py)."""


def families(values: Mapping[str, int], places: Mapping[str, Place]) -> Iterator[Metric]:
    """What was read by `values`' names, as families."""
    found: dict[str, list[tuple[tuple[str, ...], float]]] = {}
    for name, value in values.items():
        if name in places:
            figure, labels = places[name]
            found.setdefault(figure, []).append((labels, value))
    for figure, samples in found.items():
        yield FIGURES[figure].family(samples)
