"""How far tables are behind, what audits found, what schemas and rules refused."""

from __future__ import annotations

from deploy.dashboards.panels import HALVES, NONE, QUARTERS, THIRDS, Board, Row, line, rate

UPSERT = "No topic has floe.table.mode=upsert"
NOT_KEPT = "No audit was kept (floe table audit --since)"

TABLES = Board(
    "floe-tables",
    "Floe / Tables and schemas",
    "How far tables are behind their topics, what audits found, and what schemas and rules refused.",
    [
        Row(
            "Tables",
            [
                line(
                    "Age of what tables lack",
                    "Age of the oldest record that a table lacks, the worst ten.",
                    "s",
                    ("topk(10, max by (topic) (floe_table_seconds_behind{@}))", "{{topic}}"),
                    empty="No tables",
                    top_at_least=1,
                ),
                line(
                    "Rows behind",
                    "Offsets that a table has not taken, the worst ten.",
                    "short",
                    ("topk(10, max by (topic) (floe_table_rows_behind{@}))", "{{topic}}"),
                    empty="No tables",
                ),
                line(
                    "Rows",
                    "Rows committed in a second, by topic.",
                    "ops",
                    (rate("floe_table_rows_total", "topic"), "{{topic}}"),
                    empty=NONE,
                ),
                line(
                    "Freshness",
                    "Age of the newest row when it was committed.",
                    "s",
                    ("max by (topic) (floe_table_freshness_seconds{@})", "{{topic}}"),
                    empty="No tables",
                ),
                line(
                    "Bytes",
                    "Of data files, the largest ten.",
                    "bytes",
                    ("topk(10, max by (topic) (floe_table_bytes{@}))", "{{topic}}"),
                    empty="No tables",
                ),
                line(
                    "Files",
                    "Data files, the most ten.",
                    "short",
                    ("topk(10, max by (topic) (floe_table_files{@}))", "{{topic}}"),
                    empty="No tables",
                ),
                line(
                    "Snapshots",
                    "That a table keeps.",
                    "short",
                    ("topk(10, max by (topic) (floe_table_snapshots{@}))", "{{topic}}"),
                    empty="No tables",
                ),
                line(
                    "Problems",
                    "What is wrong with a table that goes on all the same: /status says what.",
                    "short",
                    ("max by (topic) (floe_table_problems{@}) > 0", "{{topic}}"),
                    ("max by (topic) (floe_latest_problems{@}) > 0", "{{topic}} latest"),
                    empty="None",
                ),
            ],
            QUARTERS + QUARTERS,
        ),
        Row(
            "The newest of each key",
            [
                line(
                    "Age of what they lack",
                    "Of __latest tables.",
                    "s",
                    ("topk(10, max by (topic) (floe_latest_seconds_behind{@}))", "{{topic}}"),
                    empty=UPSERT,
                    top_at_least=1,
                ),
                line(
                    "Rows behind",
                    "Of __latest tables.",
                    "short",
                    ("topk(10, max by (topic) (floe_latest_rows_behind{@}))", "{{topic}}"),
                    empty=UPSERT,
                ),
                line(
                    "Bytes of latest tables",
                    "Of __latest tables' data files.",
                    "bytes",
                    ("max by (topic) (floe_latest_bytes{@})", "{{topic}}"),
                    empty=UPSERT,
                ),
                line(
                    "Files and snapshots",
                    "Of __latest tables.",
                    "short",
                    ("max by (topic) (floe_latest_files{@})", "{{topic}} files"),
                    ("max by (topic) (floe_latest_snapshots{@})", "{{topic}} snapshots"),
                    empty=UPSERT,
                ),
            ],
            QUARTERS,
        ),
        Row(
            "Other catalogs",
            [
                line(
                    "Behind",
                    "Since when a table's entry in another catalog is not at its newest metadata.",
                    "s",
                    ("max by (catalog) (floe_table_publish_seconds_behind{@})", "{{catalog}}"),
                    empty="No other catalog",
                    top_at_least=1,
                ),
                line(
                    "Published",
                    "Entries made or moved, and tries that failed.",
                    "ops",
                    (rate("floe_table_publish_moved_total", "catalog"), "{{catalog}} moved"),
                    (rate("floe_table_publish_failed_total", "catalog"), "{{catalog}} failed"),
                    empty="No other catalog",
                ),
            ],
            HALVES,
        ),
        Row(
            "Audits",
            [
                line(
                    "Findings",
                    "What the newest audit found wrong.",
                    "short",
                    ("max by (topic) (floe_audit_findings{@})", "{{topic}}"),
                    empty=NOT_KEPT,
                ),
                line(
                    "Not audited",
                    "Offsets that no audit has found equal.",
                    "short",
                    ("topk(10, max by (topic) (floe_audit_records_behind{@}))", "{{topic}}"),
                    empty=NOT_KEPT,
                ),
                line(
                    "Since the last equal audit",
                    "Of topics that were audited.",
                    "s",
                    ("time() - max by (topic) (floe_audit_last_equal_seconds{@})", "{{topic}}"),
                    empty=NOT_KEPT,
                ),
            ],
            THIRDS,
        ),
        Row(
            "Schemas and rules",
            [
                line(
                    "Records that broke rules",
                    "By topic, kept or refused.",
                    "ops",
                    (rate("floe_rules_bad_records_total", "topic"), "{{topic}}"),
                    empty=NONE,
                ),
                line(
                    "Rules broken",
                    "By topic and rule.",
                    "ops",
                    (rate("floe_rules_broken_total", "topic, rule"), "{{topic}} {{rule}}"),
                    empty=NONE,
                ),
                line(
                    "Set aside",
                    "Records in topics' quarantine.",
                    "ops",
                    (rate("floe_rules_quarantined_total", "topic"), "{{topic}}"),
                    empty=NONE,
                ),
                line(
                    "Rules' workers",
                    "Batches that wait for a worker, and the workers.",
                    "short",
                    ("sum(floe_rules_waiting{@})", "waiting"),
                    ("sum(floe_rules_workers{@})", "workers"),
                    (rate("floe_rules_failed_total"), "failed/s"),
                ),
                line(
                    "Rewritten for readers",
                    "Records sent without marked fields, withheld, or in another frame.",
                    "ops",
                    (rate("floe_fetch_redacted_records_total"), "redacted"),
                    (rate("floe_fetch_withheld_records_total"), "withheld"),
                    (rate("floe_fetch_reframed_records_total"), "another frame"),
                    (rate("floe_fetch_unframed_records_total"), "no frame to be had"),
                ),
            ],
            THIRDS + HALVES,
        ),
    ],
)
