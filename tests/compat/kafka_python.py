"""kafka-python, whose import warns of what Python 3.11 calls deprecated in it."""

from __future__ import annotations

import warnings

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaConsumer, KafkaProducer, TopicPartition
    from kafka.admin import KafkaAdminClient, NewTopic

__all__ = ["KafkaConsumer", "KafkaProducer", "TopicPartition", "KafkaAdminClient", "NewTopic"]
