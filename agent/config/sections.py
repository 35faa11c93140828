"""The sections that say where an agent lives: cluster, listeners, log, store, http, logging.

A setting's docstring is its documentation: docs/configuration.md is generated from it.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, SecretStr

from agent.config.base import MIB, Port, Section

PROCESSES_MAX = 64
NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$"
_MECHANISM = "(PLAIN|SCRAM-SHA-256|SCRAM-SHA-512|OAUTHBEARER)"
MECHANISMS_PATTERN = f"^{_MECHANISM}(,{_MECHANISM}){{0,3}}$"
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
    Below 2 GiB caches and buffers that are not given shrink with it (docs/operations.md). Several processes
    divide it."""

    processes: Annotated[int, Field(ge=0, le=PROCESSES_MAX)] = 1
    """Agents that `floe serve` runs side by side on this machine, each for a core of its own, watched by one
    process more (docs/operations.md). 0: as many as there are cores (by the control group); without etcd
    one."""

    port_step: Annotated[int, Field(ge=1, le=10_000)] = 1
    """Every port of the second process, bound or advertised, is the first one's plus this, and so on."""

    supervisor_port: Port = 8070
    """With several processes: where `/livez`, `/readyz` and `/metrics` of all of them together are, on
    `http.host`. 0 takes a free one."""

    process_silence_ms: Annotated[int, Field(ge=1_000, le=3_600_000)] = 60_000
    """With several processes: one that has not answered for so long is replaced, milliseconds. Its start
    may take five times as long."""

    process_pause_ms_max: Annotated[int, Field(ge=100, le=3_600_000)] = 30_000
    """With several processes: longest time until one that ended again and again is replaced, milliseconds."""

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

    protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = "PLAINTEXT"
    """What clients speak: in the clear or TLS (SSL), and whether they log in (SASL); docs/security.md."""

    frames: Literal["topic", "as-written", "bare", "confluent"] = "topic"
    """How clients of this listener read messages: with or without Confluent's frame (docs/schemas.md).
    topic: as the topic's `floe.frames` says."""

    tls_cert_file: str = ""
    """PEM file of the listener's certificate, those between it and its authority behind it."""

    tls_key_file: str = ""
    """PEM file of the certificate's key."""

    tls_key_password: SecretStr = SecretStr("")
    """Password of an encrypted key. Empty: the key is not encrypted."""

    tls_ca_file: str = ""
    """PEM file of the authorities that vouch for clients. Needed with tls_client_auth."""

    tls_client_auth: Literal["none", "requested", "required"] = "none"
    """Whether clients show a certificate (Kafka's ssl.client.auth)."""

    tls_protocols: Annotated[str, Field(pattern=r"^TLSv1\.[23](,TLSv1\.[23])?$")] = "TLSv1.2,TLSv1.3"
    """Versions of TLS, separated by a comma (Kafka's ssl.enabled.protocols)."""

    tls_ciphers: Annotated[str, Field(max_length=4096)] = ""
    """Ciphers of TLS 1.2, as OpenSSL writes them, such as `ECDHE+AESGCM`. Empty: OpenSSL's choice. Those of
    TLS 1.3 are always OpenSSL's."""

    tls_principal_from: Literal["subject", "san_dns", "san_uri"] = "subject"
    """What of a client's certificate names it: the subject by the rules below, or its first SAN of a kind
    (SPIFFE: san_uri)."""

    tls_principal_rules: Annotated[str, Field(max_length=65536)] = "DEFAULT"
    """How the subject becomes a name (Kafka's ssl.principal.mapping.rules): `RULE:pattern/replacement/L`,
    `…/U`, `DEFAULT`, separated by commas; the first that fits counts."""

    sasl_mechanisms: Annotated[str, Field(pattern=MECHANISMS_PATTERN)] = "SCRAM-SHA-256,SCRAM-SHA-512"
    """How clients log in where the protocol is SASL_…, separated by commas (Kafka's
    sasl.enabled.mechanisms)."""

    connections_max: Annotated[int, Field(ge=0, le=1_000_000)] = 0
    """Connections of this listener at once (Kafka's max.connections); further ones are closed. 0: only
    limits.connections_max counts."""

    connections_per_s_max: Annotated[int, Field(ge=0, le=1_000_000)] = 0
    """New connections per second (Kafka's max.connection.creation.rate); further ones wait. 0: any number."""

    connections_per_ip_max: Annotated[int, Field(ge=0, le=1_000_000)] = 0
    """Connections of one address at once (Kafka's max.connections.per.ip); further ones are closed. 0: any
    number."""

    connections_per_ip: Annotated[
        dict[Annotated[str, Field(pattern=r"^[0-9a-fA-F:.]+$")], Annotated[int, Field(ge=1, le=1_000_000)]],
        Field(max_length=1_000),
    ] = Field(default_factory=dict)
    """The same for addresses of their own (Kafka's max.connections.per.ip.overrides)."""


class SaslConfig(Section):
    """Logins by SASL (docs/security.md). Give all agents of a cluster the same."""

    users_file: str = ""
    """File of PLAIN's users, one a line as `floe user hash` writes it. Looked at again when it changes."""

    admin_user: Annotated[str, Field(max_length=255)] = ""
    """A user who is there from the start, for every mechanism, so that somebody can make the others. Empty:
    none."""

    admin_password: SecretStr = SecretStr("")
    """The password of admin_user, until there is a credential of that name. Give it as
    FLOE_SASL__ADMIN_PASSWORD rather than in a file."""

    receive_bytes_max: Annotated[int, Field(ge=1_024, le=1024**2)] = 64 * 1024
    """Largest request before the login, bytes (Kafka's sasl.server.max.receive.size)."""

    failed_delay_ms: Annotated[int, Field(ge=0, le=10_000)] = 100
    """A login that failed is answered after this, milliseconds (Kafka's
    connection.failed.authentication.delay.ms)."""

    reauth_ms_max: Annotated[int, Field(ge=0, le=2**53)] = 0
    """How long a login holds until the client logs in again, milliseconds; a connection that is used without
    is closed (Kafka's connections.max.reauth.ms). 0: as long as the connection."""

    checks_in_flight_max: Annotated[int, Field(ge=1, le=64)] = 1
    """Passwords of PLAIN that are checked at once, each on a core for some milliseconds; others wait."""


class PeersConfig(Section):
    """Agents of a zone that read recent chunks from each other's memory instead of the bucket."""

    enabled: bool = True
    """Ask other agents of the zone, and answer them. Only where the log is etcd."""

    host: Annotated[str, Field(min_length=1)] = "0.0.0.0"
    """Address to bind. Only agents of this cluster should reach it."""

    port: Port = 0
    """Port to bind; 0 takes a free one."""

    secret: SecretStr = SecretStr("")
    """What agents prove to each other that they know, the same on all: 32 characters or more of chance.
    Empty: the cluster's id, which clients are told. Give it as FLOE_PEERS__SECRET."""

    tls_cert_file: str = ""
    """PEM file of the certificate that this agent shows others, as client and as server. Empty: reads between
    agents are in the clear."""

    tls_key_file: str = ""
    """PEM file of its key, not encrypted."""

    tls_ca_file: str = ""
    """PEM file of the authority that vouches for agents, and for nobody else."""

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

    connections_max: Annotated[int, Field(ge=1, le=1_000_000)] = 1_024
    """Connections of peers; one more is closed."""

    handshake_connections_max: Annotated[int, Field(ge=1, le=100_000)] = 128
    """Connections that have not shown yet that they are peers', TLS included; one more cuts the oldest."""

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

    role_arn: Annotated[str, Field(pattern=r"^(arn:[!-~]{16,1000})?$")] = ""
    """Role that agents assume with the keys above, or the environment's, and use the bucket as:
    `arn:aws:iam::123456789012:role/floe`. Its keys are renewed at half their time. Empty: none. S3 only."""

    role_sts_url: Annotated[str, Field(max_length=2048)] = ""
    """URL of the security token service. Empty: `store.endpoint` where that is set, else Amazon's of
    `store.region`."""

    role_s: Annotated[int, Field(ge=900, le=43_200)] = 3_600
    """How long the role's keys hold, seconds; a role allows an hour unless it says more."""

    allow_http: bool = False
    """Allow an endpoint without TLS."""

    ca_file: str = ""
    """PEM file of the authority that the endpoint's certificate is checked against. Empty: the system's."""

    virtual_hosted: bool = False
    """Put the bucket into the host name (https://bucket.host) instead of the path."""

    options: dict[str, SecretStr] = Field(default_factory=dict)
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

    authentication: Literal["none", "required"] = "none"
    """`none`: whoever reaches the port may do everything there. `required`: requests show a certificate, a
    user's password (Basic) or a token (Bearer), and ACLs are asked (docs/security.md). `/livez` and `/readyz`
    stay open."""

    metrics_open: bool = True
    """Whether `/metrics` is open where authentication is required."""

    tls_cert_file: str = ""
    """PEM file of the certificate, those between it and its authority behind it. Empty: HTTP is in the
    clear. Files are looked at again as those of listeners are."""

    tls_key_file: str = ""
    """PEM file of the certificate's key."""

    tls_key_password: SecretStr = SecretStr("")
    """Password of an encrypted key. Empty: the key is not encrypted."""

    tls_ca_file: str = ""
    """PEM file of the authorities that vouch for clients. Needed with tls_client_auth."""

    tls_client_auth: Literal["none", "requested", "required"] = "none"
    """Whether clients show a certificate. `required` turns probes away that have none."""

    tls_protocols: Annotated[str, Field(pattern=r"^TLSv1\.[23](,TLSv1\.[23])?$")] = "TLSv1.2,TLSv1.3"
    """Versions of TLS, separated by a comma."""

    tls_ciphers: Annotated[str, Field(max_length=4096)] = ""
    """Ciphers of TLS 1.2, as OpenSSL writes them. Empty: OpenSSL's choice."""

    tls_principal_from: Literal["subject", "san_dns", "san_uri"] = "subject"
    """What of a client's certificate names it, as for listeners."""

    tls_principal_rules: Annotated[str, Field(max_length=65536)] = "DEFAULT"
    """How the subject becomes a name, as for listeners."""

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
    """Time between sending clients away and closing connections, milliseconds, in which they move on; and how
    long they are served before it at most, until the other agents know that this one has left Metadata."""
