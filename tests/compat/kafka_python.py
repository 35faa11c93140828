"""kafka-python, whose import warns of what Python 3.11 calls deprecated in it."""

from __future__ import annotations

import warnings

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaConsumer, KafkaProducer, OffsetAndMetadata, TopicPartition
    from kafka.admin import ConfigResource, KafkaAdminClient, NewTopic
    from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
    from kafka.coordinator.assignors.range import RangePartitionAssignor
    from kafka.errors import KafkaError

__all__ = [
    "ConfigResource",
    "CooperativeStickyAssignor",
    "KafkaAdminClient",
    "KafkaConsumer",
    "KafkaError",
    "KafkaProducer",
    "NewTopic",
    "OffsetAndMetadata",
    "RangePartitionAssignor",
    "TopicPartition",
]
