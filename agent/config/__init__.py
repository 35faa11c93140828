"""Configuration: one typed, frozen object from file, environment and flags."""

from agent.config.base import Section
from agent.config.errors import ConfigError
from agent.config.limits import (
    CollectionConfig,
    FetchConfig,
    LimitsConfig,
    LogArchiveConfig,
    MergingConfig,
    ProduceConfig,
    ReplicaConfig,
    RulesConfig,
    SchemaConfig,
    SnapshotsConfig,
    TablesConfig,
)
from agent.config.load import Loaded, in_force, load
from agent.config.model import Config, advertised, embedded_values
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
from agent.config.tokens import DelegationConfig, OauthConfig

__all__ = [
    "Config",
    "ConfigError",
    "Loaded",
    "load",
    "in_force",
    "advertised",
    "embedded_values",
    "Section",
    "ClusterConfig",
    "AgentConfig",
    "ListenerConfig",
    "LogConfig",
    "StoreConfig",
    "ProduceConfig",
    "FetchConfig",
    "ReplicaConfig",
    "LimitsConfig",
    "RulesConfig",
    "SchemaConfig",
    "TablesConfig",
    "SnapshotsConfig",
    "LogArchiveConfig",
    "CollectionConfig",
    "HttpConfig",
    "ShutdownConfig",
    "LoggingConfig",
    "MergingConfig",
    "PeersConfig",
    "SaslConfig",
    "OauthConfig",
    "DelegationConfig",
]
