"""What Kafka clients ask for, what they wait for, and who is turned away."""

from __future__ import annotations

from deploy.dashboards.panels import AGENT, Board, Panel, Query, Row, line, rate

CLIENTS = Board(
    "floe-clients",
    "Floe / Kafka clients",
    "What clients ask for, what they wait for, and who is turned away.",
    [
        Row(
            "Requests",
            [
                line(
                    "Requests",
                    "Kafka requests answered, by API.",
                    "reqps",
                    (rate("floe_requests_total", "api"), "{{api}}"),
                ),
                line(
                    "Bytes in",
                    "Bytes received from Kafka clients.",
                    "Bps",
                    (rate("floe_bytes_in_total", "instance"), AGENT),
                ),
                line(
                    "Bytes out",
                    "Bytes sent to Kafka clients.",
                    "Bps",
                    (rate("floe_bytes_out_total", "instance"), AGENT),
                ),
                line(
                    "Requests held",
                    "Bytes of requests being worked on; at the limit connections are not read.",
                    "bytes",
                    ("sum by (instance) (floe_request_bytes_held{@})", AGENT),
                ),
                line(
                    "Produce buffer",
                    "Bytes of records not in the store yet; at the limit connections are not read.",
                    "bytes",
                    ("sum by (instance) (floe_produce_buffered_bytes{@})", AGENT),
                    ("max(floe_produce_buffer_bytes_max{@})", "limit"),
                    ("sum(floe_produce_held_bytes{@})", "not answered yet"),
                ),
                line(
                    "Waiting fetches",
                    "Fetches that wait for records.",
                    "short",
                    ("sum by (instance) (floe_fetch_parked{@})", AGENT),
                ),
                line(
                    "Fetch sessions",
                    "What consumers ask for, kept by agents; who finds no room names everything each time.",
                    "short",
                    ("sum(floe_fetch_sessions{@})", "sessions"),
                    ("sum(floe_fetch_session_partitions{@})", "partitions of these"),
                    (rate("floe_fetch_sessions_evicted_total"), "displaced a second"),
                    (rate("floe_fetch_sessions_refused_total"), "found no room, a second"),
                ),
            ],
        ),
        Row(
            "Reads",
            [
                line(
                    "Slices read",
                    "Slices of records read, by where they were found.",
                    "ops",
                    (rate("floe_read_slices_total", "source"), "{{source}}"),
                ),
                line(
                    "Caches",
                    "Bytes of caches for readers.",
                    "bytes",
                    ("sum by (cache) (floe_cache_bytes{@})", "{{cache}}"),
                ),
                line(
                    "Peers",
                    "Requests to agents of the zone for records; some are told to read the bucket.",
                    "reqps",
                    (rate("floe_peer_requests_total"), "asked"),
                    (rate("floe_peer_served_total"), "answered"),
                    (rate("floe_peer_refused_total"), "told to read the bucket"),
                ),
                line(
                    "Bytes of peers",
                    "Bytes of records that agents of a zone gave each other.",
                    "Bps",
                    (rate("floe_peer_read_bytes_total"), "read"),
                    (rate("floe_peer_served_bytes_total"), "given"),
                ),
                line(
                    "Damaged reads",
                    "Reads that met records which are damaged or lost, by topic.",
                    "ops",
                    (rate("floe_damaged_reads_total", "topic"), "{{topic}}"),
                ),
            ],
        ),
        Row(
            "Groups and transactions",
            [
                line(
                    "Groups",
                    "Consumer groups that run, by protocol.",
                    "short",
                    ("sum by (protocol) (floe_groups_running{@})", "{{protocol}}"),
                ),
                line(
                    "Groups behind, records",
                    "Offsets that a group has not passed, of the ten furthest behind.",
                    "short",
                    ("topk(10, max by (group, topic) (floe_group_lag_records{@}))", "{{group}} {{topic}}"),
                ),
                line(
                    "Groups behind, time",
                    "Age of the oldest record that a group has not passed, of the ten latest.",
                    "s",
                    ("topk(10, max by (group, topic) (floe_group_lag_seconds{@}))", "{{group}} {{topic}}"),
                ),
                line(
                    "Leaders moved",
                    "Times that partitions got other leaders, as agents came or went.",
                    "ops",
                    ("max(increase(floe_leader_changes_total{@}[$__rate_interval]))", "changes"),
                ),
                line(
                    "Positions stored",
                    "Positions of groups stored, by partition.",
                    "ops",
                    (rate("floe_offset_commits_total"), "positions"),
                ),
                line(
                    "Transactions",
                    "Ended by clients; stale: connections closed for an older one's request.",
                    "ops",
                    (rate("floe_transactions_ended_total", "how"), "{{how}}"),
                    (rate("floe_transactions_stale_total"), "stale"),
                ),
            ],
        ),
        Row(
            "Topics",
            [
                line(
                    "Bytes in by topic",
                    "Of accepted batches, of the ten busiest topics.",
                    "Bps",
                    (f"topk(10, {rate('floe_topic_produce_bytes_total', 'topic')})", "{{topic}}"),
                ),
                line(
                    "Records in by topic",
                    "Records accepted, of the ten busiest topics.",
                    "ops",
                    (f"topk(10, {rate('floe_topic_produce_records_total', 'topic')})", "{{topic}}"),
                ),
                line(
                    "Bytes out by topic",
                    "Sent to consumers, of the ten busiest topics.",
                    "Bps",
                    (f"topk(10, {rate('floe_topic_fetch_bytes_total', 'topic')})", "{{topic}}"),
                ),
            ],
        ),
        Row(
            "Who comes in",
            [
                line(
                    "Logins",
                    "SASL logins by mechanism and outcome.",
                    "ops",
                    (rate("floe_logins_total", "mechanism, outcome"), "{{mechanism}} {{outcome}}"),
                ),
                line(
                    "Handshakes failed",
                    "TLS handshakes that failed, by listener.",
                    "ops",
                    (rate("floe_handshakes_failed_total", "listener"), "{{listener}}"),
                ),
                line(
                    "Turned away",
                    "Connections closed at the limit or for what they sent, or that waited at one.",
                    "ops",
                    (rate("floe_connections_refused_total"), "at the limit"),
                    (rate("floe_frames_refused_total"), "for what they sent"),
                    (rate("floe_connections_held_total", "listener, why"), "{{listener}}: {{why}}"),
                ),
                line(
                    "Strangers",
                    "Connections that have not done their handshake or login.",
                    "short",
                    ("sum by (instance) (floe_strangers{@})", AGENT),
                ),
                line(
                    "Without an ACL",
                    "Requests that no ACL allows; in shadow mode they went on.",
                    "ops",
                    (
                        rate("floe_authorizer_refused_total", "mode, operation, resource"),
                        "{{mode}}: {{operation}} {{resource}}",
                    ),
                ),
                line(
                    "Audit log",
                    "Events of the audit log by kind.",
                    "ops",
                    (rate("floe_audit_events_total", "kind"), "{{kind}}"),
                ),
                line(
                    "Slowed down",
                    "Requests whose client was slowed down for a quota.",
                    "reqps",
                    (rate("floe_throttled_requests_total", "quota"), "{{quota}}"),
                ),
                line(
                    "Slowed down by whom",
                    "Seconds of waiting in a second, by who shares the quota.",
                    "short",
                    (rate("floe_throttled_seconds_total", "entity, quota"), "{{entity}} {{quota}}"),
                ),
                Panel(
                    "Certificates end",
                    "The first certificate of a listener to end.",
                    "s",
                    [Query("min by (listener) (floe_tls_expires_seconds{@} - time())", "{{listener}}")],
                    4,
                    "stat",
                    red_below=604800,
                ),
                Panel(
                    "Stale secrets",
                    "What is on the disk and cannot be used, or waits for a restart.",
                    "short",
                    [
                        Query("sum(floe_tls_renewal_failing{@}) or vector(0)", "certificates"),
                        Query("sum(floe_users_file_failing{@}) or vector(0)", "users"),
                        Query("sum(floe_jwks_failing{@}) or vector(0)", "keys"),
                        Query("sum(floe_restart_needed{@}) or vector(0)", "restart"),
                    ],
                    4,
                    "stat",
                    red_from=1,
                ),
                line(
                    "Keys of tokens",
                    "Looks at oauth.jwks_url by outcome.",
                    "ops",
                    (rate("floe_jwks_lookups_total", "outcome"), "{{outcome}}"),
                ),
                line(
                    "HTTP",
                    "HTTP requests answered, by status.",
                    "reqps",
                    (rate("floe_http_requests_total", "status"), "{{status}}"),
                ),
            ],
        ),
    ],
)
