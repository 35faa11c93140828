"""Whether a message has rules at all. What has none never meets the library that evaluates them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from google.protobuf.descriptor import Descriptor
from google.protobuf.unknown_fields import UnknownFieldSet

OPTION = 1159
"""The field number of the options of messages, oneofs and fields (buf/validate/validate.proto)."""


def has_rules(descriptor: Descriptor) -> bool:
    """Whether the message has rules, or one that can be inside it. The inside of `Any` is opaque."""
    return any(any(is_ruled(each) for each in parts(kind)) for kind in reachable(descriptor))


def reachable(descriptor: Descriptor) -> Iterator[Descriptor]:
    """The message and each that can be inside it, entries of maps among them; each once, outer ones first."""
    seen, waiting = {descriptor.full_name}, [descriptor]
    while waiting:
        kind = waiting.pop(0)
        yield kind
        for field in kind.fields:
            inner = field.message_type
            if inner is not None and inner.full_name not in seen:
                seen.add(inner.full_name)
                waiting.append(inner)


def parts(descriptor: Descriptor) -> Iterator[Any]:
    """What of a message can have rules: itself, its oneofs and its fields."""
    yield descriptor
    yield from descriptor.oneofs
    yield from descriptor.fields


def is_ruled(part: Any) -> bool:
    """Whether this part itself has rules."""
    if not part.has_options:
        return False
    options = part.GetOptions()
    if any(field.number == OPTION for field, _ in options.ListFields()):
        return True  # another package of this process has the option's type
    unknown: Any = UnknownFieldSet(options)  # its type says nothing of what is in it
    return any(each.field_number == OPTION for each in unknown)
