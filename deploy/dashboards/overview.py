"""Is the cluster well, and how much does it do?"""

from __future__ import annotations

from deploy.dashboards.panels import (
    AGENT,
    HALVES,
    NONE,
    QUARTERS,
    THIRDS,
    Board,
    Panel,
    Query,
    Row,
    line,
    percentiles,
    rate,
)

_HEALTH = Row(
    "Health",
    [
        Panel(
            "Agents ready",
            "How many agents answer 200 to /readyz, and how many somebody has drained.",
            "short",
            [
                Query("sum(floe_ready{@})", "ready"),
                Query("sum(floe_drained{@})", "drained"),
                Query("count(floe_ready{@})", "all"),
            ],
            "stat",
        ),
        Panel(
            "Dependencies",
            "1 while every agent can read and write the log and the store.",
            "short",
            [Query("min by (name) (floe_dependency_up{@})", "{{name}}")],
            "stat",
            red_below=1,
        ),
        Panel(
            "Failing checks",
            "Checks of /readyz that fail on some agent.",
            "short",
            [Query("count(floe_check{@} == 0) or vector(0)", "checks")],
            "stat",
            red_from=1,
        ),
        Panel(
            "Failing jobs",
            "Jobs that have failed ever since their last success: /status has their last error.",
            "short",
            [Query("count(floe_job_failing_since_seconds{@} > 0) or vector(0)", "jobs")],
            "stat",
            red_from=1,
        ),
        Panel(
            "Damaged reads",
            "Reads within an hour that met records which are damaged or lost; the log and /status name them.",
            "short",
            [Query("sum(increase(floe_damaged_reads_total{@}[1h])) or vector(0)", "reads")],
            "stat",
            red_from=1,
        ),
        Panel(
            "Defects",
            "Exceptions within an hour that nobody expected.",
            "short",
            [Query("sum(increase(floe_defects_total{@}[1h])) or vector(0)", "defects")],
            "stat",
            red_from=1,
        ),
    ],
    (4,) * 6,
)

_LOAD = Row(
    "Load",
    [
        line(
            "Bytes produced",
            "Bytes of accepted record batches, by agent.",
            "Bps",
            (rate("floe_produce_bytes_total", "instance"), AGENT),
        ),
        line(
            "Records produced",
            "Records accepted, by agent.",
            "ops",
            (rate("floe_produce_records_total", "instance"), AGENT),
        ),
        line(
            "Bytes fetched",
            "Bytes of record batches sent, by agent.",
            "Bps",
            (rate("floe_fetch_bytes_total", "instance"), AGENT),
        ),
        percentiles(
            "Time of requests",
            "p99 from frame to answer by API; Fetch waits for records as long as its client asks for.",
            "floe_request_seconds",
            "api",
        ),
        line(
            "Batches refused",
            "Batches of records that were refused, by reason.",
            "ops",
            (rate("floe_produce_rejected_total", "reason"), "{{reason}}"),
            empty=NONE,
        ),
        line(
            "Connections",
            "Kafka connections open, by agent.",
            "short",
            ("sum by (instance) (floe_connections{@})", AGENT),
        ),
    ],
    (*THIRDS, 12, 6, 6),
)

_AGENTS = Row(
    "Agents",
    [
        line(
            "CPU", "Cores in use, by agent.", "short", (rate("process_cpu_seconds_total", "instance"), AGENT)
        ),
        line(
            "Resident memory",
            "Of the agent's own process, without its helpers.",
            "bytes",
            ("sum by (instance) (process_resident_memory_bytes{@})", AGENT),
        ),
        line(
            "Event loop",
            "The latest of the newest turns: what holds up everything.",
            "s",
            ("max by (instance) (floe_event_loop_delay_seconds{@})", AGENT),
        ),
        line(
            "Behind the log",
            "Seconds since an agent was first seen behind the log.",
            "s",
            ("max by (instance) (floe_lag_seconds{@})", AGENT),
            top_at_least=1,
        ),
        line(
            "Clock",
            "Distance of an agent's clock from what most agents say.",
            "ms",
            ("max by (instance) (abs(floe_clock_skew_ms{@}))", AGENT),
        ),
        line(
            "Registered anew",
            "Times within ten minutes that an agent registered anew: it started, or was fenced.",
            "short",
            ("sum by (instance) (increase(floe_incarnations_total{@}[10m]))", AGENT),
        ),
        line(
            "Open files",
            "File descriptors in use.",
            "short",
            ("sum by (instance) (process_open_fds{@})", AGENT),
        ),
        line(
            "Garbage collections",
            "Of Python, by generation.",
            "ops",
            (rate("python_gc_collections_total", "generation"), "{{generation}}"),
        ),
        line(
            "Traces",
            "Traces kept for the collector, and lost on the way to it, by why.",
            "ops",
            (rate("floe_traces_kept_total", "why"), "kept: {{why}}"),
            (rate("floe_traces_lost_total", "why"), "lost: {{why}}"),
            empty="None so far (traces.endpoint)",
        ),
        line(
            "Versions",
            "Agents by the version of their code.",
            "short",
            ("count by (version) (floe_build_info{@})", "{{version}}"),
        ),
    ],
    QUARTERS + QUARTERS + HALVES,
)

OVERVIEW = Board(
    "floe-overview",
    "Floe / Overview",
    "Is the cluster well, and how much does it do?",
    [_HEALTH, _LOAD, _AGENTS],
)
