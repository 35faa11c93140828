"""Which descriptors mean the same: the canonical form of a FileDescriptorProto.

What does not change what a record's bytes mean, nor which message a record names, is put into one order or
left out: the file's name, comments, default JSON names, the order of imports, fields, oneofs, extensions
and of what is reserved.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from google.protobuf.descriptor_pb2 import DescriptorProto, EnumDescriptorProto, FileDescriptorProto


def canonical(file: FileDescriptorProto) -> bytes:
    """The canonical form, serialized. Type names in the file must be full already."""
    made = FileDescriptorProto()
    made.CopyFrom(file)
    for name in ("name", "source_code_info"):
        made.ClearField(name)
    if made.syntax == "proto2":  # what it is without a word
        made.ClearField("syntax")
    _order_imports(made)
    for message in made.message_type:
        _message(message)
    for enum in made.enum_type:
        _enum(enum)
    _extensions(made.extension)
    return made.SerializeToString(deterministic=True)


def _order_imports(file: FileDescriptorProto) -> None:
    before = list(file.dependency)
    public = {before[index] for index in file.public_dependency}
    weak = {before[index] for index in file.weak_dependency}
    after = sorted(before)
    file.dependency[:] = after
    file.public_dependency[:] = [index for index, name in enumerate(after) if name in public]
    file.weak_dependency[:] = [index for index, name in enumerate(after) if name in weak]


def _message(message: DescriptorProto) -> None:
    for field in message.field:
        _json_name(field)
    _extensions(message.extension)
    _sort(message.field, lambda field: field.number)
    _order_oneofs(message)
    _sort(message.reserved_range, lambda one: one.start)
    _sort(message.extension_range, lambda one: one.start)
    message.reserved_name[:] = sorted(message.reserved_name)
    for nested in message.nested_type:
        _message(nested)
    for enum in message.enum_type:
        _enum(enum)


def _extensions(extensions: Any) -> None:
    for extension in extensions:
        _json_name(extension)
    _sort(extensions, lambda one: (one.extendee, one.number))


def _order_oneofs(message: DescriptorProto) -> None:
    """By their lowest field; those of proto3's `optional`, which nobody wrote, behind the others."""
    first: dict[int, tuple[bool, int]] = {}
    for field in message.field:  # by rising number already
        if field.HasField("oneof_index"):
            first.setdefault(field.oneof_index, (field.proto3_optional, field.number))
    order = sorted(first, key=lambda index: first[index])
    places = {index: place for place, index in enumerate(order)}
    declared = [message.oneof_decl[index] for index in order]
    copies = [type(one).FromString(one.SerializeToString()) for one in declared]
    del message.oneof_decl[:]
    message.oneof_decl.extend(copies)
    for field in message.field:
        if field.HasField("oneof_index"):
            field.oneof_index = places[field.oneof_index]


def _enum(enum: EnumDescriptorProto) -> None:
    """Its values stay in their order: the first one is the default."""
    _sort(enum.reserved_range, lambda one: one.start)
    enum.reserved_name[:] = sorted(enum.reserved_name)


def _sort(repeated: Any, key: Callable[[Any], Any]) -> None:
    """Sort a repeated message field."""
    copies = [type(one).FromString(one.SerializeToString()) for one in sorted(repeated, key=key)]
    del repeated[:]
    repeated.extend(copies)


def _json_name(field: Any) -> None:
    if field.json_name == default_json_name(field.name):
        field.ClearField("json_name")


def default_json_name(name: str) -> str:
    """The JSON name that a field has when none is given: lowerCamelCase, as protoc makes it."""
    made, upper = [], False
    for letter in name:
        if letter == "_":
            upper = True
        else:
            made.append(letter.upper() if upper else letter)
            upper = False
    return "".join(made)
