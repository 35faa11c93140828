"""Compatibility levels: which earlier versions a new schema is compared with, in which directions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from schema.registry.kinds import KINDS

LEVELS = (
    *("NONE", "BACKWARD", "BACKWARD_TRANSITIVE", "FORWARD", "FORWARD_TRANSITIVE", "FULL"),
    "FULL_TRANSITIVE",
)
DEFAULT = "BACKWARD"
DIFFERENCES_MAX = 20  # told of one comparison
TEXT_CHARS_MAX = 10_000  # of the earlier schema in a problem


class Loaded(NamedTuple):
    """A schema of a type (kinds.py), as its type loads it."""

    kind: str
    form: Any


class Earlier(NamedTuple):
    """A version that the subject has."""

    version: int
    text: str
    schema: Loaded


def problems(new: Loaded, earlier: Sequence[Earlier], level: str) -> list[str]:
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
        told = _between(new, one.schema, level)
        if told:
            found += [*told[:DIFFERENCES_MAX], f"{{oldSchemaVersion: {one.version}}}"]
            found += [f"{{oldSchema: '{one.text[:TEXT_CHARS_MAX]}'}}", f"{{compatibility: '{level}'}}"]
            break  # as there: the newest that it does not go with
    return found


def _between(new: Loaded, old: Loaded, level: str) -> list[str]:
    if new.kind != old.kind:
        return [f"Incompatible because of different schema type: {new.kind} after {old.kind}"]
    found = _told(new, old, "new", "old") if level.startswith(("BACKWARD", "FULL")) else []
    return [*found, *(_told(old, new, "old", "new") if level.startswith(("FORWARD", "FULL")) else [])]


def _told(reader: Loaded, writer: Loaded, reads: str, writes: str) -> list[str]:
    found = []
    for kind, path, words in KINDS[reader.kind].differences(reader.form, writer.form):
        said = words.replace("{new}", reads).replace("{old}", writes)
        found.append(f'{{errorType:"{kind}", description:"{said} (path \'{path}\')"}}')
    return found
