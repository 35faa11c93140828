"""JSON schemas: draft-04, -06, -07, 2019-09 and 2020-12, as `$schema` says; draft-07 without it.

A schema is one document. What it refers to is given by name, resolved against its `$id` as `$ref` is.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from schema.registry.json import rules as json_rules
from schema.registry.json.dialects import check_valid, draft_of
from schema.registry.json.graph import graph
from schema.registry.json.nodes import Node
from schema.registry.json.text import read, written
from schema.registry.parsed import Difference, Imports, InvalidSchema, Parsed, check_imports

_LOADED_MAX = 64  # documents and graphs kept; least recently used go first


@dataclass(frozen=True, slots=True, eq=False)
class Loaded:
    """A schema that is ready to be compared. `given` decides what it is."""

    root: Node
    given: tuple[bytes, tuple[tuple[str, bytes], ...]]


def parse(text: str, imports: Imports, *, normalize: bool = False) -> Parsed:
    """Read a schema. Its text is the one given; with `normalize` it has no white space, and keys by name.

    What makes it the same as another is the text without white space, as in Confluent's registry: the order
    of keys and the form of numbers count. CPU: call it in a thread. Raises InvalidSchema.
    """
    check_imports(imports)
    tree = read(text)
    check_valid(tree, draft_of(tree))
    graph(tree, _trees(imports), everything=True)
    form = written(tree, ordered=normalize)
    return Parsed(form.encode(), form if normalize else text)


def load(form: bytes, imports: Imports) -> Loaded:
    """A canonical text with what it refers to. Raises InvalidSchema."""
    return _load(form, tuple(sorted(imports.items())))


def differences(reader: Loaded, writer: Loaded) -> Sequence[Difference]:
    """What the reader cannot take of what the writer writes; empty: all of it."""
    return [] if reader.given == writer.given else json_rules.compared(reader.root, writer.root)


def title(form: bytes) -> str:
    """What a canonical text calls itself, after which serializers call subjects; empty: nothing."""
    said = read(form.decode())
    found = said.get("title") if isinstance(said, dict) else None
    return found if isinstance(found, str) else ""


@functools.lru_cache(maxsize=_LOADED_MAX)
def _load(form: bytes, given: tuple[tuple[str, bytes], ...]) -> Loaded:
    return Loaded(graph(read(form.decode()), _trees(dict(given))), (form, given))


def _trees(imports: Imports) -> Mapping[str, Any]:
    found = {}
    for name, form in imports.items():
        try:
            found[name] = _tree(form)
        except InvalidSchema as error:
            raise InvalidSchema(f"reference {name}: no JSON schema: {error}") from None
    return found


@functools.lru_cache(maxsize=_LOADED_MAX)
def _tree(form: bytes) -> Any:
    """What a reference leads to; a schema of another type is none of JSON."""
    try:
        tree = read(form.decode())
    except UnicodeDecodeError:
        raise InvalidSchema("its bytes are no text") from None
    check_valid(tree, draft_of(tree))
    return tree
