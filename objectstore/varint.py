"""Numbers as protobuf and Kafka's records write them: seven bits a byte, the lowest first."""

from __future__ import annotations


def varint(number: int) -> bytes:
    """A number that is not negative."""
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def zigzag(number: int) -> bytes:
    """A number of either sign: small ones take few bytes."""
    return varint(number << 1 if number >= 0 else (-number << 1) - 1)
