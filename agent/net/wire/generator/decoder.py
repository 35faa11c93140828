"""Emits one straight-line decoding function per message and version.

Fixed-size fields that follow each other are read by one call, together with the length that follows them.
Every length is checked against the bytes that are left before anything is made of it.
"""

from __future__ import annotations

from collections.abc import Sequence

from agent.net.wire.generator.classes import annotation, default, element_type
from agent.net.wire.generator.definition import Field
from agent.net.wire.generator.source import FORMATS, SIZES, Formats, Source


class Decoder:
    """Emits the decoding of one version of one message."""

    def __init__(self, formats: Formats, kind: str, version: int, flexible: bool, has_records: bool) -> None:
        self.source = Source()
        self._formats = formats
        self._kind = kind
        self._version = version
        self._flexible = flexible
        # A message with records is a memoryview; others were copied to bytes, which decode() is quicker on.
        self._text = "buf[pos:{0}].tobytes().decode()" if has_records else "buf[pos:{0}].decode()"
        self._run: list[tuple[str, str]] = []

    def message(self, name: str, fields: Sequence[Field]) -> list[str]:
        """The body of the function."""
        value = self._struct(name, fields, "")
        self.source.emit(f"return {value}")
        head = ["    pos = 0", "    size = len(buf)"]
        if any("left" in line for line in self.source.lines):
            head.append(f"    left = {self._kind.upper()}_ELEMENTS_MAX")
        return head + self.source.lines

    def _struct(self, name: str, fields: Sequence[Field], path: str) -> str:
        """Read a struct; gives the expression that makes it."""
        values: dict[str, str] = {}
        for field in fields:
            if field.plain_in(self._version):
                values[field.name] = self._field(field, path)
        if self._flexible:
            values |= self._tags([f for f in fields if f.tagged_in(self._version)], path)
        self._flush()
        while fields and fields[-1].name not in values:
            fields = fields[:-1]
        arguments = [values.get(field.name) or default(field) for field in fields]
        return f"{name}({', '.join(arguments)})"

    def _field(self, field: Field, path: str) -> str:
        path = f"{path}{field.name}"
        nullable = self._version in field.nullable
        if field.array:
            return self._array(field, nullable, path)
        if field.struct:
            return self._nested(field, nullable, path)
        if field.base in FORMATS:
            return self._fixed(FORMATS[field.base])
        return self._sized(field, nullable, path)

    def _fixed(self, code: str, prefix: str = "v") -> str:
        name = self.source.fresh(prefix)
        self._run.append((code, name))
        return name

    def _flush(self) -> None:
        """Emit the read of the run of fixed-size values gathered so far."""
        if not self._run:
            return
        codes = [code for code, _ in self._run]
        names = [name for _, name in self._run]
        if codes == ["B"]:
            self.source.emit(f"{names[0]} = buf[pos]")
        else:
            comma = "," if len(names) == 1 else ""
            self.source.emit(f"{', '.join(names)}{comma} = {self._formats.use('get', codes)}(buf, pos)")
        self.source.emit(f"pos += {sum(SIZES[code] for code in codes)}")
        self._run.clear()

    def _length(self, code: str, text: str = "") -> str:
        """Read a length, as sent; `text` is the path of a string, whose length has a bound."""
        name = self._fixed("B" if self._flexible else code, "n")
        self._flush()
        if self._flexible:
            more = f'text_length("{text}", buf, pos, {name})' if text else f"uvarint(buf, pos, {name})"
            self.source.emit(f"if {name} > 127:", f"    {name}, pos = {more}")
        return name

    def _sized(self, field: Field, nullable: bool, path: str) -> str:
        """Read a string, a byte string or records."""
        is_text = field.base == "string"
        length = self._length("h" if is_text else "i", path if is_text else "")
        value = self.source.fresh("v")
        if not nullable:
            self._slice(field.base, value, length, path)
            return value
        self.source.emit(f"{value}: {annotation(field, self._kind)} = None")
        with self.source.block(f"if {length}:" if self._flexible else f"if {length} != -1:"):
            self._slice(field.base, value, length, path)
        return value

    def _slice(self, base: str, value: str, length: str, path: str) -> None:
        end = self.source.fresh("e")
        reads = {"string": self._text.format(end), "bytes": f"buf[pos:{end}]", "records": f"buf[pos:{end}]"}
        self.source.emit(
            f"{end} = pos + {length}" + (" - 1" if self._flexible else ""),
            f"if not pos <= {end} <= size:",
            f'    raise bad_length("{path}", {end}, pos, size)',
            f"{value} = {reads[base]}",
            f"pos = {end}",
        )

    def _nested(self, field: Field, nullable: bool, path: str) -> str:
        """Read a struct that is a field. A nullable one has a byte before it, negative for null."""
        value = self.source.fresh("v")
        if not nullable:
            made = self._struct(field.base, field.fields, path + ".")
            self.source.emit(f"{value} = {made}")
            return value
        present = self._fixed("b", "n")
        self._flush()
        self.source.emit(f"{value}: {annotation(field, self._kind)} = None")
        with self.source.block(f"if {present} >= 0:"):
            made = self._struct(field.base, field.fields, path + ".")
            self.source.emit(f"{value} = {made}")
        return value

    def _array(self, field: Field, nullable: bool, path: str) -> str:
        count = self._length("i")
        value = self.source.fresh("v")
        kind = f"list[{element_type(field)}]"
        if self._flexible:
            self.source.emit(f"{count} -= 1")
        if not nullable:
            self._elements(field, f"{value}: {kind}", value, count, path)
            return value
        self.source.emit(f"{value}: {kind} | None = None")
        with self.source.block(f"if {count} != -1:"):
            self._elements(field, value, value, count, path)
        return value

    def _elements(self, field: Field, target: str, value: str, count: str, path: str) -> None:
        least = self._least_element(field)
        self.source.emit(
            f"if {count} < 0 or {count} * {least} > size - pos or {count} > left:",
            f'    raise bad_count("{path}", {count}, {least}, pos, size)',
            f"left -= {count}",
        )
        if field.base == "int32":
            self.source.emit(f"{target} = read_int32s(buf, pos, {count})", f"pos += 4 * {count}")
            return
        if field.base in FORMATS and field.base != "uuid":
            code = FORMATS[field.base]
            self.source.emit(
                f'{target} = list(unpack_from(f">{{{count}}}{code}", buf, pos))',
                f"pos += {SIZES[code]} * {count}",
            )
            return
        self.source.emit(f"{target} = []")
        with self.source.block(f"for _ in range({count}):"):
            made = self._element(field, path)
            self._flush()
            self.source.emit(f"{value}.append({made})")

    def _element(self, field: Field, path: str) -> str:
        if field.struct:
            return self._struct(field.base, field.fields, path + ".")
        if field.base == "uuid":
            return self._fixed("16s")
        return self._sized(field, False, path)

    def _tags(self, known: list[Field], path: str) -> dict[str, str]:
        """Read the tagged fields at the end of a struct."""
        number = self._fixed("B", "n")
        self._flush()
        if not known:
            self.source.emit(f"if {number}:", f"    pos = skip_tags(buf, pos, {number}, size)")
            return {}
        values = {field.name: self.source.fresh("v") for field in known}
        for field in known:
            self.source.emit(f"{values[field.name]}: {annotation(field, self._kind)} = {default(field)}")
        with self.source.block(f"if {number}:"):
            self.source.emit(f"if {number} > 127:", f"    {number}, pos = uvarint(buf, pos, {number})")
            with self.source.block(f"for _ in range({number}):"):
                self._tag(known, values, path)
        return values

    def _tag(self, known: list[Field], values: dict[str, str], path: str) -> None:
        tag, end = self.source.fresh("t"), self.source.fresh("e")
        self.source.emit(f"{tag}, {end}, pos = read_tag(buf, pos, size)")
        for field in known:
            word = "if" if field is known[0] else "elif"
            with self.source.block(f"{word} {tag} == {field.tag}:"):
                made = self._field(field, path)
                self._flush()
                self.source.emit(f"{values[field.name]} = {made}")
        self.source.emit("else:", f"    pos = {end}")
        self.source.emit(f"if pos != {end}:", f'    raise bad_tag("{path.rstrip(".")}", {tag})')

    def _least_element(self, field: Field) -> int:
        """Fewest bytes that one element of an array takes."""
        if field.struct:
            return self._least(field.fields)
        if field.base in FORMATS:
            return SIZES[FORMATS[field.base]]
        if self._flexible:
            return 1
        return 2 if field.base == "string" else 4

    def _least(self, fields: Sequence[Field]) -> int:
        total = 1 if self._flexible else 0
        for field in fields:
            if not field.plain_in(self._version):
                continue
            if field.array:
                total += 1 if self._flexible else 4
            elif field.struct and self._version in field.nullable:
                total += 1
            else:
                total += self._least_element(field)
        return total
