"""Compatibility levels: which earlier versions a new schema is compared with, in which directions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from google.protobuf.descriptor import FileDescriptor

from schema.registry.rules import differences

LEVELS = (
    *("NONE", "BACKWARD", "BACKWARD_TRANSITIVE", "FORWARD", "FORWARD_TRANSITIVE", "FULL"),
    "FULL_TRANSITIVE",
)
DEFAULT = "BACKWARD"
DIFFERENCES_MAX = 20  # told of one comparison
TEXT_CHARS_MAX = 10_000  # of the earlier schema in a problem


class Earlier(NamedTuple):
    """A version that the subject has."""

    version: int
    text: str
    file: FileDescriptor


def problems(new: FileDescriptor, earlier: Sequence[Earlier], level: str) -> list[str]:
    """Why the new schema does not go with the earlier ones, oldest first; empty: it does.

    BACKWARD: who reads with the new one understands what was written with the newest of the earlier ones;
    FORWARD: the other way round; FULL: both; …_TRANSITIVE: with all of them. Told as
    Confluent's registry does. CPU: call it in a thread.
    """
    if level == "NONE":
        return []
    looked_at = earlier if level.endswith("_TRANSITIVE") else earlier[-1:]
    found: list[str] = []
    for one in reversed(looked_at):
        told = _backward(new, one.file, level) + _forward(new, one.file, level)
        if told:
            found += [*told[:DIFFERENCES_MAX], f"{{oldSchemaVersion: {one.version}}}"]
            found += [f"{{oldSchema: '{one.text[:TEXT_CHARS_MAX]}'}}", f"{{compatibility: '{level}'}}"]
            break  # as there: the newest that it does not go with
    return found


def _backward(new: FileDescriptor, old: FileDescriptor, level: str) -> list[str]:
    return _told(new, old, "new", "old") if level.startswith(("BACKWARD", "FULL")) else []


def _forward(new: FileDescriptor, old: FileDescriptor, level: str) -> list[str]:
    return _told(old, new, "old", "new") if level.startswith(("FORWARD", "FULL")) else []


def _told(reader: FileDescriptor, writer: FileDescriptor, reads: str, writes: str) -> list[str]:
    found = []
    for kind, path, words in differences(reader, writer):
        said = words.format(new=reads, old=writes)
        found.append(f'{{errorType:"{kind}", description:"{said} (path \'{path}\')"}}')
    return found
