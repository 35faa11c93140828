"""Schemas and versions as JSON, in Confluent's names."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from starlette.responses import JSONResponse, Response

from agent.http.registry.errors import CONTENT_TYPE
from coordination.state.subject_types import IDENTITY_BYTES, RegisteredSchema, SubjectVersion
from schema import framing

DEFAULT_TYPE = "AVRO"
"""Of a schema that names none, to the registry and to its clients."""


def answer(content: object) -> Response:
    """JSON of the registry's own content type."""
    return JSONResponse(content, media_type=CONTENT_TYPE)


def text(content: str) -> Response:
    """A schema alone, as it is."""
    return Response(content, media_type=CONTENT_TYPE)


def guid(identity: bytes) -> str:
    """The same for schemas that mean the same, in any cluster."""
    return framing.shown(identity)


def identity_of(given: str) -> bytes | None:
    """The reverse of `guid`; None for what is none."""
    try:
        found = bytes.fromhex(given.replace("-", ""))
    except ValueError:
        return None
    return found if len(found) == IDENTITY_BYTES else None


def schema_shown(schema: RegisteredSchema, told: Mapping[int, str]) -> dict[str, Any]:
    """What a schema is, without its names and numbers; `told`: its text by its id (formats.py)."""
    shown: dict[str, Any] = {"schema": told[schema.schema_id]}
    if schema.schema_type != DEFAULT_TYPE:  # as there: clients take it for that
        shown = {"schemaType": schema.schema_type, **shown}
    if schema.references:
        shown["references"] = [
            {"name": one.name, "subject": one.subject, "version": one.version} for one in schema.references
        ]
    if schema.metadata:
        shown["metadata"] = json.loads(schema.metadata)
    if schema.rule_set:
        shown["ruleSet"] = json.loads(schema.rule_set)
    return shown


def version_shown(
    subject: str, version: SubjectVersion, schema: RegisteredSchema, told: Mapping[int, str]
) -> dict[str, Any]:
    """A version of a subject; `deleted` is told of deleted ones only."""
    shown: dict[str, Any] = {
        "subject": subject,
        "version": version.version,
        "id": schema.schema_id,
        "guid": guid(schema.identity),
    }
    if version.deleted:
        shown["deleted"] = True
    return {**shown, **schema_shown(schema, told)}
