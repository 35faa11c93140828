"""Values of enumerations that nobody knows: proto3 lets any int32 through, apply does not.

Every field of an enumeration in every command is found in the descriptors, so a new one is looked at as well.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from google.protobuf.descriptor import Descriptor
from google.protobuf.message import Message

from coordination.commands import Command
from coordination.kafka_codes import Code
from coordination.state.levels import KNOWN_VALUES
from coordination.state.types import Refused


class _Step(NamedTuple):
    name: str
    repeated: bool


class _Enumeration(NamedTuple):
    path: tuple[_Step, ...]
    known: tuple[int, ...]


def _within(descriptor: Descriptor, before: tuple[_Step, ...] = ()) -> Iterator[_Enumeration]:
    for field in descriptor.fields:
        path = (*before, _Step(field.name, field.is_repeated))
        if field.enum_type is not None:
            yield _Enumeration(path, tuple(value.number for value in field.enum_type.values))
        elif field.message_type is not None:
            yield from _within(field.message_type, path)


JUDGED = ("update_features",)  # looks at its values itself, and refuses them by Kafka's code
ENUMERATIONS: dict[str, tuple[_Enumeration, ...]] = {
    field.name: found
    for field in Command.DESCRIPTOR.fields
    if field.message_type is not None
    and field.name not in JUDGED
    and (found := tuple(_within(field.message_type)))
}
"""By kind of command; kinds without an enumeration are not in it."""


def refusal(kind: str, message: Message, level: int) -> Refused | None:
    """Why a command that holds an unknown value is refused; None when it holds none."""
    if level < KNOWN_VALUES:
        return None
    for path, known in ENUMERATIONS.get(kind, ()):
        for value in _values(message, path):
            if value not in known:
                where = ".".join(step.name for step in path)
                return Refused(
                    Code.INVALID_REQUEST, f"{kind}: {where} is {value}, which none of {list(known)} is"
                )
    return None


def _values(message: Message, path: Sequence[_Step]) -> Iterator[int]:
    (name, repeated), *rest = path
    held = getattr(message, name)
    for one in held if repeated else (held,):
        if rest:
            yield from _values(one, rest)
        else:
            yield one
