"""Options of descriptors as text, custom ones by the extensions of the file's own pool."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from google.protobuf import text_format
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.descriptor_pool import DescriptorPool

from schema.descriptors import message_class


class Options:
    """Tells options by what a pool knows."""

    def __init__(self, pool: DescriptorPool) -> None:
        self._pool = pool

    def told(self, options: Any) -> list[str]:
        """Each option as `name = value`, one element each for the values of a repeated one."""
        return [f"{name} = {value}" for name, value in self._named(options)]

    def _named(self, options: Any) -> Iterator[tuple[str, str]]:
        for field, value in self._own(options).ListFields():
            name = f"(.{field.full_name})" if field.is_extension else field.name
            for one in value if field.is_repeated else [value]:
                yield name, self.value(field, one)

    def _own(self, options: Any) -> Any:
        """The message by the pool's classes, which know the extensions."""
        try:
            descriptor = self._pool.FindMessageTypeByName(options.DESCRIPTOR.full_name)
        except KeyError:  # nothing that the file imports extends it
            return options
        return message_class(descriptor).FromString(options.SerializeToString())

    @staticmethod
    def value(field: FieldDescriptor, value: Any) -> str:
        """A value as an option holds it."""
        if field.message_type is not None:
            inner = text_format.MessageToString(value, as_one_line=True, as_utf8=True)
            return f"{{ {inner} }}" if inner else "{}"
        if field.enum_type is not None:
            known = field.enum_type.values_by_number.get(value)
            return str(value) if known is None else str(known.name)
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, str):
            return quoted(value.encode())
        if isinstance(value, bytes):
            return quoted(value)
        return str(value)


def quoted(content: bytes) -> str:
    """A string literal; what is not printable ASCII in octal."""
    plain = {0x22: '\\"', 0x5C: "\\\\", 0x0A: "\\n", 0x0D: "\\r", 0x09: "\\t"}
    made = [plain.get(byte) or (chr(byte) if 32 <= byte < 127 else f"\\{byte:03o}") for byte in content]
    return '"' + "".join(made) + '"'
