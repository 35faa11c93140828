"""What agents say to each other: frames and the handshake. No sockets here.

Numbers are big-endian. After the handshake a connection carries one request at a time:

    request   u32 bytes that follow, u8 whether the chunk is recent, then per slice: u64 incarnation,
              u64 number, u32 position, u32 length, i64 base offset, i64 end offset
    answer    u32 CRC-32C of what followed the size, u8 status, then with OK the slices' bytes, side by side

A request of one byte, `FIGURES`, asks what the agent says of itself, for people: the answer with OK goes on
with u32 bytes that follow, and these (agent/telemetry/told_figures.py). Agents of before hang up on it.

READING comes any number of times before an answer: the owner lives, and waits for the bucket itself.
A request that begins with 2 is another one: the connection is a relay's then (agent/cluster/relay/wire.py).
The CRC ties an answer to its request. The handshake proves both ways that the other side knows the
cluster's secret, without sending it: `HELLO` nonce → nonce, proof of "client" → proof of "server". Nothing is
encrypted here; with certificates all of it goes over TLS (tls.py).
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence
from enum import IntEnum
from struct import Struct

from crc32c import crc32c

from objectstore.naming import ChunkId, SliceRef
from objectstore.store import Buffer

HELLO = b"FLOEPEER1\n"
NONCE_BYTES = 16
PROOF_BYTES = 32
FOLLOW = b"\2"
"""How a request begins that is not for slices but to follow the log (agent/cluster/relay/wire.py)."""
SIZE = Struct(">I")
ANSWER = Struct(">IB")
SLICES_MAX = 4096  # in one request
FIGURES = b"\3"
FIGURES_BYTES_MAX = 64 * 1024
_SLICE = Struct(">QQIIqq")
REQUEST_BYTES_MAX = 1 + SLICES_MAX * _SLICE.size


class Status(IntEnum):
    """What became of a request."""

    OK = 0
    BUSY = 1  # too much is under way
    GONE = 2  # the chunk does not exist (any more)
    FAILED = 3
    READING = 4  # not an answer yet: it is being read, and this side lives


class PeerError(Exception):
    """The other side cannot be used now: it does not speak this, is not of this cluster, or says no."""


class PeerAnswered(PeerError):
    """The other side lives and gave no bytes; `status` says why."""

    def __init__(self, status: Status) -> None:
        super().__init__(f"the peer answered {status.name}")
        self.status = status


class TooManyWait(PeerError):
    """So many of this agent's own requests wait for the peer that one more would wait in vain."""


def secret_of(cluster_id: bytes, cluster: str, configured: str = "") -> bytes:
    """What only agents know, where one is configured; else all who know the cluster's id, which clients are
    told."""
    known = hashlib.sha256(b"floe peers\0" + cluster_id + cluster.encode()).digest()
    return hmac.digest(configured.encode(), known, "sha256") if configured else known


def proof(secret: bytes, side: bytes, nonce: bytes) -> bytes:
    """Shows knowledge of the secret to whoever chose the nonce; `side` is b"client" or b"server"."""
    return hmac.digest(secret, side + nonce, "sha256")


def proven(given: bytes, secret: bytes, side: bytes, nonce: bytes) -> bool:
    """Whether a proof is the other side's."""
    return hmac.compare_digest(given, proof(secret, side, nonce))


def encode_request(slices: Sequence[SliceRef], recent: bool) -> bytes:
    """A request with its size in front. At most SLICES_MAX slices, all of one chunk.

    `recent`: who asks knows the chunk as recent; the owner may not have heard of it yet.
    """
    assert len(slices) <= SLICES_MAX, f"{len(slices)} slices in one request"
    body = bytes([recent]) + b"".join(
        _SLICE.pack(*each.chunk[:2], each.position, each.length, each.base_offset, each.end_offset)
        for each in slices
    )
    return SIZE.pack(len(body)) + body


def decode_request(body: bytes) -> tuple[list[SliceRef], bool]:
    """The slices of a request, of one chunk, and whether that is recent. Raises PeerError."""
    if not 1 < len(body) <= REQUEST_BYTES_MAX or (len(body) - 1) % _SLICE.size:
        raise PeerError(f"a request of {len(body)} bytes is no list of slices")
    slices = [
        SliceRef(base, end, ChunkId(incarnation, number), position, length, -1)
        for incarnation, number, position, length, base, end in _SLICE.iter_unpack(body[1:])
    ]
    if any(each.chunk != slices[0].chunk for each in slices):
        raise PeerError("a request for slices of several chunks")
    return slices, bool(body[0])


def encode_answer(body: bytes, status: Status, slices: Sequence[Buffer] = ()) -> list[Buffer]:
    """The answer to a request's body."""
    return [ANSWER.pack(crc32c(body), status), *slices]


def check_answer(head: bytes, request: bytes) -> Status:
    """The status of an answer to this request (with its size in front). Raises PeerError."""
    crc, status = ANSWER.unpack(head)
    if crc != crc32c(request[SIZE.size :]) or status not in Status.__members__.values():
        raise PeerError("the answer is not to this request")
    return Status(status)
