"""The rolling hash of the state: a chain over every entry and what it did."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from hashlib import blake2b

from coordination.log import LogEntry
from coordination.state.types import ChunkCommitted, Done, Refused, Result

DIGEST_BYTES = 16
PLAIN = (int, str, bytes)  # values that are told by their repr
START = bytes(DIGEST_BYTES)  # the hash of the empty state


def chain(before: bytes, entry: LogEntry, results: Sequence[Result]) -> bytes:
    """The hash after `entry` gave `results`, from the hash before it."""
    named = b"%d %d %d " % (entry.revision, entry.incarnation, entry.sequence)
    said = b"".join((before, named, entry.payload, *_parts(results)))  # hashed in one call
    return blake2b(said, digest_size=DIGEST_BYTES).digest()


def print_of(entry: LogEntry) -> bytes:
    """A hash of one entry alone: its author, its number and its payload, wherever it stands."""
    said = b"%d %d %b" % (entry.incarnation, entry.sequence, entry.payload)
    return blake2b(said, digest_size=DIGEST_BYTES).digest()


def _parts(results: Iterable[object]) -> Iterable[bytes]:
    """Bytes that say what was decided; words in the machine's order, which is little-endian everywhere."""
    for result in results:
        if isinstance(result, ChunkCommitted):
            yield array("q", result.base_offsets).tobytes()
            if any(result.errors):
                yield array("q", result.errors).tobytes()
        elif isinstance(result, Done):
            value = result.value
            if value is None or isinstance(value, PLAIN):  # most are, and thousands may be in one change
                yield b"=" + repr(value).encode()
            else:
                yield b"="
                yield from _parts((value,))
        elif isinstance(result, Refused):  # without its wording, which may differ between versions
            yield b"!%d" % result.code
        elif isinstance(result, tuple):  # of values, or of the results of a change in parts
            yield b"(%d" % len(result)
            yield from _parts(result)
        elif result is None or isinstance(result, PLAIN):
            yield repr(result).encode()
        else:
            raise TypeError(f"no digest for a result of type {type(result).__name__}")
