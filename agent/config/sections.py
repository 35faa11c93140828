"""The sections that say where an agent lives: cluster, listeners, log, store, http, logging.

A setting's docstring is its documentation: docs/configuration.md is generated from it.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, SecretStr

from agent.config.base import MIB, Port, Section

NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$"
ROLES_PATTERN = r"^(all|(produce|fetch|background)(,(produce|fetch|background)){0,2})$"


class ClusterConfig(Section):
    """What all agents of a cluster share."""

    name: Annotated[str, Field(pattern=NAME_PATTERN)] = "floe"
    """Name of the cluster; Kafka clients see it as the cluster id, the bucket's fingerprint holds it."""


class AgentConfig(Section):
    """Who this agent is."""

    name: Annotated[str, Field(pattern=NAME_PATTERN + "|^$")] = ""
    """Stable name; an agent that comes back under it keeps its node id. Empty: the host's name."""

    node_id: Annotated[int, Field(ge=-1, le=2**31 - 1)] = -1
    """Kafka node id. -1: the cluster assigns one and keeps it for the name."""

    zone: Annotated[str, Field(max_length=128)] = ""
    """Availability zone, shown to clients as the rack. Empty: none."""

    roles: Annotated[str, Field(pattern=ROLES_PATTERN)] = "all"
    """What this agent is for: `all`, or some of `produce,fetch,background`. Routing only (docs/zones.md)."""

    memory_bytes_max: Annotated[int, Field(ge=0, le=1024**4)] = 0
    """Memory that this agent and its helpers may use, bytes. 0: the limit of its control group (container).
    Below 2 GiB caches and buffers that are not given shrink with it (docs/operations.md)."""

    files_interval_ms: Annotated[int, Field(ge=100, le=86_400_000)] = 10_000
    """Time between two looks at the files that settings name, milliseconds: certificates that changed are
    used from then on; what needs a restart is told (`floe_restart_needed`)."""


class ListenerConfig(Section):
    """One Kafka listener: where the agent binds, and what clients are told to connect to."""

    name: Annotated[str, Field(pattern=NAME_PATTERN)] = "PLAINTEXT"
    """Name of the listener; a client gets the addresses of the listener that it came in by."""

    host: Annotated[str, Field(min_length=1)] = "0.0.0.0"
    """Address to bind."""

    port: Port = 9092
    """Port to bind; 0 takes a free one."""

    advertised_host: str = ""
    """Host that clients connect to. Empty: `host`, or the host's name when `host` is a wildcard. May hold
    placeholders such as `{pod}` and `{zone}` (docs/zones.md)."""

    advertised_port: Port = 0
    """Port that clients connect to. 0: the bound port. May be a placeholder such as `{ordinal+31000}`."""

    zone: Annotated[str, Field(max_length=128)] = ""
    """Clients that come by this listener count as in this zone, unless they name one (docs/zones.md). Empty:
    not known."""


class PeersConfig(Section):
    """Agents of a zone that read recent chunks from each other's memory instead of the bucket."""

    enabled: bool = True
    """Ask other agents of the zone, and answer them. Only where the log is etcd."""

    host: Annotated[str, Field(min_length=1)] = "0.0.0.0"
    """Address to bind. Only agents of this cluster should reach it: answers are not encrypted."""

    port: Port = 0
    """Port to bind; 0 takes a free one."""

    advertised_host: str = ""
    """Host under which other agents reach it. Empty: `host`, or the host's name when `host` is a wildcard.
    May hold placeholders."""

    hedge_ms: Annotated[int, Field(ge=1, le=600_000)] = 800
    """A peer that showed no life for so long, milliseconds, is overtaken by a read of the bucket."""

    timeout_ms: Annotated[int, Field(ge=1, le=600_000)] = 2_000
    """Longest time that a peer is waited for, milliseconds."""

    recent_chunks_max: Annotated[int, Field(ge=0, le=1_000_000)] = 1_024
    """The newest chunks of the log: their owner in the zone reads each as a whole, once for all of it."""

    chunk_cache_bytes_max: Annotated[int, Field(ge=1_024, le=1024**4)] = 64 * MIB
    """Bytes of whole chunks kept for the zone; at least that of a few chunks."""

    answers_bytes_max: Annotated[int, Field(ge=1_024, le=1024**4)] = 64 * MIB
    """Bytes of answers to peers under way; above it they are told to read the bucket."""

    warm_bytes_max: Annotated[int, Field(ge=0, le=1024**4)] = 16 * MIB
    """Newest records read ahead, bytes, when partitions move to this agent. 0: none."""

    warm_ms_max: Annotated[int, Field(ge=0, le=600_000)] = 2_000
    """Longest time that a starting agent reads ahead, milliseconds, before clients are sent to it."""


class LogConfig(Section):
    """The ordered log: etcd for clusters, SQLite for one process."""

    url: Annotated[str, Field(min_length=1)]
    """`etcd://host:2379,host:2379/prefix`, `sqlite:///absolute/file` or `memory:` (tests)."""

    user: str = ""
    """User of etcd. Empty: none."""

    password: SecretStr = SecretStr("")
    """Password of etcd's user. Give it as FLOE_LOG__PASSWORD rather than in a file."""

    password_file: str = ""
    """File that holds the password instead; it is read at each signing in: a new one needs no restart."""

    tls: bool = False
    """Speak TLS to etcd."""

    tls_ca_file: str = ""
    """PEM file of the authority that etcd's certificate is checked against; needed with tls."""

    tls_cert_file: str = ""
    """PEM file of this agent's client certificate. Empty: none."""

    tls_key_file: str = ""
    """PEM file of the client certificate's key."""

    lease_ttl_s: Annotated[int, Field(ge=2, le=600)] = 10
    """Seconds without contact after which an agent counts as gone. Never decides correctness."""

    attempt_timeout_ms: Annotated[int, Field(ge=100, le=600_000)] = 2_000
    """Deadline of one request to etcd, milliseconds; then another endpoint is tried."""

    call_timeout_ms: Annotated[int, Field(ge=100, le=600_000)] = 5_000
    """Deadline of one call with its tries, milliseconds. An append is tried until its outcome is known."""

    silence_ms_max: Annotated[int, Field(ge=100, le=600_000)] = 2_000
    """An etcd watch that says nothing for this long, milliseconds, is opened anew."""


class StoreConfig(Section):
    """The object store: chunks, snapshots, tables."""

    url: Annotated[str, Field(min_length=1)]
    """`s3://bucket/prefix`, `gs://…`, `az://…`, `file:///absolute/folder` or `memory:` (tests)."""

    endpoint: str = ""
    """URL of an S3-compatible server, such as `http://minio:9000`. Empty: the provider's own."""

    region: Annotated[str, Field(min_length=1)] = "us-east-1"
    """Region of the bucket."""

    access_key: SecretStr = SecretStr("")
    """Access key id. Empty: the environment's credentials (instance role, AWS_… variables)."""

    secret_key: SecretStr = SecretStr("")
    """Secret access key. Give it as FLOE_STORE__SECRET_KEY rather than in a file."""

    session_token: SecretStr = SecretStr("")
    """Session token of temporary credentials. Empty: none."""

    access_key_file: str = ""
    """File that holds the access key id instead. S3 only. The three files are read again every 10 s: new keys
    need no restart (docs/operations.md)."""

    secret_key_file: str = ""
    """File that holds the secret access key instead."""

    session_token_file: str = ""
    """File that holds the session token instead. Empty: none."""

    allow_http: bool = False
    """Allow an endpoint without TLS."""

    ca_file: str = ""
    """PEM file of the authority that the endpoint's certificate is checked against. Empty: the system's."""

    virtual_hosted: bool = False
    """Put the bucket into the host name (https://bucket.host) instead of the path."""

    options: dict[str, str] = Field(default_factory=dict)
    """Further options of the store's adapter by name, such as Google's or Azure's credentials."""

    request_timeout_ms: Annotated[int, Field(ge=100, le=600_000)] = 15_000
    """Deadline of one try from connection to last byte, milliseconds."""

    connect_timeout_ms: Annotated[int, Field(ge=100, le=600_000)] = 3_000
    """Deadline of a connection, milliseconds."""

    tries_max: Annotated[int, Field(ge=1, le=100)] = 6
    """Tries of a request that definitely had no effect or may be repeated."""

    retry_ms_max: Annotated[int, Field(ge=0, le=3_600_000)] = 30_000
    """No new try begins after this time, milliseconds."""

    backoff_ms_max: Annotated[int, Field(ge=10, le=600_000)] = 3_000
    """Longest pause between two tries, milliseconds (exponential with jitter)."""

    connections_idle_max: Annotated[int, Field(ge=0, le=4096)] = 64
    """Connections kept open for later requests."""


class HttpConfig(Section):
    """Health, metrics, status, administration, the Iceberg REST catalog and the schema registry."""

    host: Annotated[str, Field(min_length=1)] = "0.0.0.0"
    """Address to bind."""

    port: Port = 8080
    """Port to bind; 0 takes a free one."""

    advertised_host: str = ""
    """Host under which others reach it. Empty: `host`, or the host's name when `host` is a wildcard."""

    advertised_port: Port = 0
    """Port under which others reach it. 0: the bound port."""

    body_bytes_max: Annotated[int, Field(ge=64 * 1024, le=256 * MIB)] = 16 * MIB
    """Largest body of a request, bytes; descriptor sets, schemas and Iceberg commits travel in it."""

    requests_in_flight_max: Annotated[int, Field(ge=1, le=65536)] = 64
    """Requests served at once; further ones get 503."""

    barrier_timeout_ms: Annotated[int, Field(ge=10, le=60_000)] = 2_000
    """How long a readiness or catalog request waits for the log, milliseconds."""


class LoggingConfig(Section):
    """The process's own log lines (standard error)."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    """Least level that is written."""

    format: Literal["auto", "json", "console"] = "auto"
    """`json` one object per line; `console` for people; `auto`: console on a terminal, else json."""

    lines_max: Annotated[int, Field(ge=1, le=1_000_000)] = 20
    """Lines of one kind (a logger and its event) written in `period_ms`; the next one that is written says
    how many were not. Critical and debug lines are all written."""

    period_ms: Annotated[int, Field(ge=0, le=3_600_000)] = 10_000
    """The time in which lines of one kind are counted, milliseconds. 0: every line is written."""

    kinds_max: Annotated[int, Field(ge=1, le=1_000_000)] = 1_024
    """Kinds of lines that are counted at once; the oldest is forgotten first."""


class ShutdownConfig(Section):
    """Leaving on SIGTERM or SIGINT."""

    timeout_ms: Annotated[int, Field(ge=0, le=600_000)] = 25_000
    """Bound of a graceful stop, milliseconds; keep it below Kubernetes' 30 s grace period."""

    drain_ms: Annotated[int, Field(ge=0, le=60_000)] = 1_000
    """Time between leaving Metadata and closing connections, milliseconds, in which clients move on."""
