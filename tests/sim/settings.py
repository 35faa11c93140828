"""How agents, cluster and topics of a run are configured: what takes hours elsewhere happens many times."""

from __future__ import annotations

from typing import Any

from tests.sim.plan import Plan

SETTINGS: dict[str, Any] = {
    "collection": {"interval_s": 2, "grace_s": 1},
    "produce": {"linger_ms": 5, "quiet_ms": 1},
    "merging": {"interval_ms": 500, "min_slices": 12, "keep_slices": 3, "segment_bytes": 1 << 16, "age_s": 5}
    | {"skipped_wait_s": 1},
    "compaction": {"dirty_bytes_min": 1024},
    "scrub": {"enabled": False},
}
SCRUBBED = {"bytes_per_s": 1 << 30, "round_s": 4, "begin_s": 0}
LONG_LEASE = {"url": "memory:", "lease_ttl_s": 10}
"""The default: an agent that is sick is taken out long before."""
SMALL_CACHES = {"cache_bytes_max": 1024, "cold_cache_bytes_max": 1024}
"""What an agent has in memory hides what is damaged in the bucket."""
NEAR = {
    "relay": {"enabled": True, "agents_min": 2},
    "peers": {"secret": "what all agents of the simulation know"},
}
CLUSTER = {
    "group.initial.rebalance.delay.ms": "300",
    "group.consumer.min.heartbeat.interval.ms": "300",
    "group.consumer.heartbeat.interval.ms": "500",
    "group.consumer.min.session.timeout.ms": "3000",
    "group.consumer.session.timeout.ms": "6000",
    "log.cleaner.backoff.ms": "500",
    "log.retention.check.interval.ms": "500",
    "offsets.retention.check.interval.ms": "1000",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
}
NEWEST = {"floe.delete.retention.ms": "6000", "floe.records.grace.ms": "4000"}
"""What those of the newest level have besides: deleted topics and records come back, or go, within a run."""
COMPACTED = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.1", "delete.retention.ms": "1500"}
SHORT_RETENTION = {"retention.bytes": "3000", "floe.table.retention": "follow"}


def settings_of(plan: Plan) -> dict[str, Any]:
    """Sections of each agent's settings."""
    return (
        SETTINGS
        | ({"log": LONG_LEASE} if plan.sick else {})
        | (NEAR if plan.near else {})
        | ({"fetch": SMALL_CACHES} if plan.hurt else {})
        | ({"scrub": SCRUBBED} if plan.scrubbed else {})
        | ({"schemas": {"allow_unknown": True}} if plan.binder or plan.beginners else {})
        | ({"produce": {"linger_ms": 20, "quiet_ms": 10}} if plan.beginners else {})
        | {
            "log_archive": {"enabled": plan.archived, "interval_ms": 500, "piece_bytes": 4096},
            "snapshots": {"interval_s": 2, "entries_max": plan.snapshot_entries},
            "tables": plan.tables(),
        }
    )
