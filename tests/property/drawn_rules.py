"""Messages with random rules of protovalidate, and random messages near the bounds that these set."""

from __future__ import annotations

from random import Random
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from schema.descriptors import is_map, is_repeated

SIGNED = ("int32", "int64", "sint32", "sint64", "sfixed32", "sfixed64")
UNSIGNED = ("uint32", "uint64", "fixed32", "fixed64")
FRACTIONS = ("float", "double")
SCALARS = (*SIGNED, *UNSIGNED, *FRACTIONS, "bool", "string", "bytes", "Colour")
KEYS = (*SIGNED, *UNSIGNED, "bool", "string")
UUID = "0a1b2c3d-0000-4000-8000-00000000000F"
TEXTS = (
    "",
    "a",
    "ab",
    "abc",
    "é",
    "aé",
    "a@b.co",
    "a.b@c-d.example",
    "@",
    UUID,
    UUID[1:],
    "a\nb",
    "A b",
    "ab\n",
)
NUMBERS = (0, 1, 2, 3, 100)
HEAD = """
import "buf/validate/validate.proto";
enum Colour { NONE = 0; RED = 1; BLUE = 3; }
message Inner { int32 n = 1 [(buf.validate.field).int32.gte = 0]; string s = 2; }
message Plain { int32 n = 1; }
"""


class Drawn:
    """Random sources; the same for the same seed."""

    def __init__(self, seed: int) -> None:
        self._draw = Random(seed)

    def file(self, syntax: str, messages: int) -> bytes:
        """A file of messages M0, M1, … with rules, in package t."""
        head = f'syntax = "{syntax}"; package t;{HEAD}'
        head = head.replace("int32 n", "optional int32 n").replace("string s", "optional string s")
        return (head + "\n".join(self._message(each, syntax) for each in range(messages))).encode()

    def _message(self, number: int, syntax: str) -> str:
        fields = [self._field(each, number, syntax) for each in range(1, self._draw.randint(2, 6))]
        if self._chance(0.3):
            required = "option (buf.validate.oneof).required = true; " if self._chance(0.7) else ""
            members = "".join(
                f"{kind} c{at} = {at}{self._options(self._rules(kind))}; "
                for at, kind in enumerate(self._draw.choices(SCALARS, k=2), 20)
            )
            fields.append(f"oneof choice {{ {required}{members}}}")
        cel = "".join(
            f'option (buf.validate.message).cel = {{ id: "c{each}", message: "m", expression: \'{text}\' }}; '
            for each, text in enumerate(self._expressions(fields))
        )
        return f"message M{number} {{ {cel}{' '.join(fields)} }}"

    def _chance(self, share: float) -> bool:
        return self._draw.random() < share

    def _field(self, at: int, number: int, syntax: str) -> str:
        shape = self._draw.choice(("one", "one", "one", "maybe", "list", "map", "inner", "inners"))
        kind = self._draw.choice(SCALARS)
        label = "optional " if syntax == "proto2" else ""
        if shape in ("inner", "inners"):
            kind = self._draw.choice(("Inner", "Inner", "Plain", f"M{self._draw.randint(0, number)}"))
        if shape == "map":
            key = self._draw.choice(KEYS)
            rules = self._many("map", ("min_pairs", "max_pairs"), {"keys": key, "values": kind})
            return f"map<{key}, {kind}> f{at} = {at}{self._options(rules)};"
        if shape in ("list", "inners"):
            rules = self._many(
                "repeated", ("min_items", "max_items"), {"items": kind} if shape == "list" else {}
            )
            if shape == "list" and self._chance(0.3):
                rules.append("repeated.unique = true")
            return f"repeated {kind} f{at} = {at}{self._options(rules)};"
        if shape == "maybe":
            label = "optional "
        rules = self._around() if shape == "inner" else self._around() + self._rules(kind)
        return f"{label}{kind} f{at} = {at}{self._options(rules)};"

    def _around(self) -> list[str]:
        found = ["required = true"] if self._chance(0.15) else []
        if self._chance(0.2):
            found.append(f"ignore = {self._draw.choice(('IGNORE_ALWAYS', 'IGNORE_IF_ZERO_VALUE'))}")
        return found

    def _many(self, name: str, counts: tuple[str, str], elements: dict[str, str]) -> list[str]:
        found = self._around()
        least = self._draw.randint(0, 2)
        for count, value in zip(counts, (least, least + self._draw.randint(0, 2)), strict=True):
            if self._chance(0.3):
                found.append(f"{name}.{count} = {value}")
        for element, kind in elements.items():
            if self._chance(0.5):
                found += [f"{name}.{element}.{each}" for each in self._rules(kind)]
                if self._chance(0.1):
                    found.append(f"{name}.{element}.ignore = IGNORE_IF_ZERO_VALUE")
        return found

    def _options(self, rules: list[str]) -> str:
        return f" [{', '.join(f'(buf.validate.field).{each}' for each in rules)}]" if rules else ""

    def _rules(self, kind: str) -> list[str]:
        """Rules of a value, each as `int32.gte = 1`."""
        if kind not in SCALARS or self._chance(0.2):
            return []
        if self._chance(0.1):
            return [f'cel = {{ id: "f", message: "m", expression: "{self._of_this("this", kind)}" }}']
        name = "enum" if kind == "Colour" else kind
        if kind == "bool":
            return [f"bool.const = {self._draw.choice(('true', 'false'))}"]
        if kind in ("string", "bytes"):
            return [f"{name}.{each}" for each in self._text_rules(kind)]
        if kind == "Colour":
            return ["enum." + self._draw.choice(("defined_only = true", "const = 1", "in = 1", "not_in = 3"))]
        return [f"{name}.{each}" for each in self._number_rules(kind)]

    def _number(self, kind: str) -> str:
        choices = ["0", "1", "2", "3", *(() if kind in UNSIGNED else ("-1", "-2"))]
        if kind in FRACTIONS and self._chance(0.3):
            choices = ["0.5", "-0.0", "inf", "-inf", "nan", "-1.5"]
        chosen: str = self._draw.choice(choices)
        return chosen

    def _number_rules(self, kind: str) -> list[str]:
        found = []
        if self._chance(0.6):
            found.append(f"{self._draw.choice(('gt', 'gte'))} = {self._number(kind)}")
        if self._chance(0.6):
            found.append(f"{self._draw.choice(('lt', 'lte'))} = {self._number(kind)}")
        if kind in FRACTIONS and self._chance(0.3):
            found.append("finite = true")
        if self._chance(0.2):
            found.append(f"{self._draw.choice(('const', 'in', 'not_in', 'not_in'))} = {self._number(kind)}")
        return found

    def _text_rules(self, kind: str) -> list[str]:
        texts = self._draw.choice(("const", "prefix", "suffix", "contains", "in", "not_in"))
        choices = [
            f"{self._draw.choice(('len', 'min_len', 'max_len'))} = {self._draw.randint(0, 4)}",
            f"{texts} = '{self._draw.choice(('a', 'ab', 'b', ''))}'",
        ]
        if kind == "string":
            choices += [
                f"{self._draw.choice(('len_bytes', 'min_bytes', 'max_bytes'))} = {self._draw.randint(0, 4)}",
                "not_contains = 'b'",
                self._draw.choice(("email = true", "uuid = true", "uuid = false")),
                self._draw.choice(("pattern = '^a'", "hostname = true")),
            ]
        return self._draw.sample(choices, self._draw.choice((1, 1, 2)))

    def _expressions(self, fields: list[str]) -> list[str]:
        """Rules in CEL of a message; some cannot be used, or are not understood."""
        known = [each.split(" = ")[0].split()[-2:] for each in fields if not each.startswith("oneof")]
        singles = [(f"this.{name}", kind) for kind, name in known if kind in SCALARS]
        if not singles or not self._chance(0.5):
            return []
        found = [self._of_this(*self._draw.choice(singles)) for _ in range(self._draw.randint(1, 2))]
        if self._chance(0.3):
            (left, _), (right, _) = self._draw.choices(singles, k=2)
            found.append(f"{left} {self._draw.choice(('==', '!=', '<'))} {right}")
        if self._chance(0.3):
            field = self._draw.choice([name for _, name in known])
            found.append(f"has(this.{field}) || {self._of_this(*self._draw.choice(singles))}")
        if self._chance(0.3):
            found.append(f'{self._of_this(*self._draw.choice(singles))} ? "" : "told"')
        return [each.replace("'", '"') for each in found]

    def _of_this(self, this: str, kind: str) -> str:
        compares = self._draw.choice(("==", "!=", "<", "<=", ">", ">="))
        if kind == "bool":
            return self._draw.choice((this, f"!{this}", f"{this} != true"))
        if kind == "bytes":
            return f"{this}.size() {compares} 2"
        if kind == "string":
            text = self._draw.choice(("''", "'a'", "'ab'", "'é'"))
            return self._draw.choice(
                (
                    f"{this} {compares} {text}",
                    f"size({this}) {compares} 2",
                    f"{this}.startsWith({text}) || {this}.endsWith('b')",
                    f"!({this}.contains({text})) && {this} in ['a', 'abc', 'é', '']",
                )
            )
        suffix = "u" if kind in UNSIGNED else ".0" if kind in FRACTIONS else ""
        sign = "" if kind in UNSIGNED else self._draw.choice(("", "", "-"))
        number = f"{sign}{self._draw.randint(0, 3)}{suffix}"
        if kind in FRACTIONS:
            return self._draw.choice((f"{this} {compares} {number}", f"!({this} {compares} {number})"))
        return self._draw.choice((f"{this} {compares} {number}", f"{this} in [{number}, 1{suffix}]"))


def fill(draw: Random, message: Any, depth: int = 3) -> Any:
    """Set fields of a message at random."""
    descriptor: Descriptor = message.DESCRIPTOR
    for field in descriptor.fields:
        if draw.random() < 0.3:
            continue
        place = getattr(message, field.name)
        if is_map(field):
            _fill_map(draw, place, field, depth)
        elif is_repeated(field):
            for _ in range(draw.randint(0, 3)):
                if field.message_type is not None:
                    fill(draw, place.add(), depth - 1) if depth else place.add()
                else:
                    place.append(value(draw, field))
        elif field.message_type is not None:
            place.SetInParent()
            if depth:
                fill(draw, place, depth - 1)
        else:
            setattr(message, field.name, value(draw, field))
    return message


def _fill_map(draw: Random, place: Any, field: FieldDescriptor, depth: int) -> None:
    assert field.message_type is not None
    key, held = field.message_type.fields_by_name["key"], field.message_type.fields_by_name["value"]
    for _ in range(draw.randint(0, 3)):
        if held.message_type is None:
            place[value(draw, key)] = value(draw, held)
        elif depth:
            fill(draw, place[value(draw, key)], depth - 1)
        else:
            place[value(draw, key)].SetInParent()


def value(draw: Random, field: FieldDescriptor) -> Any:
    """A value of a field that is no message, near those that rules name."""
    kind = field.cpp_type
    if kind == FieldDescriptor.CPPTYPE_STRING:
        text = draw.choice(TEXTS)
        return text.encode() if field.type == FieldDescriptor.TYPE_BYTES else text
    if kind == FieldDescriptor.CPPTYPE_BOOL:
        return draw.random() < 0.5
    if kind == FieldDescriptor.CPPTYPE_ENUM:
        assert field.enum_type is not None
        return draw.choice([0, 1, 3] if field.enum_type.is_closed else [0, 1, 3, 2, -1])
    if kind in (FieldDescriptor.CPPTYPE_DOUBLE, FieldDescriptor.CPPTYPE_FLOAT):
        return draw.choice([*NUMBERS, -1.0, -2.0, -0.0, 0.5, float("nan"), float("inf"), float("-inf")])
    if kind in (FieldDescriptor.CPPTYPE_UINT32, FieldDescriptor.CPPTYPE_UINT64):
        bits = 32 if kind == FieldDescriptor.CPPTYPE_UINT32 else 64
        return draw.choice([*NUMBERS, (1 << bits) - 1])
    bits = 31 if kind == FieldDescriptor.CPPTYPE_INT32 else 63
    return draw.choice([*NUMBERS, -1, -2, (1 << bits) - 1, -(1 << bits)])
