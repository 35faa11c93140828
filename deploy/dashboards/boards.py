"""All of Floe's dashboards. Metrics of agents only: etcd and the store have dashboards of their own."""

from __future__ import annotations

from collections.abc import Mapping

from deploy.dashboards.clients import CLIENTS
from deploy.dashboards.overview import OVERVIEW
from deploy.dashboards.storage import STORAGE
from deploy.dashboards.tables import TABLES

BOARDS = (OVERVIEW, CLIENTS, STORAGE, TABLES)

LEFT_OUT: Mapping[str, str] = {
    "floe_append_bytes_total": "entries are small; their number and time are shown",
    "floe_audit_lost_total": "an alert",
    "floe_scrub_objects_total": "`scrub` of /status has it, beside the bytes",
    "floe_log_archive_bytes_total": "`floe bucket archive` shows what is kept",
    "floe_follow_behind_seconds": "of replicas of a bucket only, which are no agents of the cluster",
    "floe_follow_blocked": "of replicas of a bucket only, and a check of /readyz",
    "floe_collected_objects_total": "an hour's sum says little; the bucket's size does",
    "floe_newest_defect_seconds": "the time of an event, for the alert on it",
    "floe_newest_damaged_read_seconds": "the time of an event, for the alert on it",
    "floe_memory_limit_bytes": "an alert compares it",
    "floe_memory_needed_bytes": "an alert compares it",
    "floe_peer_request_faults_total": "/status tells more than their number",
    "floe_state_disputes_total": "an alert",
    "floe_state_rebuilds_total": "/status and the alert on disputes tell",
    "floe_process_up": "of machines with several agents only, and an alert",
    "floe_process_replaced_total": "of machines with several agents only; `floe status` shows it",
    "floe_relay_entries_total": "who follows is shown, and all apply all entries",
    "floe_relay_kept_bytes": "bounded by relay.buffer_bytes_max",
    "floe_relay_sent_bytes_total": "followers are shown, and each is sent the log once",
    "floe_quota_entities": "a bounded table's size",
    "floe_table_last_compaction_seconds": "`floe table list` shows it",
    "floe_warmed_bytes_total": "a matter of seconds after a move",
    "floe_whole_chunk_hits_total": "the cache's hits by source are shown",
    "floe_rules_held_bytes": "waiting batches are shown",
    "floe_merge_gets_total": "its bytes are shown",
    "floe_merge_refused_total": "a race that is lost costs nothing but work",
    "floe_merge_rows_total": "swapped partitions are shown",
    "floe_compacted_away_bytes_total": "bytes that were read are shown",
    "floe_rules_records_total": "bad ones are shown, all records too",
    "process_max_fds": "a constant",
    "process_virtual_memory_bytes": "address space says nothing of memory in use",
    "process_start_time_seconds": "shown as time since the start of an incarnation",
    "python_gc_objects_collected_total": "collections are shown",
    "python_gc_objects_uncollectable_total": "zero",
}
"""Metrics on no dashboard, and why."""

SILENT: Mapping[str, str] = {
    "floe_connections_held_total": "no connection came too often",
    "floe_rules_failed_total": "no worker ended by itself",
    "floe_transactions_ended_total": "no transaction ended",
}
"""Metrics without a sample until it happens first, beside others in their panels, and why that may last."""
