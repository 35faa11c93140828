"""A file descriptor as `.proto` text: of what was registered as a descriptor, and canonical text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from google.protobuf import descriptor_pb2
from google.protobuf.descriptor import FileDescriptor
from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Field
from google.protobuf.descriptor_pb2 import FileDescriptorProto

from schema.registry.canonical import default_json_name
from schema.registry.options import Options, quoted

NUMBER_MAX, ENUM_MAX = 536_870_911, 2_147_483_647
_SCALARS = {
    number: name.removeprefix("TYPE_").lower()
    for name, number in Field.Type.items()
    if number not in (Field.TYPE_MESSAGE, Field.TYPE_ENUM, Field.TYPE_GROUP)
}


def printed(file: FileDescriptor) -> str:
    """The text. It means what the descriptor means; comments are not in a descriptor."""
    proto = FileDescriptorProto()
    file.CopyToProto(proto)
    return "\n".join(_Printer(proto, Options(file.pool)).file()) + "\n"


class _Part(NamedTuple):
    """Lines, and the names of the types that they declare by the way."""

    lines: list[str]
    makes: tuple[str, ...]


class _Printer:
    """Lines of one file."""

    def __init__(self, file: FileDescriptorProto, options: Options) -> None:
        self._file = file
        self._options = options
        self._editions = file.syntax == "editions"
        self._labels = not file.syntax or file.syntax == "proto2"

    def file(self) -> Iterator[str]:
        """The whole file."""
        file = self._file
        if self._editions:
            name = descriptor_pb2.Edition.Name(file.edition).removeprefix("EDITION_")
            yield f'edition = "{name}";'
        else:
            yield f'syntax = "{file.syntax or "proto2"}";'
        if file.package:
            yield f"package {file.package};"
        for index, name in enumerate(file.dependency):
            kind = "public " if index in file.public_dependency else ""
            kind = kind or ("weak " if index in file.weak_dependency else "")
            yield f"import {kind}{quoted(name.encode())};"
        yield from self._statements(file.options)
        for lines in self._in_order([], file.message_type, file.extension):
            yield ""
            yield from lines
        for enum in file.enum_type:
            yield ""
            yield from self._enum(enum)
        for service in file.service:
            yield ""
            yield from self._service(service)

    def _statements(self, options: Any) -> Iterator[str]:
        yield from (f"option {one};" for one in self._options.told(options))

    def _message(self, message: Any) -> Iterator[str]:
        yield f"message {message.name} {{"
        yield from _indented(self._inside(message))
        yield "}"

    def _inside(self, message: Any) -> Iterator[str]:
        """What stands between the braces of a message or a group."""
        yield from self._statements(message.options)
        for lines in self._in_order(list(self._parts(message)), message.nested_type, message.extension):
            yield from lines
        for enum in message.enum_type:
            yield from self._enum(enum)
        for extension in message.extension_range:
            numbers = _range(extension.start, extension.end - 1, NUMBER_MAX)
            yield f"extensions {numbers}{self._brackets(extension)};"
        if message.reserved_range:
            ranges = (_range(one.start, one.end - 1, NUMBER_MAX) for one in message.reserved_range)
            yield f"reserved {', '.join(ranges)};"
        yield from self._reserved_names(message.reserved_name)

    def _parts(self, message: Any) -> Iterator[_Part]:
        """Its fields and oneofs, by their lowest numbers."""
        nested = {one.name: one for one in message.nested_type}
        members: dict[int, list[Any]] = {}
        for field in message.field:
            if _is_member(field):
                members.setdefault(field.oneof_index, []).append(field)
        for field in message.field:
            fields = members.pop(field.oneof_index, None) if _is_member(field) else None
            if not _is_member(field):
                yield _Part(list(self._field(field, nested)), self._made((field,), nested))
            elif fields is not None:
                oneof = message.oneof_decl[field.oneof_index]
                yield _Part(list(self._oneof(oneof, fields, nested)), self._made(fields, nested))

    def _in_order(self, parts: list[_Part], types: Sequence[Any], extensions: Any) -> Iterator[list[str]]:
        """What makes types (maps and groups do), and messages, so that the types come in their order."""
        known = {one.name: one for one in types}
        outside = [_Part(list(self._extend(one, known)), self._made((one,), known)) for one in extensions]
        making = {name: part for part in (*parts, *outside) for name in part.makes}
        plainly = [name for part in parts for name in part.makes]
        plainly += [one.name for one in types if one.name not in making]
        plainly += [name for part in outside for name in part.makes]
        if plainly == [one.name for one in types]:
            yield from (part.lines for part in parts)
            yield from (list(self._message(one)) for one in types if one.name not in making)
            yield from (part.lines for part in outside)
            return
        yield from (part.lines for part in (*parts, *outside) if not part.makes)
        told: set[int] = set()
        for one in types:
            part = making.get(one.name)
            if part is None:
                yield list(self._message(one))
            elif id(part) not in told:
                told.add(id(part))
                yield part.lines

    def _made(self, fields: Iterable[Any], nested: Mapping[str, Any]) -> tuple[str, ...]:
        """The names of the types that these fields declare."""
        names = ((field, field.type_name.rpartition(".")[2]) for field in fields)
        return tuple(
            name for field, name in names if self._is_group(field) or _entry(field, nested) is not None
        )

    def _reserved_names(self, names: Iterable[str]) -> Iterator[str]:
        told = ", ".join(name if self._editions else quoted(name.encode()) for name in names)
        if told:
            yield f"reserved {told};"

    def _oneof(self, oneof: Any, fields: Iterable[Any], nested: Mapping[str, Any]) -> Iterator[str]:
        yield f"oneof {oneof.name} {{"
        yield from _indented(self._statements(oneof.options))
        for field in fields:
            yield from _indented(self._field(field, nested, label=False))
        yield "}"

    def _field(self, field: Any, nested: Mapping[str, Any], *, label: bool = True) -> Iterator[str]:
        entry = _entry(field, nested)
        if entry is not None:
            key, value = entry.field
            kind = f"map<{_SCALARS[key.type]}, {self._type(value)}>"
        else:
            kind = self._label(field, label=label) + self._type(field)
        if not self._is_group(field):
            yield f"{kind} {field.name} = {field.number}{self._brackets(field)};"
            return
        name = field.type_name.rpartition(".")[2]
        yield f"{kind} {name} = {field.number}{self._brackets(field)} {{"
        yield from _indented(self._inside(nested[name]))
        yield "}"

    def _is_group(self, field: Any) -> bool:
        return bool(field.type == Field.TYPE_GROUP and not self._editions)

    def _type(self, field: Any) -> str:
        if self._is_group(field):
            return "group"
        return str(field.type_name) if field.type_name else _SCALARS[field.type]

    def _label(self, field: Any, *, label: bool) -> str:
        if field.label == Field.LABEL_REPEATED:
            return "repeated "
        if field.proto3_optional or (label and self._labels and field.label == Field.LABEL_OPTIONAL):
            return "optional "
        return "required " if self._labels and field.label == Field.LABEL_REQUIRED else ""

    def _brackets(self, described: Any) -> str:
        """The options of a field, a value or a range, with what stands among them and is none."""
        told = self._options.told(described.options)
        if isinstance(described, Field):
            if described.HasField("default_value"):
                told.insert(0, f"default = {_default(described)}")
            if described.json_name and described.json_name != default_json_name(described.name):
                told.append(f"json_name = {quoted(described.json_name.encode())}")
        return f" [{', '.join(told)}]" if told else ""

    def _enum(self, enum: Any) -> Iterator[str]:
        yield f"enum {enum.name} {{"
        yield from _indented(self._statements(enum.options))
        for value in enum.value:
            yield f"  {value.name} = {value.number}{self._brackets(value)};"
        if enum.reserved_range:
            ranges = (_range(one.start, one.end, ENUM_MAX) for one in enum.reserved_range)
            yield f"  reserved {', '.join(ranges)};"
        yield from _indented(self._reserved_names(enum.reserved_name))
        yield "}"

    def _extend(self, field: Any, known: Mapping[str, Any]) -> Iterator[str]:
        yield f"extend {field.extendee} {{"
        yield from _indented(self._field(field, known))
        yield "}"

    def _service(self, service: Any) -> Iterator[str]:
        yield f"service {service.name} {{"
        yield from _indented(self._statements(service.options))
        for method in service.method:
            takes = ("stream " if method.client_streaming else "") + method.input_type
            gives = ("stream " if method.server_streaming else "") + method.output_type
            head = f"  rpc {method.name} ({takes}) returns ({gives})"
            statements = list(self._statements(method.options))
            yield f"{head} {{" if statements else f"{head};"
            yield from _indented(_indented(statements))
            if statements:
                yield "  }"
        yield "}"


def _is_member(field: Any) -> bool:
    """Whether it is of a oneof; what proto3's `optional` makes is none that anybody wrote."""
    return bool(field.HasField("oneof_index") and not field.proto3_optional)


def _entry(field: Any, nested: Mapping[str, Any]) -> Any | None:
    """The entry of a map; None for any other field."""
    if field.type != Field.TYPE_MESSAGE:
        return None
    found = nested.get(field.type_name.rpartition(".")[2])
    return found if found is not None and found.options.map_entry else None


def _indented(lines: Iterable[str]) -> Iterator[str]:
    return (f"  {line}" for line in lines)


def _range(first: int, last: int, most: int) -> str:
    if first == last:
        return str(first)
    return f"{first} to {'max' if last == most else last}"


def _default(field: Any) -> str:
    """A default as its literal; the descriptor has bytes in C's escapes already."""
    if field.type == Field.TYPE_STRING:
        return quoted(field.default_value.encode())
    return f'"{field.default_value}"' if field.type == Field.TYPE_BYTES else str(field.default_value)
