"""Rules that cannot be used, found before the first record: each is tried on a message made up for that.

The library compiles the rules of a type when it meets a message of it, and CEL's types are checked when an
expression is evaluated. So each message type is tried with all its fields set; of a type that fails, each
rule is tried alone, to say which it is. Costs what the rules cost: call it where a deadline can end it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, cast

import protovalidate
from google.protobuf import descriptor_pb2
from google.protobuf.descriptor import Descriptor, FieldDescriptor, OneofDescriptor
from google.protobuf.message import Message

from schema import descriptors
from schema.descriptors import MessageType, is_map, is_repeated
from schema.rules.evaluation import EVALUATION
from schema.rules.presence import is_ruled, parts, reachable
from schema.rules.problem import Problem

PROBLEMS_MAX = 20
"""Problems that are told; the search ends there."""

TEXT_CHARS_MAX = 400
"""Characters of what is told of one problem."""

COMPILE = "failed to compile expression "
"""What the library says begins so where an expression does not compile."""

STATIC = ("No value with name", "no_such_field", "unexpected type", "No matching overloads")
"""What the library says of expressions that fail on every message, as far as such are known."""

_NUMBERS = (FieldDescriptor.CPPTYPE_DOUBLE, FieldDescriptor.CPPTYPE_FLOAT)


def problems(descriptor_set: bytes, messages: Sequence[str]) -> list[Problem]:
    """The rules that cannot be used in messages and those inside them, PROBLEMS_MAX at most.

    Raises DescriptorError.
    """
    kinds = [descriptors.load(descriptor_set, each) for each in messages]
    inside = {inner.full_name: (kind, inner) for kind in kinds for inner in reachable(kind.descriptor)}
    found: list[Problem] = []
    for kind, inner in inside.values():
        if inner.GetOptions().map_entry or not any(is_ruled(each) for each in parts(inner)):
            continue
        whole = _tried(_of(kind, inner))
        if whole:
            found += [*_alone(kind, inner)] or [_problem(inner, "", whole)]
        if len(found) >= PROBLEMS_MAX:
            break
    return found[:PROBLEMS_MAX]


def _of(kind: MessageType, inner: Descriptor) -> MessageType:
    return descriptors.load(kind.descriptor_set, inner.full_name)


def _tried(kind: MessageType) -> str:
    """What the library says against the rules of a message type; empty: nothing."""
    validator = protovalidate.Validator()
    for sample in samples(kind):
        try:
            validator.collect_violations(sample)
        except protovalidate.CompilationError as error:
            return str(error)
        except protovalidate.EvaluationError as error:
            if any(text in str(error) for text in STATIC):
                return str(error)
    return ""


def _alone(kind: MessageType, inner: Descriptor) -> Iterator[Problem]:
    """What each rule of the type does when it has no other beside it."""
    bare = descriptor_pb2.FileDescriptorSet.FromString(kind.descriptor_set)
    files = {file.name: file for file in bare.file}
    options = {file.name: [*_options(file.message_type)] for file in files.values()}
    for each in (one for name in options if not name.startswith("buf/validate/") for one in options[name]):
        each.DiscardUnknownFields()
    mine = _message(files[inner.file.name], inner)
    for part in parts(inner):
        if not is_ruled(part):
            continue
        place = _options_of(mine, part)
        place.MergeFromString(part.GetOptions().SerializeToString())
        text = _tried(descriptors.load.__wrapped__(bare.SerializeToString(), inner.full_name))
        place.DiscardUnknownFields()
        if text:
            yield _problem(inner, "" if part is inner else part.name, text)


def _options(messages: Any) -> Iterator[Any]:
    """The options of messages, their oneofs and fields, over all levels."""
    for message in messages:
        yield message.options
        yield from (each.options for each in (*message.oneof_decl, *message.field))
        yield from _options(message.nested_type)


def _message(file: Any, descriptor: Descriptor) -> Any:
    """The message in its file's descriptor."""
    outer = descriptor.containing_type
    places = file.message_type if outer is None else _message(file, outer).nested_type
    return next(each for each in places if each.name == descriptor.name)


def _options_of(message: Any, part: Any) -> Any:
    if isinstance(part, Descriptor):
        return message.options
    places = message.oneof_decl if isinstance(part, OneofDescriptor) else message.field
    return next(each for each in places if each.name == part.name).options


def _problem(kind: Descriptor, field: str, text: str) -> Problem:
    """In our words: which rule it is, where the library says so."""
    rule, failed = "", EVALUATION.fullmatch(text)
    if failed is not None:
        rule, text = failed["rule"], f"fails on every message: {failed['why']}"
    elif text.startswith(COMPILE) and ": " in text:
        rule, _, why = text.removeprefix(COMPILE).partition(": ")
        text = f"does not compile: {why.partition(chr(10))[0]}"
    return Problem(kind.full_name, field, rule, " ".join(text.split())[:TEXT_CHARS_MAX])


def samples(kind: MessageType) -> Iterator[Message]:
    """Messages of a type with all fields set; so many that each member of each oneof is set in one."""
    count = max([1, *(len(each.fields) for each in kind.descriptor.oneofs)])
    for number in range(count):
        message = kind.message_class()
        for field in kind.descriptor.fields:
            oneof = field.containing_oneof
            if oneof is None or oneof.fields[number % len(oneof.fields)].name == field.name:
                _fill(message, field)
        yield message


def _fill(message: Any, field: FieldDescriptor) -> None:
    place = getattr(message, field.name)
    if is_map(field):
        entry = cast(Descriptor, field.message_type)
        key, value = entry.fields_by_name["key"], entry.fields_by_name["value"]
        if value.message_type is not None:
            _set(place[_plain(key)])
        else:
            place[_plain(key)] = _plain(value)
    elif is_repeated(field):
        if field.message_type is not None:
            place.add()
        else:
            place.append(_plain(field))
    elif field.message_type is not None:
        _set(place)
    else:
        setattr(message, field.name, _plain(field))


def _set(message: Any) -> None:
    type(message).SetInParent(message)  # a field of a method's name hides it from the message


def _plain(field: FieldDescriptor) -> Any:
    """A value that is not the default, which rules may pass over."""
    if field.enum_type is not None:
        return field.enum_type.values[-1].number
    if field.type in (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES):
        return "a" if field.type == FieldDescriptor.TYPE_STRING else b"a"
    return 1.0 if field.cpp_type in _NUMBERS else 1
