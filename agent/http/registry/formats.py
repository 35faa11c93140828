"""Schemas' texts in the format that a request asks for; those that have to be made are made in a thread.

Confluent's names: AVRO `resolved` (what it refers to stands in it), PROTOBUF `serialized` (a descriptor in
base64) and `ignore_extensions`. Of another type, or by another name, a format says nothing, as there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping

from starlette.requests import Request

from agent.http.registry.errors import invalid_schema, schema_missing
from agent.http.registry.judging import imports_of_each
from coordination.state.subject_types import RegisteredSchema, SubjectTable
from objectstore.turns import in_turns
from schema.registry.avro.schema import resolved
from schema.registry.parsed import Imports, InvalidSchema
from schema.registry.protobuf import serialized, without_extensions

Texts = Mapping[int, str]
"""By id."""

FORMATS: Mapping[tuple[str, str], Callable[[bytes, Imports], str]] = {
    ("AVRO", "resolved"): resolved,
    ("PROTOBUF", "serialized"): lambda form, _imports: serialized(form),
    ("PROTOBUF", "ignore_extensions"): without_extensions,
}
RESOLVED_CHARS_MAX = 32 << 20  # of one answer


async def texts(table: SubjectTable, schemas: Iterable[RegisteredSchema], request: Request) -> Texts:
    """The schemas as asked for.

    Raises RegistryProblem 42201 for one that cannot be told so, 40403 for one that is gone meanwhile.
    """
    asked = request.query_params.get("format", "")
    wanted = {one.schema_id: one for one in schemas}
    told = {schema_id: one.text for schema_id, one in wanted.items()}
    making = [one for one in wanted.values() if (one.schema_type, asked) in FORMATS]
    if not making:
        return told
    made = []
    for one, imports in zip(making, await in_turns(imports_of_each(table, making)), strict=True):
        if imports is None:
            raise schema_missing(one.schema_id)
        made.append((one, FORMATS[one.schema_type, asked], imports))
    return {**told, **await asyncio.to_thread(_made, made)}


def _made(
    wanted: list[tuple[RegisteredSchema, Callable[[bytes, Imports], str], Imports]],
) -> dict[int, str]:
    found: dict[int, str] = {}
    size = 0
    for schema, make, imports in wanted:
        try:
            found[schema.schema_id] = make(schema.canonical, imports)
        except InvalidSchema as error:
            raise invalid_schema(f"id {schema.schema_id} cannot be told so: {error}") from None
        size += len(found[schema.schema_id])
        if size > RESOLVED_CHARS_MAX:
            what = f"all that is asked for has more than {RESOLVED_CHARS_MAX} characters in this format"
            raise invalid_schema(f"{what}: ask for fewer with limit")
    return found
