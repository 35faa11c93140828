"""The sections that bound and pace work: produce, fetch, replica, limits, tables, snapshots.

A setting's docstring is its documentation: docs/configuration.md is generated from it.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from agent.config.base import GIB, KIB, MIB, Section

Millis = Annotated[int, Field(ge=0, le=3_600_000)]
Seconds = Annotated[int, Field(ge=0, le=366 * 86_400)]
Bytes = Annotated[int, Field(ge=KIB, le=1024 * GIB)]
Count = Annotated[int, Field(ge=1, le=100_000_000)]


class ProduceConfig(Section):
    """The produce path: records wait here until they are a chunk worth writing."""

    linger_ms: Millis = 5
    """Least time that the oldest record waits for company, milliseconds: as long as a flush usually takes,
    and 2 ms for each agent of the cluster up to 15, but at most three times this. While a PUT is under way,
    what a flush usually takes, twice as long for each further PUT."""

    quiet_ms: Millis = 2
    """Flush early when nothing more has arrived for this long, milliseconds."""

    chunk_bytes_max: Bytes = 8 * MIB
    """Size at which a chunk is written without waiting, bytes."""

    buffer_bytes_max: Bytes = 128 * MIB
    """Bytes of records waiting or being written; above it connections are not read."""

    puts_in_flight_max: Annotated[int, Field(ge=1, le=256)] = 4
    """Chunks being written to the store at once."""

    puts_per_s_max: Annotated[float, Field(gt=0, le=10_000)] = 250.0
    """PUT budget: PUTs of chunks per second, hedges too, that this agent makes at most; above it chunks grow
    instead."""

    hedge_ms: Millis = 1_500
    """A PUT slower than nine in ten lately, 50 ms at least and this at most, milliseconds, is sent a second
    time under the same name; so are no more than 15 of 100. 0: never."""

    commit_timeout_ms: Annotated[int, Field(ge=100, le=600_000)] = 30_000
    """Longest time a Produce waits for its answer, milliseconds; then REQUEST_TIMED_OUT."""

    first_batches_max: Annotated[int, Field(ge=1, le=1_000_000)] = 1_000
    """Producers of one connection of which is remembered, by partition, where they begin, and which batch was
    refused until it comes again; the oldest is forgotten first. Nothing of theirs is taken before it."""

    first_batch_ms_max: Annotated[int, Field(ge=0, le=3_600_000)] = 30_000
    """How long such a batch is waited for, milliseconds (clients' request.timeout.ms): one that was
    left out for good holds its producer up no longer. For as long, while there are other agents, no producer
    is told that a batch is missing before another one: it may be under way through them."""

    quarantine_records_max: Annotated[int, Field(ge=1, le=1_000_000)] = 100_000
    """Most records of one batch that are set aside (topic policy `quarantine`); with more the batch is
    refused."""

    quarantine_bytes_max: Bytes = 32 * MIB
    """Most bytes of the batch that they become in the topic's quarantine."""


class FetchConfig(Section):
    """The fetch path: the tail from memory, old data in a pool of its own."""

    cache_bytes_max: Bytes = 256 * MIB
    """Chunk bytes held for tail reads; own flushes fill it."""

    cold_cache_bytes_max: Bytes = 64 * MIB
    """Chunk bytes held for readers of old data; they never evict the tail."""

    index_cache_bytes_max: Bytes = 32 * MIB
    """Bytes held of merged ranges' manifests and block indexes, which readers of old data look up."""

    cold_reads_in_flight_max: Annotated[int, Field(ge=1, le=1024)] = 8
    """Reads of old data from the store at once."""

    response_bytes_max: Bytes = 55 * MIB
    """Most record bytes in one answer (Kafka's fetch.max.bytes); the first batch is always whole."""

    hedge_ms: Millis = 1_500
    """A read of the store of at most 1 MiB that is slower than nine in ten lately, 50 ms at least and this at
    most, milliseconds, is sent a second time; so are no more than 15 of 100. 0: never."""

    wait_ms_max: Annotated[int, Field(ge=0, le=600_000)] = 60_000
    """Longest long poll, milliseconds, whatever the client asks for."""

    sessions_max: Annotated[int, Field(ge=0, le=100_000)] = 1_000
    """Fetch sessions kept (KIP-227; Kafka's max.incremental.fetch.session.cache.slots); 0: none. Consumers
    without one are served all the same, and name all their partitions in each request."""

    session_partitions_max: Annotated[int, Field(ge=0, le=10_000_000)] = 100_000
    """Partitions that all fetch sessions have together, about 0.7 kB each."""

    session_stale_ms: Annotated[int, Field(ge=1_000, le=86_400_000)] = 120_000
    """A fetch session that was not heard of for so long, milliseconds, makes room for another; one that is
    older than this, for one of more partitions."""


class ReplicaConfig(Section):
    """Following the log and proposing to it."""

    apply_ms_max: Annotated[int, Field(ge=1, le=1_000)] = 5
    """Entries are applied in slices of this time, milliseconds, so that the event loop stays free."""

    queue_bytes_max: Bytes = 64 * MIB
    """Bytes of commands waiting for their append; above it a proposal is refused as retriable."""

    queue_timeout_ms: Annotated[int, Field(ge=100, le=600_000)] = 30_000
    """How long a proposal waits to be sent, milliseconds, before it fails as unavailable."""

    outcome_timeout_ms: Annotated[int, Field(ge=100, le=600_000)] = 30_000
    """How long a proposal waits for its outcome, milliseconds, before it is answered as unknown."""

    heartbeat_ms: Annotated[int, Field(ge=100, le=600_000)] = 1_000
    """An idle agent says so in the log this often, milliseconds; every 5 s when it is the only one."""


class HealthConfig(Section):
    """How this agent knows that it is well, and what it does when it is not (docs/operations.md)."""

    step_aside: bool = True
    """Leave Metadata while this agent cannot do its work and another can."""

    probe_interval_ms: Annotated[int, Field(ge=500, le=3_600_000)] = 5_000
    """Time without any call after which the log and the store are asked, milliseconds: a PUT, a HEAD."""

    answer_ms_max: Annotated[int, Field(ge=10, le=60_000)] = 700
    """How long `/readyz` and `/status` wait for what they ask, milliseconds: below the patience of who probes
    (the kubelet's is 1 s). What has not answered by then is judged by what is known of it."""

    patience_ms: Annotated[int, Field(ge=250, le=600_000)] = 2_000
    """How long something must have been bad, milliseconds, before this agent steps aside."""

    slow_ms_max: Annotated[int, Field(ge=10, le=600_000)] = 1_000
    """When half of the small PUTs or appends take longer, milliseconds, that is as bad as failing; not where
    most other agents are slow too."""

    slow_ms_min: Annotated[int, Field(ge=1, le=600_000)] = 100
    """What half of them do within this, milliseconds, is fast enough, however fast the other agents are."""

    slow_ratio: Annotated[int, Field(ge=2, le=1_000)] = 10
    """An agent is slow that takes so many times as long as most others; it takes two others to say so."""

    silence_ms_max: Annotated[int, Field(ge=500, le=600_000)] = 3_500
    """An agent that writes nothing to the log for so long, milliseconds, is taken out of Metadata by the
    others; three heartbeats at least."""

    listed_ms: Annotated[int, Field(ge=0, le=600_000)] = 15_000
    """An agent that has gone or stepped aside stays in Metadata's list of brokers for so long, milliseconds,
    without leading anything: librdkafka waits for ever for a coordinator that leaves the list too soon."""

    return_ms: Annotated[int, Field(ge=0, le=600_000)] = 2_000
    """How long it must have been well before it comes back, milliseconds; doubled for each return within ten
    minutes before. One that crashed lets the others lead for so long before it is named again."""

    return_ms_max: Annotated[int, Field(ge=0, le=3_600_000)] = 60_000
    """Longest such wait, milliseconds."""


class LimitsConfig(Section):
    """What clients may ask of one agent."""

    request_bytes_max: Annotated[int, Field(ge=KIB, le=2**31 - 1)] = 104_857_600
    """Largest Kafka request, bytes (Kafka's socket.request.max.bytes); a larger one closes the connection."""

    process_bytes_max: Bytes = 256 * MIB
    """Request bytes held over all connections; above it connections are not read."""

    connections_max: Annotated[int, Field(ge=1, le=1_000_000)] = 10_000
    """Kafka connections at once; further ones are closed."""

    stranger_connections_max: Annotated[int, Field(ge=1, le=1_000_000)] = 1_000
    """Connections at once in a TLS handshake or before their login; one more, and the oldest is cut."""

    login_ms_max: Annotated[int, Field(ge=100, le=600_000)] = 10_000
    """How long a TLS handshake may take, and then a login, milliseconds."""

    connection_idle_ms_max: Annotated[int, Field(ge=1_000, le=86_400_000)] = 600_000
    """An idle connection is closed after this, milliseconds (Kafka's connections.max.idle.ms)."""

    requests_in_flight_max: Annotated[int, Field(ge=1, le=10_000)] = 64
    """Requests of one connection being worked on; above it the connection is not read."""

    response_bytes_max: Bytes = 128 * MIB
    """Answer bytes a slow client may leave waiting; above it nothing is read, and no large answer begun."""

    metadata_cache_bytes_max: Bytes = 32 * MIB
    """Bytes of topics kept ready as Metadata answers them; the least used version or zone goes first."""


class SchemaConfig(Section):
    """Protobuf schemas at the door. Give all agents of a cluster the same."""

    allow_unknown: bool = False
    """Accept records with fields that the bound message does not have yet."""

    validators_max: Annotated[int, Field(ge=1, le=1_000_000)] = 4_096
    """Topics whose validators are kept ready; the least used is built anew when needed."""


class RulesConfig(Section):
    """Rules of protovalidate (docs/schemas.md): worker processes evaluate them for topics that want it."""

    workers: Annotated[int, Field(ge=1, le=64)] = 2
    """Worker processes at most, each started when it is first needed, of about 70 MB. A topic has all but one
    of them at most, so that one whose rules take too long does not stop the others."""

    batch_s_max: Annotated[float, Field(gt=0, le=600)] = 10.0
    """Longest time of a processor for the rules of one batch, seconds; then its worker is ended, and the
    batch refused where the policy is `reject`. A worker that gets no processor is waited for six times as
    long; then the producer is told to send again. Also for rules that are tried: of a message that is to be
    bound, of a topic whose `floe.rules` is to be set."""

    wait_ms_max: Millis = 10_000
    """How long a batch waits for a worker, milliseconds; then the producer is told to send it again."""

    bytes_in_flight_max: Bytes = 128 * MIB
    """Bytes of batches whose rules are evaluated or wait for it, half of it for a topic; above it producers
    are told to send again."""

    worker_bytes_max: Annotated[int, Field(ge=256 * MIB, le=64 * GIB)] = GIB
    """Memory that one worker may have, bytes; one that wants more ends, and the batch is refused."""


class TablesConfig(Section):
    """Iceberg tables: every topic is one."""

    enabled: bool = True
    """Let this agent commit topics to tables. A single topic is switched by its `floe.table.enabled`."""

    warehouse: str = ""
    """URL of the folder of all tables, below the store's URL. Empty: `tables` there."""

    interval_ms: Annotated[int, Field(ge=10, le=86_400_000)] = 4_500
    """Time between two commits of a topic that has new records, milliseconds: the table's freshness."""

    objects_per_s_max: Annotated[int, Field(ge=0, le=1_000_000)] = 30
    """Objects that small commits of this agent store per second on average; 0: no bound. Where its topics
    want more, each is committed less often than `interval_ms` says. Commits of 256 KiB or more for each of
    their objects do not count."""

    rows_per_commit_max: Count = 2_000_000
    """Records in one commit."""

    bytes_per_commit_max: Bytes = 256 * MIB
    """Record bytes in one commit; bounds the committer's memory."""

    rows_per_file_max: Count = 1_000_000
    """Rows in one Parquet file."""

    committers_in_flight_max: Annotated[int, Field(ge=1, le=256)] = 2
    """Topics this agent commits at once."""

    files_in_flight_max: Annotated[int, Field(ge=1, le=64)] = 4
    """Data files of one commit that are read, written and stored side by side."""

    snapshots_max: Annotated[int, Field(ge=1_000, le=200_000)] = 20_000
    """Snapshots in a table's history, which lasts for `floe.table.history.ms`; beyond it the oldest go."""

    manifests_merged_at: Annotated[int, Field(ge=2, le=10_000)] = 100
    """Small manifests of a table at which they are merged into one (Iceberg's MergeAppend)."""

    compacted_file_bytes: Annotated[int, Field(ge=MIB, le=512 * MIB)] = 128 * MIB
    """What compaction makes data files of a table into, bytes; those below half of it are small. The helper
    process holds one such file for each topic that is compacted. `floe.table.compaction` switches a topic."""

    compacted_at_files: Annotated[int, Field(ge=2, le=1_000)] = 16
    """Small neighbouring files of one partition that become one."""

    compaction_age_s: Annotated[int, Field(ge=1, le=366 * 86_400)] = 3_600
    """For how long fewer small files wait before they become one: those of a partition that is written to
    seldom, or no more. Seconds, from when the agent began to commit the table."""

    files_per_merge_max: Annotated[int, Field(ge=2, le=10_000)] = 1_000
    """Small files that become one at most."""

    compaction_files_max: Annotated[int, Field(ge=2, le=100_000)] = 2_000
    """Small files that one turn of a topic reads; what is left waits for the next."""

    compaction_bytes_max: Bytes = 256 * MIB
    """Bytes of small files that one turn of a topic reads."""

    compaction_busy_percent: Annotated[int, Field(ge=1, le=100)] = 25
    """Share of a topic's time that goes into its compaction at most, percent: its commits wait for it."""

    latest_file_bytes: Annotated[int, Field(ge=MIB, le=512 * MIB)] = 32 * MIB
    """What data files of `__latest` tables (`floe.table.mode=upsert`) are made to be, bytes, about."""

    latest_age_s: Annotated[int, Field(ge=1, le=366 * 86_400)] = 300
    """How long new records wait at most until they are in the `__latest` table, seconds, as far as
    `latest_busy_percent` lets it be: each time the files whose keys they touch are made anew."""

    latest_share_percent: Annotated[int, Field(ge=0, le=10_000)] = 10
    """New records that are folded into the `__latest` table sooner: percent of the rows that it has."""

    latest_bytes_max: Bytes = 256 * MIB
    """Bytes of the append table's files that one turn of a `__latest` table reads, but one file at least."""

    latest_busy_percent: Annotated[int, Field(ge=1, le=100)] = 25
    """Share of a `__latest` table's time that its turns take at most, percent."""

    orphan_interval_s: Annotated[int, Field(ge=1, le=366 * 86_400)] = 3_600
    """Time between two looks for files of a table that no snapshot names, seconds."""

    orphan_grace_s: Seconds = 86_400
    """Age at which a file that no snapshot names is removed, seconds; what is newer than its table stays."""

    raw_bytes: bool = True
    """Keep each record's own bytes (`__raw__`) beside the decoded columns; the audit compares them."""

    types_max: Annotated[int, Field(ge=1, le=1_000)] = 100
    """Types of record that have a struct column each in a table's `key`, or `value`, where a topic has
    several. Rows of further ones keep their bytes, and have no columns."""


class SnapshotsConfig(Section):
    """Snapshots of the replicated state, and trimming the log behind them."""

    interval_s: Annotated[int, Field(ge=1, le=86_400)] = 300
    """Time between snapshots, seconds, when there are new entries."""

    entries_max: Count = 100_000
    """Entries after which a snapshot is written even before its time; already after one for each kB of the
    newest snapshot, 5,000 and 20 s at least, for an agent that starts applies them first."""


class LogArchiveConfig(Section):
    """The log's entries in the bucket as well, seconds behind (docs/storage.md)."""

    enabled: bool = True
    """Let this agent archive the log; one of those that may does it. Never where log.url is sqlite:, whose
    file lies on the same disk as what it would be copied to."""

    interval_ms: Annotated[int, Field(ge=100, le=60_000)] = 5_000
    """How far the archive may be behind the log while there is something new, milliseconds."""

    piece_bytes: Annotated[int, Field(ge=KIB, le=16 * MIB)] = MIB
    """Bytes of entries after which a piece is written even before its time."""

    waiting_bytes_max: Annotated[int, Field(ge=MIB, le=GIB)] = 16 * MIB
    """Bytes of entries that the archiving agent keeps while the bucket takes none; beyond, it reads them from
    the log again, which has them until two more snapshots are recorded."""


class ScrubConfig(Section):
    """Reading again what lies in the bucket, and mending what is damaged (docs/operations.md, Scrub)."""

    enabled: bool = True
    """Let this agent scrub; one of those that may does it."""

    bytes_per_s: Annotated[int, Field(ge=64 * KIB, le=10 * GIB)] = 8 * MIB
    """Bytes that are read per second, of the whole cluster: 5 TB in seven days."""

    round_s: Annotated[int, Field(ge=1, le=366 * 86_400)] = 7 * 86_400
    """Time from the beginning of a round through everything to that of the next one, seconds; a round that
    takes longer at `bytes_per_s` is followed by the next one at once."""

    begin_s: Annotated[int, Field(ge=0, le=86_400)] = 600
    """Time for which an agent has had the job before it begins a round, seconds."""

    repair: bool = True
    """Mend what is held twice; else it is only told."""


class CompactionConfig(Section):
    """Compaction of topics with cleanup.policy=compact. When it is due, topic configs say."""

    enabled: bool = True
    """Let this agent compact."""

    dirty_bytes_min: Bytes = 8 * MIB
    """Bytes not yet compacted that make a partition due (max.compaction.lag.ms makes it so without)."""


class MergingConfig(Section):
    """Merging of small slices into per-partition segments, in the background."""

    enabled: bool = True
    """Let this agent merge. Agents share the work; with none the state grows with the data."""

    interval_ms: Annotated[int, Field(ge=10, le=86_400_000)] = 5_000
    """Time between two looks at what is to be merged, milliseconds."""

    segment_bytes: Annotated[int, Field(ge=64 * KIB, le=512 * MIB)] = 64 * MIB
    """Record bytes of a segment at most, and what one merge holds in memory, about twice, while it lasts."""

    min_slices: Annotated[int, Field(ge=8, le=100_000)] = 1_000
    """Slices of one partition that make it worth merging; one slice per flush that touched the partition."""

    keep_slices: Annotated[int, Field(ge=0, le=100_000)] = 64
    """Newest slices that stay as they are: readers of the tail have them in memory."""

    tail_slices_max: Count = 2_000_000
    """Unmerged slices of the whole cluster to aim at, 32 bytes each: with many partitions fewer than
    `min_slices` are enough."""

    age_s: Annotated[int, Field(ge=1, le=366 * 86_400)] = 3_600
    """A partition with slices older than this, seconds, is merged even if they are few."""

    skipped_wait_s: Annotated[int, Field(ge=0, le=366 * 86_400)] = 3_600
    """Time since damage was passed over (`floe topic skip-damaged`) until merging and compaction make it a
    hole for good, seconds: till then an object that is restored is read again."""


class CollectionConfig(Section):
    """Removal of chunks that nothing references."""

    enabled: bool = True
    """Let this agent collect."""

    interval_s: Annotated[int, Field(ge=1, le=86_400)] = 600
    """Time between two runs, seconds."""

    grace_s: Seconds = 3_600
    """Age since the last reference at which a chunk is removed, seconds."""

    dry_run: bool = False
    """List what would be removed, remove nothing."""
