"""Confluent's registry client and serializers for Python, as they are, without what only OAuth needs of them.

The client imports authlib, which this environment has not, for two classes that only OAuth uses.
"""

from __future__ import annotations

import sys
import types

_NAME = "authlib.integrations.httpx_client"
if _NAME not in sys.modules:
    _made = types.ModuleType(_NAME)
    _made.OAuth2Client = _made.AsyncOAuth2Client = object  # type: ignore[attr-defined]  # never called
    for _each in ("authlib", "authlib.integrations"):
        sys.modules.setdefault(_each, types.ModuleType(_each))
    sys.modules[_NAME] = _made

from confluent_kafka.schema_registry import (  # noqa: E402 - behind the module above
    ConfigCompatibilityLevel,
    Schema,
    SchemaReference,
    SchemaRegistryClient,
    ServerConfig,
    record_subject_name_strategy,
    topic_record_subject_name_strategy,
)
from confluent_kafka.schema_registry.error import SchemaRegistryError  # noqa: E402 - likewise
from confluent_kafka.schema_registry.protobuf import (  # noqa: E402 - likewise
    ProtobufDeserializer,
    ProtobufSerializer,
)

__all__ = [
    "ConfigCompatibilityLevel",
    "ProtobufDeserializer",
    "ProtobufSerializer",
    "Schema",
    "SchemaReference",
    "SchemaRegistryClient",
    "SchemaRegistryError",
    "ServerConfig",
    "record_subject_name_strategy",
    "topic_record_subject_name_strategy",
]
