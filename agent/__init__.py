"""The process: sockets in, Kafka out."""
