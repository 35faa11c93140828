"""What is referred to and has to be there: an object, why it is needed, and what is lost without it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import NamedTuple

from coordination.places import Place
from coordination.state.types import Merged, SnapshotRecord
from objectstore.naming import ChunkId, PieceId
from objectstore.segment import SegmentInfo


class OfManifest(NamedTuple):
    """A segment as the manifest of a partition names it."""

    partition: int
    info: SegmentInfo


class OfPointer(NamedTuple):
    """A manifest as the state has it of a partition."""

    partition: int
    pointer: Merged


def _sound(_content: bytes) -> str:
    return ""


@dataclass(frozen=True, slots=True)
class Need:
    """An object that something refers to. `size` in bytes, 0: not known.

    `needed`: whether the state of now still asks for it; `still`, where that takes reading. `check`: what it
    must be beyond what it says of itself; the problem, or nothing. `places`: records that are lost with it,
    where that is known beforehand. `leads`: whether its bytes tell what else is needed.
    """

    key: str
    needed: Callable[[], bool]
    size: int = 0
    what: ChunkId | OfManifest | OfPointer | SnapshotRecord | PieceId | None = None
    check: Callable[[bytes], str] = _sound
    table: str = ""
    places: tuple[Place, ...] = ()
    still: Callable[[], Awaitable[bool]] | None = None
    leads: bool = True


Look = Callable[[Need], Awaitable[bytes | None]]
"""Reads, checks and mends an object; its bytes, None where it is not whole (or too large to be held)."""
