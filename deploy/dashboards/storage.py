"""What is written to etcd and to the object store, and what works on it behind."""

from __future__ import annotations

from deploy.dashboards.panels import (
    AGENT,
    HALVES,
    NONE,
    QUARTERS,
    THIRDS,
    Board,
    Row,
    line,
    percentiles,
    quantile,
    rate,
)

STORAGE = Board(
    "floe-storage",
    "Floe / Log and store",
    "What is written to etcd and to the object store, and what works on it behind.",
    [
        Row(
            "Written",
            [
                percentiles("PUT of a chunk", "Time until the store has a chunk.", "floe_put_seconds"),
                percentiles(
                    "Append to the log", "Time until an entry's outcome is known.", "floe_append_seconds"
                ),
                line(
                    "Size of chunks",
                    "Half of all chunks are smaller, and one in a hundred is larger.",
                    "bytes",
                    (quantile(0.5, "floe_chunk_bytes"), "p50"),
                    (quantile(0.99, "floe_chunk_bytes"), "p99"),
                    empty=NONE,
                ),
                line(
                    "Chunks",
                    "Chunks written in a second, by agent.",
                    "ops",
                    (rate("floe_chunk_bytes_count", "instance"), AGENT),
                ),
                line(
                    "PUTs",
                    "Sent a second time because they were slow, failed for good, and now being written.",
                    "short",
                    (rate("floe_put_hedged_total"), "hedged/s"),
                    (rate("floe_get_hedged_total"), "GETs hedged/s"),
                    (rate("floe_put_failed_total"), "failed/s"),
                    ("sum(floe_puts_in_flight{@})", "in flight"),
                ),
                line(
                    "Waiting commands",
                    "Bytes of commands that wait for their append.",
                    "bytes",
                    ("sum by (instance) (floe_replica_queue_bytes{@})", AGENT),
                ),
                line(
                    "Revisions",
                    "Log entries applied in a second, by agent: all apply all.",
                    "ops",
                    (rate("floe_applied_entries_total", "instance"), AGENT),
                ),
                line(
                    "Revision",
                    "The newest revision applied: all agents agree within a moment.",
                    "short",
                    ("max by (instance) (floe_revision{@})", AGENT),
                ),
                line(
                    "Revisions behind",
                    "Revisions known to be in the log and not applied.",
                    "short",
                    ("max by (instance) (floe_lag_revisions{@})", AGENT),
                ),
                line(
                    "Log inside a zone",
                    "Agents that follow another one instead of etcd, and how many follow each.",
                    "short",
                    ("sum(floe_relay_followed{@})", "follow another one"),
                    ("sum by (instance) (floe_relay_followers{@})", f"of {AGENT}"),
                    empty="No relays",
                ),
                line(
                    "Relays that were left",
                    "Times that an agent went back to etcd, by why; `moved` and `refused` are ordinary.",
                    "ops",
                    (rate("floe_relay_left_total", "why"), "{{why}}"),
                    empty="No relays",
                ),
            ],
            THIRDS + QUARTERS + QUARTERS,
        ),
        Row(
            "Read",
            [
                line(
                    "Reads of the store",
                    "Reads for readers of records, by of what.",
                    "reqps",
                    (rate("floe_store_reads_total", "of"), "{{of}}"),
                ),
                line(
                    "Bytes of the store",
                    "Bytes that these reads gave.",
                    "Bps",
                    (rate("floe_store_read_bytes_total", "of"), "{{of}}"),
                ),
            ],
            HALVES,
        ),
        Row(
            "Behind",
            [
                line(
                    "Merging",
                    "Record bytes that merging read and wrote, and wrote anew.",
                    "Bps",
                    (rate("floe_merge_bytes_total"), "merged"),
                    (rate("floe_merge_rewritten_bytes_total"), "written anew"),
                ),
                line(
                    "Segments",
                    "Partitions whose slices were swapped for a segment, and merges given up.",
                    "ops",
                    (rate("floe_merge_swaps_total"), "swapped"),
                    (rate("floe_merges_failed_total"), "given up"),
                ),
                line(
                    "Compaction",
                    "Record bytes that compaction read.",
                    "Bps",
                    (rate("floe_compacted_bytes_total"), "read"),
                ),
                line(
                    "Compactions given up",
                    "For now; they are tried again.",
                    "ops",
                    (rate("floe_compactions_failed_total"), "given up"),
                ),
                line(
                    "Retention",
                    "Log starts moved by retention.",
                    "ops",
                    (rate("floe_log_starts_moved_total"), "moved"),
                ),
                line(
                    "Deleted topics",
                    "Bytes of records that are kept for topics that were deleted and can come back.",
                    "bytes",
                    ("max(floe_deleted_topics_bytes{@})", "held"),
                ),
                line(
                    "Deleted topics and records that can come back",
                    "Topics; partitions that hold records below their log start (floe.records.grace.ms).",
                    "short",
                    ("max(floe_deleted_topics{@})", "topics"),
                    ("max(floe_held_partitions{@})", "partitions with records"),
                ),
                line(
                    "Log in the bucket",
                    "How old the oldest entry is that is in no piece yet.",
                    "s",
                    ("max(floe_log_archive_lag_seconds{@})", "behind"),
                ),
                line(
                    "Revisions not in the bucket",
                    "Between the archived log's end and the log's, and missing before it.",
                    "short",
                    ("max(floe_log_archive_lag_revisions{@})", "behind"),
                    ("max(floe_log_archive_missing_revisions{@})", "missing"),
                ),
                line(
                    "Pieces of the log",
                    "Written to the bucket, and looks at it that failed.",
                    "ops",
                    (rate("floe_log_archive_pieces_total"), "written"),
                    (rate("floe_log_archive_failures_total"), "failed"),
                ),
                line(
                    "Scrub",
                    "Bytes of the bucket that were read again and checked.",
                    "Bps",
                    (rate("floe_scrub_bytes_total"), "read"),
                ),
                line(
                    "Damaged objects",
                    "What scrubbing found and mended, could not read, and what nothing can mend.",
                    "short",
                    (rate("floe_scrub_found_total"), "found"),
                    (rate("floe_scrub_repaired_total"), "mended"),
                    (rate("floe_scrub_unread_total"), "not read"),
                    ("max(floe_scrub_beyond_repair{@})", "beyond repair"),
                ),
                line(
                    "Round of scrubbing",
                    "For how long the present one has gone on.",
                    "s",
                    ("max(floe_scrub_round_seconds{@})", "since its beginning"),
                ),
            ],
            QUARTERS + THIRDS * 3,
        ),
    ],
)
