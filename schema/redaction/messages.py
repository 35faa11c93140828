"""Takes fields out of protobuf messages that their schema marks as not for everybody.

A field is marked by `debug_redact` (descriptor.proto), by `floe.redact` (floe/redact.proto), which also says
what stands in its place, or by a tag that the topic names: of Confluent's `confluent.field_meta`, or of the
schema's metadata. Marks are those of the schema by which the message is read. Fields that this schema does
not know go, as nobody can tell what they are; so do marked extensions, whatever stands in place of fields.
An Any is not looked into.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError, Message

from schema.descriptors import MessageType, is_map, is_repeated, is_required, message_class
from schema.redaction.marks import Action, Marks, Unreadable, instead, stands_in
from schema.redaction.metadata_tags import named

_PLANS_MAX = 1_024
_TEXTS = (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES)

_BY_NUMBER = {1: Action.REMOVE, 2: Action.HASH, 3: Action.MASK}  # floe/redact.proto's


@dataclass(slots=True, eq=False)
class _Plan:
    """What goes out of messages of one type."""

    own: list[tuple[FieldDescriptor, Action]] = field(default_factory=list)
    inner: list[tuple[FieldDescriptor, _Plan]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Redactor:
    """Redacts messages of one type."""

    message_class: type[Message]
    plan: _Plan
    key: bytes
    slow: bool = False

    def redacted(self, payload: bytes) -> bytes:
        """The message without what is marked, and without fields that the schema does not know.

        CPU work. Raises Unreadable.
        """
        try:
            message = self.message_class.FromString(payload)
        except DecodeError as error:
            raise Unreadable(f"no {self.message_class.DESCRIPTOR.full_name}: {error}") from None
        self.message_class.DiscardUnknownFields(message)
        self._go_through(message, self.plan)
        return self.message_class.SerializePartialToString(message)

    def _go_through(self, message: Any, plan: _Plan) -> None:
        for one, action in plan.own:
            self._replace(message, one, action)
        for one, inner in plan.inner:
            for each in _messages(message, one):
                self._go_through(each, inner)

    def _replace(self, message: Any, one: FieldDescriptor, action: Action) -> None:
        of = type(message)  # a field of a method's name hides it from the message
        if one.is_extension:
            of.ClearExtension(message, one)
        elif is_repeated(one):
            held = getattr(message, one.name)
            put = [instead(action, self.key, value) for value in held] if self._stands_in(one, action) else []
            of.ClearField(message, one.name)
            if put:
                getattr(message, one.name).extend(put)
        elif one.has_presence and not of.HasField(message, one.name):
            return
        elif self._stands_in(one, action):
            value = getattr(message, one.name)
            if value or one.has_presence:
                setattr(message, one.name, instead(action, self.key, value))
        elif is_required(one) and one.message_type is None:
            setattr(message, one.name, one.default_value)
        elif is_required(one):
            held = getattr(message, one.name)
            type(held).Clear(held)
        else:
            of.ClearField(message, one.name)

    def _stands_in(self, one: FieldDescriptor, action: Action) -> bool:
        """Whether something stands in the place of the field's values, or the field goes."""
        return stands_in(action, self.key) and one.type in _TEXTS


def redactor(kind: MessageType, marks: Marks, key: bytes) -> Redactor | None:
    """What redacts messages of this type; None where nothing in them is marked. `key` is that of hashes."""
    plan = _plan(kind, marks)
    return None if plan is None else Redactor(kind.message_class, plan, key)


def holding_marks(root: Descriptor, marks: Marks) -> frozenset[str]:
    """Full names of messages, of a type and all that it holds, in which anything is marked at any depth."""
    plans: dict[str, _Plan] = {}
    _collect(root, marks, plans)
    marked = _marked(plans)
    return frozenset(name for name, plan in plans.items() if id(plan) in marked)


@functools.lru_cache(maxsize=_PLANS_MAX)
def _plan(kind: MessageType, marks: Marks) -> _Plan | None:
    plans: dict[str, _Plan] = {}
    _collect(kind.descriptor, marks, plans)
    marked = _marked(plans)
    for plan in plans.values():
        plan.inner = [(one, inner) for one, inner in plan.inner if id(inner) in marked]
    root = plans[kind.descriptor.full_name]
    return root if id(root) in marked else None


def _collect(root: Descriptor, marks: Marks, plans: dict[str, _Plan]) -> None:
    """The plan of a type and of all that it holds; by steps, as types may hold one another."""
    read = options_reader(root, marks)
    waiting = [root]
    plans[root.full_name] = _Plan()
    while waiting:
        descriptor = waiting.pop()
        plan = plans[descriptor.full_name]
        for one in (*descriptor.fields, *descriptor.file.pool.FindAllExtensions(descriptor)):
            action = read(one)
            held = held_by(one)
            if action is not None:
                plan.own.append((one, action))
            elif held is not None:
                if held.full_name not in plans:
                    plans[held.full_name] = _Plan()
                    waiting.append(held)
                plan.inner.append((one, plans[held.full_name]))


def _marked(plans: dict[str, _Plan]) -> set[int]:
    """Plans by which anything goes, here or further in."""
    holders: dict[int, list[_Plan]] = {}
    for plan in plans.values():
        for _, inner in plan.inner:
            holders.setdefault(id(inner), []).append(plan)
    waiting = [plan for plan in plans.values() if plan.own]
    found: set[int] = set()
    while waiting:
        plan = waiting.pop()
        if id(plan) not in found:
            found.add(id(plan))
            waiting += holders.get(id(plan), ())
    return found


def held_by(one: FieldDescriptor) -> Descriptor | None:
    """The message that a field holds, or that its map has as values."""
    if one.message_type is None or not is_map(one):
        return one.message_type
    value: FieldDescriptor = one.message_type.fields_by_name["value"]
    return value.message_type


def _messages(message: Any, one: FieldDescriptor) -> Iterator[Any]:
    of = type(message)
    if one.is_extension:
        held = of.Extensions.__get__(message)[one]
        yield from held if is_repeated(one) else [held] if of.HasExtension(message, one) else []
    elif is_map(one):
        yield from getattr(message, one.name).values()
    elif is_repeated(one):
        yield from getattr(message, one.name)
    elif of.HasField(message, one.name):
        yield getattr(message, one.name)


def options_reader(descriptor: Descriptor, marks: Marks) -> Callable[[FieldDescriptor], Action | None]:
    """What stands in the place of a field of the descriptor's file or of what it imports.

    Reads options by the descriptor's own pool, which knows the extensions that its file imports."""
    pool = descriptor.file.pool
    try:
        known = pool.FindMessageTypeByName("google.protobuf.FieldOptions")
    except KeyError:  # no file imports descriptor.proto, so no custom option is known
        known = None
    made = message_class(known) if known is not None else None
    own, meta = (_extension(pool, name) for name in ("floe.redact", "confluent.field_meta"))

    def read(one: FieldDescriptor) -> Action | None:
        options = one.GetOptions()
        if made is not None and (own is not None or meta is not None):
            custom: Any = made.FromString(options.SerializeToString())
            said = _BY_NUMBER.get(custom.Extensions[own]) if own is not None else None
            if said is not None:
                return said
            if meta is not None and not marks.tags.isdisjoint(custom.Extensions[meta].tags):
                return marks.action
        return marks.action if options.debug_redact else named(marks, one.full_name)

    return read


def _extension(pool: Any, name: str) -> FieldDescriptor | None:
    try:
        found: FieldDescriptor = pool.FindExtensionByName(name)
    except KeyError:
        return None
    return found
