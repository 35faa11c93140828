"""All settings of one agent as a tree of sections, without the rules that hold between them (rules.py)."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from agent.config.audit_log import AuditLogConfig
from agent.config.authorizer import AuthorizerConfig
from agent.config.base import Section
from agent.config.catalog import CatalogServiceConfig
from agent.config.catalogs import CatalogConfig
from agent.config.console import ConsoleConfig
from agent.config.following import FollowConfig
from agent.config.limits import (
    CollectionConfig,
    CompactionConfig,
    FetchConfig,
    HealthConfig,
    LimitsConfig,
    LogArchiveConfig,
    MergingConfig,
    ProduceConfig,
    ReplicaConfig,
    RulesConfig,
    SchemaConfig,
    ScrubConfig,
    SnapshotsConfig,
    TablesConfig,
)
from agent.config.quotas import QuotasConfig
from agent.config.redaction import RedactionConfig
from agent.config.relaying import RelayConfig
from agent.config.sections import (
    AgentConfig,
    ClusterConfig,
    HttpConfig,
    ListenerConfig,
    LogConfig,
    LoggingConfig,
    PeersConfig,
    SaslConfig,
    ShutdownConfig,
    StoreConfig,
)
from agent.config.telemetry import TelemetryConfig, TracesConfig
from agent.config.tokens import DelegationConfig, OauthConfig


class Tree(Section):
    """Everything an agent is told. Units are in the names: ms, s, bytes, per_s, max."""

    cluster: ClusterConfig = ClusterConfig()
    agent: AgentConfig = AgentConfig()
    listeners: Annotated[tuple[ListenerConfig, ...], Field(min_length=1, max_length=16)] = (ListenerConfig(),)
    sasl: SaslConfig = SaslConfig()
    audit_log: AuditLogConfig = AuditLogConfig()
    authorizer: AuthorizerConfig = AuthorizerConfig()
    oauth: OauthConfig = OauthConfig()
    delegation: DelegationConfig = DelegationConfig()
    peers: PeersConfig = PeersConfig()
    relay: RelayConfig = RelayConfig()
    follow: FollowConfig = FollowConfig()
    log: LogConfig
    store: StoreConfig
    produce: ProduceConfig = ProduceConfig()
    fetch: FetchConfig = FetchConfig()
    replica: ReplicaConfig = ReplicaConfig()
    limits: LimitsConfig = LimitsConfig()
    quotas: QuotasConfig = QuotasConfig()
    schemas: SchemaConfig = SchemaConfig()
    redaction: RedactionConfig = RedactionConfig()
    rules: RulesConfig = RulesConfig()
    tables: TablesConfig = TablesConfig()
    catalog: CatalogServiceConfig = CatalogServiceConfig()
    catalogs: Annotated[tuple[CatalogConfig, ...], Field(max_length=16)] = ()
    snapshots: SnapshotsConfig = SnapshotsConfig()
    log_archive: LogArchiveConfig = LogArchiveConfig()
    compaction: CompactionConfig = CompactionConfig()
    merging: MergingConfig = MergingConfig()
    collection: CollectionConfig = CollectionConfig()
    scrub: ScrubConfig = ScrubConfig()
    health: HealthConfig = HealthConfig()
    http: HttpConfig = HttpConfig()
    console: ConsoleConfig = ConsoleConfig()
    shutdown: ShutdownConfig = ShutdownConfig()
    logging: LoggingConfig = LoggingConfig()
    telemetry: TelemetryConfig = TelemetryConfig()
    traces: TracesConfig = TracesConfig()
