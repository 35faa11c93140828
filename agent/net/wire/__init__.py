"""Kafka's wire format: generated message codecs, the registry of APIs and the framing."""
