"""What marks a field as not for everybody, and what stands in its place: of all kinds of schemas."""

from __future__ import annotations

import functools
import hmac
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol, TypeVar

MASK = "****"
HASH_CHARS = 32
"""Of the hash in hexadecimal: 128 bits."""

TAGS = ("confluent:tags", "confluent.tags")
"""Attributes of AVRO's fields and types, and keywords of JSON Schema, that list a field's tags."""

_KEYS_KEPT = 4

_Content = TypeVar("_Content", str, bytes)


class Action(StrEnum):
    """What stands in the place of a field."""

    REMOVE = "remove"
    HASH = "hash"
    MASK = "mask"


_STRICTEST = (Action.REMOVE, Action.MASK, Action.HASH)


@dataclass(frozen=True, slots=True)
class Marks:
    """Which tags mark a field beside the options, and what stands in its place unless it says so itself.

    `paths`: of one schema, patterns of full names that its metadata tags so (metadata_tags.py).
    """

    action: Action
    tags: frozenset[str] = frozenset()
    paths: tuple[str, ...] = ()


def strictest(told: Iterable[Action]) -> Action | None:
    """Of several marks of one value; None: there is none."""
    return min(told, key=_STRICTEST.index, default=None)


class Unreadable(ValueError):
    """The bytes are no record of the schema. Readers get the reason, so it has nothing of the bytes."""


class Redactor(Protocol):
    """Redacts records of one schema."""

    @property
    def slow(self) -> bool:
        """Whether a record takes some 30 µs and more, which is too much for an event loop."""
        ...

    def redacted(self, payload: bytes) -> bytes:
        """The record without what is marked. CPU work. Raises Unreadable."""
        ...


def stands_in(action: Action, key: bytes) -> bool:
    """Whether something stands in the place of texts and bytes, or they go; `key` is that of hashes."""
    return action is Action.MASK or (action is Action.HASH and key != b"")


def instead(action: Action, key: bytes, value: _Content) -> _Content:
    """What stands in the place of a text, or of bytes."""
    if isinstance(value, str):
        return MASK if action is Action.MASK else _hashed(key, value.encode())
    return MASK.encode() if action is Action.MASK else bytes.fromhex(_hashed(key, value))


def said(marks: Marks, notes: Mapping[str, Any], own: str) -> Action | None:
    """What attributes or keywords beside a field's type say; `own`: Floe's own. None: it is not marked.

    A word of Floe's own that is none of Action's removes the field: somebody meant to mark it.
    """
    word = notes.get(own)
    if word is not None:
        known = [each for each in Action if isinstance(word, str) and each == word.lower()]
        return known[0] if known else Action.REMOVE
    for name in TAGS:
        tags = notes.get(name)
        listed: Iterable[Any] = [tags] if isinstance(tags, str) else tags if isinstance(tags, list) else ()
        if any(isinstance(each, str) and each in marks.tags for each in listed):
            return marks.action
    return None


def _hashed(key: bytes, content: bytes) -> str:
    begun = _begun(key).copy()
    begun.update(content)
    return begun.hexdigest()[:HASH_CHARS]


@functools.lru_cache(maxsize=_KEYS_KEPT)
def _begun(key: bytes) -> hmac.HMAC:
    """What hashes by the key begin with, ready to be copied: a third of their time."""
    return hmac.new(key, digestmod="sha256")
