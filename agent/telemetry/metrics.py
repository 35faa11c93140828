"""What an agent measures, as Prometheus metrics in a registry of its own.

Every metric is an attribute, so that a misspelt one fails type checking. Labels are bound once
(`metrics.request("Produce")`), never on a hot path. Times are seconds, sizes bytes; the caller
measures with its Clock and passes the figure. What can be read when Prometheus asks is not here but in
agent/http/gauges.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Info,
    disable_created_metrics,
)
from prometheus_client.gc_collector import GCCollector
from prometheus_client.process_collector import ProcessCollector

from agent.telemetry.tally import Tally
from agent.telemetry.traffic import Traffic

FAST_S = (0.0005, 0.001, 0.002, 0.004, 0.008, 0.015, 0.03, 0.06, 0.125, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
# A second line for each counter, of which nobody asks.
disable_created_metrics()  # type: ignore[no-untyped-call]  # the library leaves this one without types
CHUNK_BYTES = tuple(float(4**n * 1024) for n in range(8))  # 1 KiB … 16 MiB


@dataclass(frozen=True, slots=True)
class RequestMetrics:
    """What is counted for one Kafka API; bound once per API."""

    count: Counter
    seconds: Histogram


class Metrics:
    """All metrics of one agent."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self.registry = registry or CollectorRegistry()
        self.before_reading: list[Callable[[], None]] = []
        """Called in the event loop before the metrics are read: whatever names topics forgets those gone."""
        self.traffic = Traffic()
        self.build = Info(
            "floe_build", "Version of the code, and which native modules it uses", registry=self.registry
        )
        self._wire()
        self._doors()
        self._quotas()
        self._produce()
        self._rules()
        self._fetch()
        self._groups()
        self._traces()
        self._log()
        self._archive()
        self._scrub()
        self._tables()
        self._latest()
        self._around_tables()
        ProcessCollector(registry=self.registry)  # CPU seconds, resident memory, open files
        GCCollector(registry=self.registry)

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"floe_{name}", text, labels, registry=self.registry)

    def _tally(self, name: str, text: str) -> Tally:
        return Tally(f"floe_{name}", text, self.registry)

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(f"floe_{name}", text, labels, registry=self.registry)

    def _seconds(self, name: str, text: str, *labels: str) -> Histogram:
        return Histogram(f"floe_{name}_seconds", text, labels, buckets=FAST_S, registry=self.registry)

    def _wire(self) -> None:
        self.connections = self._gauge("connections", "Kafka connections open")
        self.connections_refused = self._counter("connections_refused", "Connections closed at the limit")
        self.requests_waiting = self._gauge(
            "requests_waiting", "Requests that have come and not begun: they take turns in the event loop"
        )
        self.strangers = self._gauge(
            "strangers", "Connections that have not done their TLS handshake or their login"
        )
        self.handshakes_failed = self._counter("handshakes_failed", "TLS handshakes that failed", "listener")
        self.frames_refused = self._counter("frames_refused", "Connections closed for what they sent")
        self.request_bytes = self._gauge("request_bytes_held", "Bytes of requests being worked on")
        self.bytes_in = self._tally("bytes_in", "Bytes received from Kafka clients")
        self.bytes_out = self._tally("bytes_out", "Bytes sent to Kafka clients")
        self.http_requests = self._counter("http_requests", "HTTP requests answered", "route", "status")
        self.requests = self._counter("requests", "Kafka requests answered", "api")
        self.request_seconds = self._seconds("request", "Time from frame to answer", "api")
        self._bound: dict[str, RequestMetrics] = {}

    def _doors(self) -> None:
        """Who comes in, and what he may."""
        self.logins = self._counter("logins", "SASL logins", "mechanism", "outcome")
        self.audit_events = self._counter("audit_events", "Events of the audit log", "kind")
        self.audit_lost = self._counter(
            "audit_lost", "Events of the audit log that its topic or the agent's log did not get"
        )
        self.authorizer_refused = self._counter(
            "authorizer_refused",
            "Requests for a resource that no ACL allows; in shadow mode they went on",
            "mode",
            "operation",
            "resource",
        )
        self.tls_renewal_failing = self._gauge(
            "tls_renewal_failing",
            "1 while certificates on the disk cannot be used, those of HTTP (http) and of peers (peers) too",
            "listener",
        )
        self.users_file_failing = self._gauge(
            "users_file_failing", "1 while the file of PLAIN's users on the disk cannot be used"
        )
        self.jwks_failing = self._gauge(
            "jwks_failing", "1 while newer keys of OAUTHBEARER's tokens cannot be had: the known serve on"
        )
        self.jwks_lookups = self._counter("jwks_lookups", "Looks at oauth.jwks_url", "outcome")
        self.tls_expires_seconds = self._gauge(
            "tls_expires_seconds",
            "Unix time when the certificate of a listener ends, or of HTTP (http), or towards peers (peers)",
            "listener",
        )

    def _quotas(self) -> None:
        """How much clients take."""
        self.throttled_requests = self._counter(
            "throttled_requests", "Requests whose client was slowed down for a quota", "quota"
        )
        self.throttled_seconds = self._counter(
            "throttled_seconds",
            "Time that clients were slowed down, by who shares the quota",
            "entity",
            "quota",
        )
        self.quota_entities = self._gauge(
            "quota_entities", "Users and client ids of which is remembered what they took"
        )
        self.connections_held = self._counter(
            "connections_held", "New connections that waited, or were turned away", "listener", "why"
        )

    def _produce(self) -> None:
        self.produce_bytes = self._tally("produce_bytes", "Bytes of accepted record batches")
        self.produce_records = self._tally("produce_records", "Records accepted")
        self.produce_rejected = self._counter("produce_rejected", "Batches refused", "topic", "reason")
        self.put_seconds = self._seconds("put", "PUT of a chunk")
        self.get_hedged = self._counter("get_hedged", "GETs sent a second time because they were slow")
        self.put_hedged = self._counter("put_hedged", "PUTs sent a second time because they were slow")
        self.put_failed = self._counter("put_failed", "PUTs that failed for good")
        self.puts_in_flight = self._gauge("puts_in_flight", "Chunks being written")
        self.chunk_bytes = Histogram(
            "floe_chunk_bytes", "Size of a chunk", buckets=CHUNK_BYTES, registry=self.registry
        )

    def _rules(self) -> None:
        """Of rules of protovalidate (`floe.value.rules`, `floe.key.rules`)."""
        self.rules_records = self._counter("rules_records", "Records whose rules were evaluated", "topic")
        self.rules_bad_records = self._counter(
            "rules_bad_records", "Of these, records that broke rules, kept or refused", "topic"
        )
        self.rules_broken = self._counter(
            "rules_broken", "How often a rule was broken", "topic", "role", "rule"
        )
        self.rules_failed = self._counter(
            "rules_failed", "Batches whose rules could not be evaluated", "topic"
        )
        self.rules_quarantined = self._counter(
            "rules_quarantined", "Records that were set aside in the topic's quarantine", "topic"
        )

    def _fetch(self) -> None:
        self.fetch_bytes = self._counter("fetch_bytes", "Bytes of record batches sent")
        self.fetch_redacted = self._counter(
            "fetch_redacted_records", "Records sent without fields that their schema marks"
        )
        self.fetch_withheld = self._counter(
            "fetch_withheld_records", "Records whose value was withheld, as no schema says what is in it"
        )
        self.fetch_reframed = self._counter(
            "fetch_reframed_records", "Records sent with another frame than they were written with"
        )
        self.fetch_unframed = self._counter(
            "fetch_unframed_records",
            "Records whose reader wants a frame and that no registered schema is for",
        )
        self.damaged_reads = self._counter(
            "damaged_reads", "Reads that met records which are damaged or lost", "topic"
        )
        # An alert asks for this one: a topic's count begins at 1, of which `increase` knows nothing.
        self.newest_damaged_read = self._gauge(
            "newest_damaged_read_seconds",
            "Unix time of the newest read that met damaged or lost records",
            "topic",
        )
        self.fetch_parked = self._gauge("fetch_parked", "Fetches waiting for records")
        self.fetch_sessions_evicted = self._counter(
            "fetch_sessions_evicted", "Fetch sessions that made room for others"
        )
        self.fetch_sessions_refused = self._counter(
            "fetch_sessions_refused", "Fetches that wanted a session, or a larger one, and found no room"
        )
        self.transactions_ended = self._counter("transactions_ended", "Transactions ended by clients", "how")
        self.transactions_stale = self._counter(
            "transactions_stale", "Connections closed for a request older than its transaction"
        )

    def _traces(self) -> None:
        """Of traces."""
        self.traces_kept = self._counter("traces_kept", "Traces kept for the collector", "why")
        self.traces_lost = self._counter(
            "traces_lost", "Traces that would have been kept and were not sent", "why"
        )

    def _groups(self) -> None:
        self.offset_commits = self._counter("offset_commits", "Positions of groups stored, by partition")
        self.group_lag_records = self._gauge(
            "group_lag_records",
            "Offsets that a group has not passed, of the latest groups; each agent says it",
            "group",
            "topic",
        )
        self.group_lag_seconds = self._gauge(
            "group_lag_seconds",
            "Age of the oldest record that a group has not passed, of the latest groups; each agent says it",
            "group",
            "topic",
        )

    def _log(self) -> None:
        self.append_seconds = self._seconds("append", "Append to the log until its outcome is known")
        self.append_bytes = self._counter("append_bytes", "Bytes appended to the log")
        self.incarnations = self._counter("incarnations", "Times this agent registered anew")
        self.compacted_bytes = self._counter("compacted_bytes", "Record bytes that compaction read")
        self.compacted_away_bytes = self._counter(
            "compacted_away_bytes", "Record bytes that compaction left out"
        )
        self.compactions_failed = self._counter("compactions_failed", "Compactions given up for now")
        self.log_starts_moved = self._counter("log_starts_moved", "Log starts moved by retention")
        self.merge_swaps = self._counter("merge_swaps", "Partitions whose slices were swapped for a segment")
        self.merge_refused = self._counter("merge_refused", "Swaps refused because something had changed")
        self.merge_rows = self._counter("merge_rows", "Slices that merging took out of the state")
        self.merge_bytes = self._counter("merge_bytes", "Record bytes that merging read and wrote")
        self.merge_rewritten_bytes = self._counter(
            "merge_rewritten_bytes", "Bytes of segments that merging took along and wrote anew"
        )
        self.merge_gets = self._counter("merge_gets", "Reads of the store by merging")
        self.merges_failed = self._counter("merges_failed", "Merges given up for now")
        self.collected_objects = self._counter("collected_objects", "Chunks removed by collection")

    def _archive(self) -> None:
        """Of the log in the bucket. What is no count is told by the agent that writes it; others say 0."""
        self.archive_lag_seconds = self._gauge(
            "log_archive_lag_seconds", "Age of the oldest entry that is worth archiving and is not yet"
        )
        self.archive_lag_revisions = self._gauge(
            "log_archive_lag_revisions", "Revisions between the archive's end and what was applied"
        )
        self.archive_missing = self._gauge(
            "log_archive_missing_revisions", "Revisions between pieces that are in no piece"
        )
        self.archive_pieces = self._counter("log_archive_pieces", "Pieces of the log written to the bucket")
        self.archive_bytes = self._counter("log_archive_bytes", "Bytes of the log's pieces that were written")
        self.archive_failures = self._counter("log_archive_failures", "Looks at the archive that failed")
        self.follow_behind_seconds = self._gauge(
            "follow_behind_seconds",
            "Age of the newest entry that a replica of a bucket has applied; others: 0",
        )
        self.follow_blocked = self._gauge(
            "follow_blocked", "1 while a replica of a bucket cannot go on: a piece is missing or damaged"
        )

    def _scrub(self) -> None:
        """Of what lies in the bucket, read again. What is no count is told by the agent that does it."""
        self.scrub_bytes = self._counter("scrub_bytes", "Bytes of the bucket that scrubbing read")
        self.scrub_objects = self._counter("scrub_objects", "Objects that scrubbing looked at")
        self.scrub_found = self._counter("scrub_found", "Objects that scrubbing found damaged or lost")
        self.scrub_repaired = self._counter("scrub_repaired", "Objects that scrubbing made whole again")
        self.scrub_unread = self._counter("scrub_unread", "Objects that scrubbing could not read")
        self.scrub_beyond_repair = self._gauge(
            "scrub_beyond_repair", "Objects that are damaged or lost, and that nothing can mend"
        )
        self.scrub_round_seconds = self._gauge(
            "scrub_round_seconds", "Time since the present round of scrubbing began; 0 between two"
        )

    def _tables(self) -> None:
        self.table_rows = self._counter("table_rows", "Rows committed to tables", "topic")
        self.table_freshness_seconds = self._gauge(
            "table_freshness_seconds", "Age of the newest row when it was committed", "topic"
        )
        self.table_files = self._gauge("table_files", "Data files of a table", "topic")
        self.table_bytes = self._gauge("table_bytes", "Bytes of a table's data files", "topic")
        self.table_snapshots = self._gauge("table_snapshots", "Snapshots that a table keeps", "topic")
        self.table_last_compaction_seconds = self._gauge(
            "table_last_compaction_seconds",
            "When small files last became large, Unix time",
            "topic",
        )
        self.table_rows_behind = self._gauge(
            "table_rows_behind", "Offsets that a table has not taken; each agent says it", "topic"
        )
        self.table_seconds_behind = self._gauge(
            "table_seconds_behind",
            "Age of the oldest record that a table lacks; each agent says it",
            "topic",
        )
        self.table_problems = self._gauge(
            "table_problems", "What is wrong with a table that goes on all the same", "topic"
        )

    def _latest(self) -> None:
        """Of the tables of topics' newest rows (`floe.table.mode=upsert`)."""
        self.latest_rows_behind = self._gauge(
            "latest_rows_behind", "Offsets that a __latest table has not taken; each agent says it", "topic"
        )
        self.latest_seconds_behind = self._gauge(
            "latest_seconds_behind",
            "Age of the oldest record that a __latest table lacks; each agent says it",
            "topic",
        )
        self.latest_problems = self._gauge(
            "latest_problems", "What is wrong with a __latest table that goes on all the same", "topic"
        )
        self.latest_files = self._gauge("latest_files", "Data files of a __latest table", "topic")
        self.latest_bytes = self._gauge("latest_bytes", "Bytes of a __latest table's data files", "topic")
        self.latest_snapshots = self._gauge("latest_snapshots", "Snapshots of a __latest table", "topic")

    def _around_tables(self) -> None:
        self.audit_last_equal_seconds = self._gauge(
            "audit_last_equal_seconds",
            "Unix time of the last audit that found topic and table equal; each agent says it",
            "topic",
        )
        self.audit_records_behind = self._gauge(
            "audit_records_behind",
            "Offsets that no audit has found equal; each agent says it",
            "topic",
        )
        self.audit_findings = self._gauge(
            "audit_findings", "What the newest audit found wrong; each agent says it", "topic"
        )
        self.table_publish_seconds_behind = self._gauge(
            "table_publish_seconds_behind",
            "Since when a table's entry in another catalog is not at its newest metadata",
            "catalog",
            "topic",
        )
        self.table_publish_moved = self._counter(
            "table_publish_moved", "Entries made or moved in other catalogs", "catalog"
        )
        self.table_publish_failed = self._counter(
            "table_publish_failed", "Tries to publish to other catalogs that failed", "catalog"
        )

    def request(self, api: str) -> RequestMetrics:
        """The metrics of one Kafka API by its name; the same object each time."""
        bound = self._bound.get(api)
        if bound is None:
            bound = RequestMetrics(self.requests.labels(api), self.request_seconds.labels(api))
            self._bound[api] = bound
        return bound
