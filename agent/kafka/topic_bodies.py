"""Topics as Metadata's answer holds them, encoded once: clients ask for the same ones again and again.

A body depends on the version, the client's zone, whether operations are asked for, the leader epoch, the
brokers of now, and the topic's id and number of partitions. What depends on the brokers is dropped when one
comes or goes.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

from agent.net.wire.generated.metadata import MetadataResponse, MetadataResponseTopic, encode_response
from agent.net.wire.primitives import Buffer, varint
from coordination.state.types import Topic

ENTRY_BYTES = 200  # of the dict's entry and the objects in it, besides the body
FLAVOUR_BYTES = 500  # of a flavour, besides its entries
FLEXIBLE_SINCE = 9


class Flavour(NamedTuple):
    """What tells the bodies of one topic apart."""

    version: int
    zone: str
    """One that has agents, or ANYWHERE (agent/cluster/hints.py)."""
    operations: int
    leader_epoch: int


Bodies = dict[bytes, tuple[int, bytes]]  # topic id → (partitions, body)


class TopicBodies:
    """The bodies, by flavour; at most `bytes_max` bytes of them."""

    def __init__(self, bytes_max: int) -> None:
        self.size = 0
        """Bytes held."""
        self._bytes_max = bytes_max
        self._brokers: object = None
        self._kept: OrderedDict[Flavour, Bodies] = OrderedDict()
        self._sizes: dict[Flavour, int] = {}

    def use(self, flavour: Flavour, brokers: object) -> Bodies:
        """The bodies of a flavour. `brokers` is any object that is another one when a broker came or went."""
        if brokers is not self._brokers:
            self._brokers = brokers
            self._kept.clear()
            self._sizes.clear()
            self.size = 0
        bodies = self._kept.get(flavour)
        if bodies is None:
            bodies = self._kept[flavour] = {}
            self._count(flavour, FLAVOUR_BYTES)
        else:
            self._kept.move_to_end(flavour)
        return bodies

    def get(self, bodies: Bodies, topic: Topic, partitions: int) -> bytes | None:
        """The topic's body with so many partitions, if it is there."""
        known = bodies.get(topic.topic_id)
        return known[1] if known is not None and known[0] == partitions else None

    def put(self, flavour: Flavour, bodies: Bodies, topic: Topic, partitions: int, body: bytes) -> None:
        """Keep a body, unless the flavour was dropped meanwhile. Deleted topics go with their flavour."""
        if self._kept.get(flavour) is not bodies:
            return
        known = bodies.get(topic.topic_id)
        bodies[topic.topic_id] = (partitions, body)
        self._count(flavour, len(body) + ENTRY_BYTES if known is None else len(body) - len(known[1]))

    def _count(self, flavour: Flavour, size: int) -> None:
        """The flavour takes so much more; the least used ones go for it."""
        self._sizes[flavour] = self._sizes.get(flavour, 0) + size
        self.size += size
        while self.size > self._bytes_max:
            oldest, _ = self._kept.popitem(last=False)
            self.size -= self._sizes.pop(oldest)


def encoded_topic(topic: MetadataResponseTopic, version: int) -> bytes:
    """A topic as it stands inside the answer."""
    start, tail = _edges(version)
    whole = b"".join(encode_response(MetadataResponse(topics=[topic]), version))
    return whole[start : len(whole) - tail]


@cache
def _edges(version: int) -> tuple[int, int]:
    """Bytes before the first topic and after the last one of an answer with nothing else in it."""
    head, tail = _around(version, MetadataResponse())
    return len(head) + (1 if version >= FLEXIBLE_SINCE else 4), len(tail)


def assembled(response: MetadataResponse, bodies: Sequence[bytes], version: int) -> list[Buffer]:
    """The answer whose topics are these bodies; `response` has all but its topics."""
    head, tail = _around(version, response)
    if version >= FLEXIBLE_SINCE:
        return [head, varint(len(bodies) + 1), b"".join(bodies), tail]
    return [head, len(bodies).to_bytes(4, "big"), b"".join(bodies), tail]


def _around(version: int, response: MetadataResponse) -> tuple[bytes, bytes]:
    """What stands before the number of topics and after the last one."""
    whole = b"".join(encode_response(response, version))
    tail = (4 if 8 <= version <= 10 else 0) + (2 if version >= 13 else 0) + (version >= FLEXIBLE_SINCE)
    count = 1 if version >= FLEXIBLE_SINCE else 4
    end = len(whole) - tail
    return whole[: end - count], whole[end:]
