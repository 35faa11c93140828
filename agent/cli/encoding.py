"""JSON lines → records that name a schema of the registry, in Confluent's frame: PROTOBUF and JSON.

AVRO is left to its serializers: Floe's commands have no encoder for it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from google.protobuf import json_format

from agent.cli.failures import Failure, Status, refused, usage
from agent.cli.json_places import place_of
from agent.cli.registry import LATEST, Registry, Version
from agent.cli.values import Encode
from schema import framing
from schema.descriptors import DescriptorError, load, message_at
from schema.registry import protobuf
from schema.registry.parsed import InvalidSchema

REFERENCES_MAX = 1_000  # schemas that are fetched for one
_STEP = re.compile(r"Failed to parse (\S+) field: ")
_AT = re.compile(r'\bat "?[\w.]*?((?:\.\w+(?:\[[^\]]*\])?)*)"?[.\s]*$', re.MULTILINE)
_UNKNOWN = re.compile(r'no field named "([^"]+)"')


def by_subject(registry: Registry, subject: str, number: str = LATEST, message: str = "") -> Encode:
    """Encodes by a version of a subject. Raises Failure."""
    found = registry.version(subject, number)
    if found is None:
        raise refused(f"{subject} has no version {number} at {registry}; see: floe schema list")
    return _encoder(registry, found, message)


def by_id(registry: Registry, schema_id: int, message: str = "") -> Encode:
    """Encodes by a schema's id. Raises Failure."""
    told = registry.found(f"/schemas/ids/{schema_id}")
    if told is None:
        raise refused(f"{registry} has no schema {schema_id}; see: floe schema list")
    references = tuple(
        (one["name"], one["subject"], int(one["version"])) for one in told.get("references", ())
    )
    kind = told.get("schemaType") or "AVRO"
    return _encoder(registry, Version("", 0, schema_id, kind, told["schema"], references, {}), message)


def _encoder(registry: Registry, found: Version, message: str) -> Encode:
    what = f"{found.subject} version {found.version}" if found.subject else f"schema {found.schema_id}"
    if message and found.kind != "PROTOBUF":
        raise usage(f"--message {message!r}: {what} is of {found.kind}, which has no messages")
    if found.kind == "PROTOBUF":
        return _protobuf(registry, found, message, what)
    if found.kind == "JSON":
        return _json(registry, found, what)
    raise usage(f"{what} is of {found.kind}: PROTOBUF and JSON are encoded here, others by their serializers")


def _referred(registry: Registry, found: Version) -> dict[str, Version]:
    """All that a schema refers to, over all levels, by name; what is referred to comes first."""
    done: dict[str, Version] = {}

    def fetch(one: Version) -> None:
        for name, subject, number in one.references:
            if name in done:
                continue
            other = registry.version(subject, number, deleted=True)
            if other is None or len(done) >= REFERENCES_MAX:
                raise refused(
                    f"{registry} does not tell version {number} of {subject}, which is {name} there"
                )
            fetch(other)
            done[name] = other

    fetch(found)
    return done


def _protobuf(registry: Registry, found: Version, message: str, what: str) -> Encode:
    imports: dict[str, bytes] = {}
    try:
        for name, one in _referred(registry, found).items():
            imports[name] = protobuf.parse(one.text, imports).canonical
        files = protobuf.descriptor_set(protobuf.parse(found.text, imports).canonical, imports)
        kind = load(files, message or message_at(files, (0,)))
    except (InvalidSchema, DescriptorError) as error:
        raise Failure(Status.FAILED, f"{what}: {error}") from None
    before = framing.prefix(found.schema_id, kind.indexes)

    def encode(text: str) -> bytes:
        try:
            pool = kind.descriptor.file.pool
            made = json_format.Parse(text, kind.message_class(), descriptor_pool=pool)
        except json_format.ParseError as error:
            raise Failure(Status.FAILED, f"{_where(text, error)}no {kind.name} in JSON: {error}") from None
        return before + type(made).SerializeToString(made)

    return encode


def _json(registry: Registry, found: Version, what: str) -> Encode:
    # imported here: it takes a while, and most commands do without
    from jsonschema.exceptions import best_match
    from jsonschema.validators import Draft7Validator, validator_for
    from referencing import Registry as Known
    from referencing import Resource
    from referencing.jsonschema import DRAFT7

    schema = json.loads(found.text)
    others = {name: json.loads(one.text) for name, one in _referred(registry, found).items()}
    known = Known().with_resources(
        (name, Resource.from_contents(each, default_specification=DRAFT7)) for name, each in others.items()
    )
    validator = validator_for(schema, default=Draft7Validator)(schema, registry=known)
    before = framing.prefix(found.schema_id, (0,))[: framing.ID_END]

    def encode(text: str) -> bytes:
        try:
            value = json.loads(text)
        except json.JSONDecodeError as error:
            raise Failure(
                Status.FAILED, f"line {error.lineno}, column {error.colno}: no JSON: {error.msg}"
            ) from None
        wrong = best_match(validator.iter_errors(value))
        if wrong is not None:
            place = _told(text, list(wrong.absolute_path))
            raise Failure(Status.FAILED, f"{place}not as {what} wants it: {wrong.message}")
        return before + json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()

    return encode


def _where(text: str, error: json_format.ParseError) -> str:
    """Line and column of what an error of protobuf's JSON is about, as far as it says that."""
    words = str(error)
    if "Failed to load JSON" in words:
        return ""  # it has its own
    unknown = _UNKNOWN.search(words)
    at = _AT.search(words)
    path: list[str | int] = []
    if at is not None:
        for name, index in re.findall(r"\.(\w+)(?:\[([^\]]*)\])?", at[1]):
            path += [name, int(index) if index.isdigit() else index] if index else [name]
    else:
        path = [*_STEP.findall(words)]
    if unknown is not None:
        path.append(unknown[1])
    return _told(text, path)


def _told(text: str, path: Sequence[str | int]) -> str:
    """Line and column of the deepest part of a path that the text has."""
    for end in range(len(path), -1, -1):
        place = place_of(text, path[:end])
        if place is not None:
            return f"line {place[0]}, column {place[1]}: "
    return ""
