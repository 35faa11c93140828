"""What a relay and who follows it say, on a connection of peers (peers/wire.py). No sockets here.

    follow    the body of a request: u8 2, u8 1 (version), 16 bytes which log, u64 after which revision
    answer    as to every request; with OK the connection is the relay's from then on
    frame     u32 bytes that follow, u64 through, then per entry: u64 revision, u64 incarnation,
              u64 sequence, 16 bytes rolling hash before it, 16 bytes seal, u32 length, the payload
    wants     u64 a revision that the follower waits for, at any time

A body of this length is no list of slices to an agent of before: it hangs up. The seal is the rolling hash's
own chain (coordination/state/digest.py) over the hash before and the entry, taken where the relay heard the
entry of etcd: what is damaged in its memory or on the way is known before it is applied.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from struct import Struct

from agent.cluster.peers.wire import FOLLOW, SIZE, PeerError
from coordination.log import LogEntry
from coordination.state.digest import DIGEST_BYTES, chain

_VERSION = 1
_FOLLOW = Struct(f">1sB{DIGEST_BYTES}sQ")
HEAD = Struct(">IQ")
_ITEM = Struct(f">QQQ{DIGEST_BYTES}s{DIGEST_BYTES}sI")
WANTS = Struct(">Q")
FRAME_BYTES_GOAL = 256 * 1024
"""A frame takes no other entry once it is so large, bytes."""
ENTRY_BYTES_MAX = 2 << 20
"""No log takes entries so large (Log.entry_bytes_max is 1 MiB), bytes."""
FRAME_BYTES_MAX = FRAME_BYTES_GOAL + _ITEM.size + ENTRY_BYTES_MAX


@dataclass(frozen=True, slots=True)
class Item:
    """An entry, the rolling hash before it as the relay has it, and the seal over both."""

    entry: LogEntry
    before: bytes
    seal: bytes

    @property
    def whole(self) -> bool:
        """Whether it is as the relay heard it."""
        return chain(self.before, self.entry, ()) == self.seal


@dataclass(frozen=True, slots=True)
class Follow:
    """A request to be told everything after a revision of a log."""

    log: bytes
    after: int


def name_of(identity: str) -> bytes:
    """Which log, in 16 bytes, from Log.identity."""
    return blake2b(identity.encode(), digest_size=DIGEST_BYTES).digest()


def encode_follow(log: bytes, after: int) -> bytes:
    """The request, with its size in front."""
    return SIZE.pack(_FOLLOW.size) + _FOLLOW.pack(FOLLOW, _VERSION, log, after)


def decode_follow(body: bytes) -> Follow:
    """Raises PeerError."""
    if len(body) != _FOLLOW.size or body[1] != _VERSION:
        raise PeerError(f"a request of {len(body)} bytes to follow is of another version")
    _, _, log, after = _FOLLOW.unpack(body)
    return Follow(log, after)


def encode_item(entry: LogEntry, before: bytes) -> bytes:
    """An entry as it travels in frames."""
    seal = chain(before, entry, ())
    size = len(entry.payload)
    return _ITEM.pack(entry.revision, entry.incarnation, entry.sequence, before, seal, size) + entry.payload


def decode_items(body: bytes, at: int) -> Iterator[Item]:
    """The entries of a frame's body from a position on. Raises PeerError when it is not made of entries."""
    while at < len(body):
        if len(body) - at < _ITEM.size:
            raise PeerError("a frame ends within an entry's head")
        revision, incarnation, sequence, before, seal, size = _ITEM.unpack_from(body, at)
        at += _ITEM.size
        if len(body) - at < size:
            raise PeerError(f"a frame ends within an entry of {size} bytes")
        yield Item(LogEntry(revision, incarnation, sequence, body[at : at + size]), before, seal)
        at += size
