"""Kafka: from a request to its answer. Knows no socket and no background job."""
