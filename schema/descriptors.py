"""Descriptor sets: the form in which a topic's message type lives in the replicated state.

A set is self-contained (all imports inside), so that it means the same on every agent and in every
version of Floe. Each set gets a pool of its own: two topics may define the same names differently.
"""

from __future__ import annotations

import difflib
import functools
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError, Message

from schema.rules.presence import has_rules, reachable

DESCRIPTOR_SET_BYTES_MAX = 4 << 20
"""Bytes of one serialized FileDescriptorSet."""

_CLASSES: Any = type(descriptor_pb2.FileDescriptorProto)
"""The class of all classes of messages."""

_CACHE_MAX = 1024
"""Loaded message types kept; least recently used go first."""


class DescriptorError(ValueError):
    """The descriptor set is broken, incomplete or lacks the message; the message names the remedy."""


@dataclass(frozen=True, slots=True)
class MessageType:
    """A message of a descriptor set, ready to parse.

    `indexes` is its path in its file as the Confluent wire format counts it: position of the
    outermost message, then of each nested one. `has_rules`: it, or a message inside it, has rules of
    protovalidate. `digest`: of the descriptor set and the name, SHA-256: the same for the same type.
    """

    descriptor_set: bytes
    descriptor: Descriptor
    message_class: type[Message]
    indexes: tuple[int, ...]
    has_submessages: bool
    has_required: bool
    has_rules: bool
    digest: bytes

    @property
    def name(self) -> str:
        """Full name, package included."""
        return str(self.descriptor.full_name)


@functools.lru_cache(maxsize=_CACHE_MAX)
def load(descriptor_set: bytes, message: str) -> MessageType:
    """The message with full name `message` out of a serialized FileDescriptorSet.

    Raises DescriptorError.
    """
    files = _parse(descriptor_set)
    pool = descriptor_pool.DescriptorPool()
    for file in in_order(files):
        try:
            pool.AddSerializedFile(file.SerializeToString())
        except (TypeError, ValueError) as error:
            raise DescriptorError(f"file {file.name!r} of the descriptor set is invalid: {error}") from error
    try:
        descriptor = pool.FindMessageTypeByName(message)
    except KeyError:
        raise DescriptorError(_missing(message, files)) from None
    return MessageType(
        descriptor_set=descriptor_set,
        descriptor=descriptor,
        message_class=message_class(descriptor),
        indexes=_indexes(descriptor),
        has_submessages=any(field.message_type for field in descriptor.fields),
        has_required=any(is_required(field) for kind in reachable(descriptor) for field in kind.fields),
        has_rules=has_rules(descriptor),
        digest=hashlib.sha256(message.encode() + b"\0" + descriptor_set).digest(),
    )


def message_class(descriptor: Descriptor) -> type[Message]:
    """The class of a message, those of all that can be inside it are there then.

    By steps, where the library's own function calls itself as deep as messages refer to one another.
    """
    made: list[type[Message]] = []  # held until all refer to one another
    seen, waiting = {descriptor.full_name}, [descriptor]
    while waiting:
        kind = waiting.pop()
        if getattr(kind, "_concrete_class", None) is None:
            made.append(_CLASSES(kind.name, (Message,), {"DESCRIPTOR": kind, "__module__": None}))
        extended = [held for one in kind.extensions for held in (one.containing_type, one.message_type)]
        for inner in (*(field.message_type for field in kind.fields), *extended):
            if inner is not None and inner.full_name not in seen:
                seen.add(inner.full_name)
                waiting.append(inner)
    return message_factory.GetMessageClass(descriptor)


def message_at(descriptor_set: bytes, indexes: Sequence[int]) -> str:
    """Full name of the message of the set's last file that the Confluent wire format names by these indexes.

    Raises DescriptorError where there is none.
    """
    file = _parse(descriptor_set)[-1]
    names, level, found = [file.package] if file.package else [], file.message_type, None
    for index in indexes:
        found = level[index] if index < len(level) else None
        if found is None or found.options.map_entry:
            raise DescriptorError(f"the file has no message with the indexes {list(indexes)}")
        names.append(found.name)
        level = found.nested_type
    if found is None:
        raise DescriptorError("no indexes name no message")
    return ".".join(names)


def message_names(descriptor_set: bytes) -> list[str]:
    """Full names of all messages in the set, in the set's order. Raises DescriptorError."""
    names: list[str] = []
    for file in _parse(descriptor_set):
        for message in file.message_type:
            _collect(message, f"{file.package}." if file.package else "", names)
    return names


def _collect(message: Any, prefix: str, names: list[str]) -> None:
    if message.options.map_entry:
        return
    names.append(prefix + message.name)
    for nested in message.nested_type:
        _collect(nested, f"{prefix}{message.name}.", names)


def _parse(descriptor_set: bytes) -> list[Any]:
    if len(descriptor_set) > DESCRIPTOR_SET_BYTES_MAX:
        raise DescriptorError(
            f"the descriptor set has {len(descriptor_set)} bytes: the limit is {DESCRIPTOR_SET_BYTES_MAX}"
        )
    try:
        files = list(descriptor_pb2.FileDescriptorSet.FromString(descriptor_set).file)
    except DecodeError as error:
        raise DescriptorError("not a serialized google.protobuf.FileDescriptorSet") from error
    if not files:
        raise DescriptorError("the descriptor set has no file")
    return files


def in_order(files: list[Any]) -> list[Any]:
    """The files with imports before importers. Raises DescriptorError where one is not there."""
    by_name = {file.name: file for file in files}
    ordered: dict[str, Any] = {}
    for file in files:
        way = {file.name: iter(by_name[file.name].dependency)}  # by steps: chains of files may be long
        while way and file.name not in ordered:
            importer = next(reversed(way))
            name = next((each for each in way[importer] if each not in ordered), None)
            if name is None:
                ordered[importer] = by_name[importer]
                del way[importer]
            elif name in way:
                raise DescriptorError(f"file {name!r} imports itself")
            elif name not in by_name:
                raise DescriptorError(
                    f"file {importer!r} imports {name!r}, which the descriptor set lacks: "
                    "make the set self-contained (protoc --include_imports)"
                )
            else:
                way[name] = iter(by_name[name].dependency)
    return list(ordered.values())


def _missing(message: str, files: list[Any]) -> str:
    names: list[str] = []
    for file in files:
        for found in file.message_type:
            _collect(found, f"{file.package}." if file.package else "", names)
    own = [name for name in names if not name.startswith("google.protobuf.")] or names
    near = difflib.get_close_matches(message, own, n=1, cutoff=0.4)
    hint = f"did you mean {near[0]!r}?" if near else f"it has: {', '.join(own[:10])}"
    return f"the descriptor set has no message {message!r}; {hint}"


def _indexes(descriptor: Descriptor) -> tuple[int, ...]:
    path: list[int] = []
    current = descriptor
    while (outer := current.containing_type) is not None:
        path.append(list(outer.nested_types).index(current))
        current = outer
    path.append(list(current.file.message_types_by_name).index(current.name))
    return tuple(reversed(path))


def is_required(field: FieldDescriptor) -> bool:
    """Whether a proto2 field (or an edition's LEGACY_REQUIRED one) must be present."""
    return bool(field.is_required)


def is_repeated(field: FieldDescriptor) -> bool:
    """Whether the field is a list or a map."""
    return bool(field.is_repeated)


def is_map(field: FieldDescriptor) -> bool:
    """Whether the field is a map."""
    return field.message_type is not None and bool(field.message_type.GetOptions().map_entry)
