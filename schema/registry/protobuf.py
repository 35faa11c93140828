"""PROTOBUF schemas: a `.proto` text or a base64 FileDescriptorProto, and what it means.

A schema is one file. What it imports is given by import path, or is known (known.py).
"""

from __future__ import annotations

import base64
import binascii
import functools
import re
from collections.abc import Iterable, Iterator, Mapping

from google.protobuf import descriptor_pb2, descriptor_pool
from google.protobuf.descriptor import Descriptor, FileDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.message import DecodeError, Message

from schema.compiler import CompileError, compile_protos
from schema.descriptors import DescriptorError, in_order
from schema.registry import known
from schema.registry.canonical import canonical
from schema.registry.parsed import Imports, InvalidSchema, Parsed, check_imports
from schema.registry.printer import printed
from schema.rules.presence import has_rules

NESTING_MAX = 64
"""Messages within messages, levels. The wire format's paths end long before (schema/framing.py)."""

_BASE64 = re.compile(r"[A-Za-z0-9+/\s]++={0,2}+\s*+")  # gives nothing back: else a square of blanks
_IMPORT = re.compile(r"""\bimport\s+(?:public\s+|weak\s+|option\s+)?["']([^"'\n]+)["']""")
_LOADED_MAX = 64  # files kept with their pools; least recently used go first


def parse(text: str, imports: Imports, *, normalize: bool = False) -> Parsed:
    """Read a schema. Its text is the one given, or the canonical one where that is asked for.

    Blocks (a process may be started): call it in a thread. Raises InvalidSchema, and OSError as the compiler.
    """
    check_imports(imports)
    given = _from_base64(text)
    if given is None:
        name, files = _compile(text, imports)
    else:
        name = _free_name(imports)
        given.name = name
        given.ClearField("source_code_info")
        files = {**_known(given.dependency, imports), **imports, name: given.SerializeToString()}
    form = canonical(_linked(name, files))
    if given is not None or normalize:
        text = printed(load(form, imports))
    if given is not None:
        _check_told(form, text, imports)
    return Parsed(form, text)


def _check_told(form: bytes, text: str, imports: Imports) -> None:
    """A descriptor that no text has the meaning of is read by no compiler. Raises InvalidSchema."""
    remedy = "give one that protoc makes"
    try:
        same = canonical(_linked(*_compile(text, imports))) == form
    except InvalidSchema as error:
        raise InvalidSchema(f"the descriptor is none of a .proto text: {error}: {remedy}") from None
    if not same:
        raise InvalidSchema(f"the descriptor means what no .proto text does: {remedy}")


def load(form: bytes, imports: Imports) -> FileDescriptor:
    """A canonical file with its imports, in a pool of its own. Raises InvalidSchema."""
    return _load(form, tuple(sorted(imports.items())))


@functools.lru_cache(maxsize=_LOADED_MAX)
def _load(form: bytes, given: tuple[tuple[str, bytes], ...]) -> FileDescriptor:
    imports = dict(given)
    name, file = _free_name(imports), FileDescriptorProto.FromString(form)
    return _pool({**_known(file.dependency, imports), **imports, name: form}).FindFileByName(name)


def descriptor_set(form: bytes, imports: Imports) -> bytes:
    """A canonical file with its imports as a self-contained FileDescriptorSet, itself last.

    Blocks as `parse` does the first time (known files are compiled): call it in a thread. Raises
    InvalidSchema, and OSError as the compiler.
    """
    return _descriptor_set(form, tuple(sorted(imports.items())))


@functools.lru_cache(maxsize=_LOADED_MAX)
def _descriptor_set(form: bytes, given: tuple[tuple[str, bytes], ...]) -> bytes:
    imports = dict(given)
    name, file = _free_name(imports), FileDescriptorProto.FromString(form)
    files = {**_known(file.dependency, imports), **imports, name: form}
    try:
        ordered = in_order([_named(*one) for one in files.items()])
    except DescriptorError as error:
        raise InvalidSchema(str(error)) from None
    return descriptor_pb2.FileDescriptorSet(file=ordered).SerializeToString()


def ruled_messages(form: bytes, imports: Imports) -> list[str]:
    """Full names of a canonical file's messages that have rules of protovalidate. Raises InvalidSchema."""
    declared = load(form, imports).message_types_by_name.values()
    return [each.full_name for each in _messages(declared) if has_rules(each)]


def _messages(messages: Iterable[Descriptor]) -> Iterator[Descriptor]:
    """These and those declared inside them, over all levels."""
    for message in messages:
        yield message
        yield from _messages(message.nested_types)


def serialized(form: bytes) -> str:
    """A canonical file as clients take it: a FileDescriptorProto in base64."""
    file = FileDescriptorProto.FromString(form)
    file.name = "default"
    return base64.b64encode(file.SerializeToString()).decode()


def without_extensions(form: bytes, imports: Imports) -> str:
    """A canonical file as text, without `extend` and custom options: for those that do not know these.

    Blocks as `descriptor_set`: call it in a thread. Raises InvalidSchema.
    """
    file = FileDescriptorProto.FromString(form)
    _drop_extensions(file)
    return printed(load(file.SerializeToString(), imports))


def _drop_extensions(described: Message) -> None:
    """Calls itself as deep as messages stand within messages, of which there are NESTING_MAX."""
    if described.DESCRIPTOR.name.endswith("Options"):
        described.DiscardUnknownFields()
        for field, _ in described.ListFields():
            if field.is_extension:
                described.ClearExtension(field)  # type: ignore[arg-type]  # a descriptor does as well
        return
    if "extension" in described.DESCRIPTOR.fields_by_name:
        described.ClearField("extension")
    for field, value in described.ListFields():
        if field.message_type is not None:
            for one in value if field.is_repeated else [value]:
                _drop_extensions(one)


def _from_base64(text: str) -> FileDescriptorProto | None:
    """The descriptor that the text is; None where it is none."""
    if not _BASE64.fullmatch(text):
        return None
    try:
        found = FileDescriptorProto.FromString(base64.b64decode(text))
    except (binascii.Error, ValueError, DecodeError):
        return None
    return found if found.ListFields() else None


def _compile(text: str, imports: Imports) -> tuple[str, dict[str, bytes]]:
    """Under which name the text was compiled, and all files: serialized FileDescriptorProtos."""
    name = _free_name(imports)
    compiled = {**_known(_IMPORT.findall(text), imports), **imports}
    given = descriptor_pb2.FileDescriptorSet(file=[_named(*one) for one in compiled.items()])
    try:
        made = compile_protos({name: text.encode()}, given.SerializeToString())
    except UnicodeEncodeError:
        raise InvalidSchema("the text is no valid Unicode") from None
    except CompileError as error:
        raise InvalidSchema(str(error)) from None
    return name, {
        file.name: file.SerializeToString() for file in descriptor_pb2.FileDescriptorSet.FromString(made).file
    }


def _known(names: Iterable[str], imports: Imports) -> dict[str, bytes]:
    """What is known of what a schema imports, or what its imports import, unless it is given."""
    further = [name for each in imports.items() for name in _dependencies(*each)]
    try:
        return known.with_imports(name for name in (*names, *further) if name not in imports)
    except CompileError as error:  # of files that come with this code
        raise RuntimeError(f"files that come with Floe do not compile: {error}") from error


def _dependencies(name: str, form: bytes) -> Iterable[str]:
    """What an import imports. Raises InvalidSchema for one of another type."""
    try:
        return FileDescriptorProto.FromString(form).dependency
    except DecodeError:
        raise InvalidSchema(f"{name} is referred to, and is no PROTOBUF schema") from None


def _free_name(imports: Imports) -> str:
    """What the file is called in messages: not as one that it imports."""
    name = "schema.proto"
    while name in imports:
        name = f"_{name}"
    return name


def _named(name: str, form: bytes) -> FileDescriptorProto:
    file = FileDescriptorProto.FromString(form)
    file.name = name
    return file


def _linked(name: str, files: Mapping[str, bytes]) -> FileDescriptorProto:
    """The file with its type names in full."""
    found, made = _pool(files).FindFileByName(name), FileDescriptorProto()
    found.CopyToProto(made)
    return made


def _pool(files: Mapping[str, bytes]) -> descriptor_pool.DescriptorPool:
    """A pool with the files. Raises InvalidSchema."""
    pool = descriptor_pool.DescriptorPool()
    try:
        ordered = in_order([_named(*one) for one in files.items()])
    except DescriptorError as error:
        raise InvalidSchema(str(error)) from None
    for file in ordered:
        _check_depth(file)
        try:
            pool.AddSerializedFile(file.SerializeToString())
        except (TypeError, ValueError) as error:
            raise InvalidSchema(f"{file.name}: {error}") from None
    return pool


def _check_depth(file: FileDescriptorProto) -> None:
    level, depth = list(file.message_type), 0
    while level:
        depth += 1
        if depth > NESTING_MAX:
            raise InvalidSchema(f"{file.name}: more than {NESTING_MAX} levels of messages within messages")
        level = [nested for message in level for nested in message.nested_type]
