"""Emits one straight-line encoding function per message and version.

Fixed-size fields that follow each other are packed by one call, together with the length or the empty
tag section that follows them. Records are put into the list of buffers as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from agent.net.wire.generator.classes import default, optional
from agent.net.wire.generator.definition import NONE, Field
from agent.net.wire.generator.source import FORMATS, Formats, Source


class Encoder:
    """Emits the encoding of one version of one message."""

    def __init__(self, formats: Formats, version: int, flexible: bool, has_records: bool) -> None:
        self.source = Source()
        self._formats = formats
        self._version = version
        self._flexible = flexible
        self._has_records = has_records
        self._out = "out"
        self._run: list[tuple[str, str]] = []

    def message(self, fields: Sequence[Field]) -> list[str]:
        """The body of the function, for a message called `message`."""
        self.source.emit("out = bytearray()")
        if self._has_records:
            self.source.emit("parts: list[Buffer] = []")
        self._struct("message", fields)
        self._flush()
        if self._has_records:
            self.source.emit("parts.append(out)", "return parts")
        else:
            self.source.emit("return [out]")
        return self.source.lines

    def _struct(self, owner: str, fields: Sequence[Field]) -> None:
        for field in fields:
            if field.plain_in(self._version):
                self._field(field, f"{owner}.{field.name}")
        if self._flexible:
            self._tags(owner, sorted((f for f in fields if f.tagged_in(self._version)), key=_tag_number))

    def _field(self, field: Field, value: str) -> None:
        nullable = self._version in field.nullable
        if field.array:
            self._array(field, value, nullable)
        elif field.struct:
            self._nested(field, value, nullable)
        elif field.base in FORMATS:
            self._run.append((FORMATS[field.base], value))
        elif field.base == "records":
            self._records(value, nullable)
        else:
            self._sized(field, value, nullable)

    def _flush(self) -> None:
        """Emit the packing of the run of fixed-size values gathered so far."""
        if not self._run:
            return
        codes = [code for code, _ in self._run]
        if codes == ["x"]:
            self.source.emit(f"{self._out}.append(0)")
        else:
            self.source.emit(f"{self._out} += {self._packed(self._run)}")
        self._run.clear()

    def _packed(self, run: list[tuple[str, str]]) -> str:
        values = ", ".join(value for code, value in run if code != "x")
        return f"{self._formats.use('put', [code for code, _ in run])}({values})"

    def _length(self, code: str, value: str) -> None:
        """Emit what writes the length or count in the variable `value`, after the fields gathered so far."""
        if not self._flexible:
            self._run.append((code, value))
            self._flush()
        elif not self._run:
            out = self._out
            self.source.emit(
                f"if {value} < 128:", f"    {out}.append({value})", "else:", f"    {out} += varint({value})"
            )
        else:
            short = self._packed([*self._run, ("B", value)])
            long = f"{self._packed(self._run)} + varint({value})"
            self.source.emit(f"{self._out} += {short} if {value} < 128 else {long}")
            self._run.clear()

    def _size(self, expression: str) -> str:
        """A size as sent: compact ones are sent plus one."""
        return f"{expression} + 1" if self._flexible else expression

    @property
    def _null(self) -> str:
        return "0" if self._flexible else "-1"

    def _sized(self, field: Field, value: str, nullable: bool) -> None:
        """Write a string or a byte string. One that is None where null is impossible goes out empty."""
        size, data = self.source.fresh("n"), self.source.fresh("d")
        code = "h" if field.base == "string" else "i"
        encode = ".encode()" if field.base == "string" else ""
        if not nullable:
            source = f"({value} or {_EMPTY[field.base]})" if optional(field) else value
            self.source.emit(f"{data} = {source}{encode}", f"{size} = {self._size(f'len({data})')}")
        else:
            item = self.source.fresh("v")
            self.source.emit(
                f"{item} = {value}",
                f"if {item} is None:",
                f'    {data}, {size} = b"", {self._null}',
                "else:",
                f"    {data} = {item}{encode}",
                f"    {size} = {self._size(f'len({data})')}",
            )
        self._length(code, size)
        self.source.emit(f"{self._out} += {data}")

    def _records(self, value: str, nullable: bool) -> None:
        size, data = self.source.fresh("n"), self.source.fresh("d")
        null = self._null if nullable else self._size("0")
        self.source.emit(
            f"{data} = {value}",
            f"{size} = {null} if {data} is None else {self._size(f'records_size({data})')}",
        )
        self._length("i", size)
        self.source.emit(
            f"if {data}:", "    parts.append(out)", f"    put_records(parts, {data})", "    out = bytearray()"
        )

    def _nested(self, field: Field, value: str, nullable: bool) -> None:
        """Write a struct that is a field. A nullable one has a byte before it: -1 for null, 1 otherwise."""
        if not nullable:
            self._struct(value, field.fields)
            return
        self._flush()
        item = self.source.fresh("v")
        self.source.emit(f"{item} = {value}", f"if {item} is None:", f'    {self._out} += b"\\xff"')
        with self.source.block("else:"):
            self._run.append(("b", "1"))
            self._struct(item, field.fields)
            self._flush()

    def _array(self, field: Field, value: str, nullable: bool) -> None:
        items, count = self.source.fresh("v"), self.source.fresh("n")
        if nullable:
            size = f"{self._null} if {items} is None else {self._size(f'len({items})')}"
            self.source.emit(f"{items} = {value}")
        else:
            size = self._size(f"len({items})")
            self.source.emit(f"{items} = {value}" + (" or []" if optional(field) else ""))
        self.source.emit(f"{count} = {size}")
        self._length("i", count)
        if nullable:
            with self.source.block(f"if {items}:"):
                self._elements(field, items)
        else:
            self._elements(field, items)

    def _elements(self, field: Field, items: str) -> None:
        if field.base == "int32":
            self.source.emit(f"{self._out} += int32s({items})")
            return
        if field.base in FORMATS and field.base != "uuid":
            self.source.emit(f'{self._out} += pack(f">{{len({items})}}{FORMATS[field.base]}", *{items})')
            return
        item = self.source.fresh("i")
        with self.source.block(f"for {item} in {items}:"):
            if field.struct:
                self._struct(item, field.fields)
            elif field.base == "uuid":
                self._run.append(("16s", item))
            else:
                data, size = self.source.fresh("d"), self.source.fresh("n")
                encode = ".encode()" if field.base == "string" else ""
                self.source.emit(f"{data} = {item}{encode}", f"{size} = {self._size(f'len({data})')}")
                self._length("h" if field.base == "string" else "i", size)
                self.source.emit(f"{self._out} += {data}")
            self._flush()

    def _tags(self, owner: str, known: list[Field]) -> None:
        """Write the tagged fields at the end of a struct: those that differ from their defaults."""
        if not known:
            self._run.append(("x", ""))
            return
        self._flush()
        count, tags, outer = self.source.fresh("n"), self.source.fresh("t"), self._out
        self.source.emit(f"{count} = 0", f"{tags} = bytearray()")
        for field in known:
            value, item = f"{owner}.{field.name}", self.source.fresh("v")
            self.source.emit(f"{item} = {value}")
            with self.source.block(f"if {_says_something(field, item)}:"):
                self._out = self.source.fresh("o")
                self.source.emit(f"{self._out} = bytearray()")
                # None was ruled out above; only a struct still has a byte that says so.
                self._field(field if field.struct else replace(field, nullable=NONE), item)
                self._flush()
                self.source.emit(f"put_tag({tags}, {field.tag}, {self._out})", f"{count} += 1")
                self._out = outer
        self._length("B", count)
        self.source.emit(f"{self._out} += {tags}")


_EMPTY = {"string": '""', "bytes": 'b""'}


def _tag_number(field: Field) -> int:
    return field.tag or 0


def _says_something(field: Field, item: str) -> str:
    """The condition under which a tagged field is sent."""
    usual = default(field)
    if usual == "None":
        return f"{item} is not None"
    if usual in ("[]", "False", '""', 'b""'):
        return item
    return f"{item} != {usual}"
