"""Sockets: connections, frames and the wire codecs. Knows no Kafka handler."""
