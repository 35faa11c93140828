"""What judges records of AVRO and JSON schemas, whose frames end with the id."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

from schema.registry.avro import schema as avro
from schema.registry.avro.datum import Datum
from schema.registry.json import schema as json_schema
from schema.registry.json.judging import Judge as JsonJudge
from schema.registry.parsed import Imports, InvalidSchema

_KEPT_MAX = 64  # judges kept ready for other topics and batches; least recently used go first


class Judge(NamedTuple):
    """What says why the bytes behind a frame are not the schema's (`problem`; None: they are).

    `name`: of what it describes, as subjects are called after it; empty: none. `slow`: some 30 µs a record
    and more, which is too much for an event loop.
    """

    name: str
    problem: Callable[[bytes], str | None]
    slow: bool


def of(schema_type: str, form: bytes, imports: Imports) -> Judge:
    """Of a schema's canonical form. CPU: call it in a thread. Raises InvalidSchema."""
    return _of(schema_type, form, tuple(sorted(imports.items())))


@functools.lru_cache(maxsize=_KEPT_MAX)
def _of(schema_type: str, form: bytes, given: tuple[tuple[str, bytes], ...]) -> Judge:
    imports = dict(given)
    if schema_type == "AVRO":
        top = avro.load(form, imports)
        return Judge(top.name, Datum(top).problem, slow=False)
    if schema_type == "JSON":
        loaded = json_schema.load(form, imports)
        return Judge(json_schema.title(form), JsonJudge(loaded.root).problem, slow=True)
    raise InvalidSchema(f"it is of type {schema_type}, whose records are not judged")
