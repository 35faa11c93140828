"""What members of classic groups of the type "consumer" say to each other, as far as apply needs it.

Kafka's ConsumerProtocolSubscription: version int16, topics array of strings, more in later versions.
"""

from __future__ import annotations

from struct import Struct, error

PROTOCOL_TYPE = "consumer"

_HEAD = Struct(">hi")  # version, number of topics
_LENGTH = Struct(">h")


def subscribed_topics(metadata: bytes) -> tuple[str, ...] | None:
    """The topics that a subscription names; None when the bytes are no subscription."""
    try:
        version, count = _HEAD.unpack_from(metadata)
        if version < 0 or not 0 <= count <= len(metadata):
            return None
        topics = []
        position = _HEAD.size
        for _ in range(count):
            (length,) = _LENGTH.unpack_from(metadata, position)
            position += _LENGTH.size
            if length < 0 or position + length > len(metadata):
                return None
            topics.append(metadata[position : position + length].decode())
            position += length
    except (error, UnicodeDecodeError):
        return None
    return tuple(topics)
