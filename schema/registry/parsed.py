"""What the types of schemas have in common: a schema that was read, and what keeps a reader from a writer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

IMPORTS_MAX = 256
"""Schemas that a schema may refer to, those that they refer to among them."""

Imports = Mapping[str, bytes]
"""Canonical forms by the names that references give: all that a schema refers to, over all levels."""


class InvalidSchema(ValueError):
    """The text is no schema; the message says where it stops being one."""


@dataclass(frozen=True, slots=True)
class Parsed:
    """A schema: what it means, and how it is told."""

    canonical: bytes
    text: str


class Difference(NamedTuple):
    """What is different, where, in words. {new} and {old} in them: which of the two is meant."""

    kind: str
    path: str
    words: str


def check_imports(imports: Imports) -> None:
    """Raises InvalidSchema where there are too many."""
    if len(imports) > IMPORTS_MAX:
        raise InvalidSchema(f"{len(imports)} imported schemas: the limit is {IMPORTS_MAX}")
