"""Protobuf schemas at the door: bytes in, verdict out."""
