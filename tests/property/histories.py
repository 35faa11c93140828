"""Random histories of a topic's schemas, and the truth about the columns of their records."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from random import Random
from typing import Any

from google.protobuf import descriptor_pb2
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorSet

F = FieldDescriptorProto
SCALARS = {
    "int32": (F.TYPE_INT32, "i"),
    "sint64": (F.TYPE_SINT64, "i"),
    "int64": (F.TYPE_INT64, "i"),
    "uint32": (F.TYPE_UINT32, "i"),
    "fixed64": (F.TYPE_FIXED64, "decimal"),
    "bool": (F.TYPE_BOOL, "bool"),
    "string": (F.TYPE_STRING, "string"),
    "enum": (F.TYPE_ENUM, "string"),
    "bytes": (F.TYPE_BYTES, "bytes"),
    "float": (F.TYPE_FLOAT, "f"),
    "double": (F.TYPE_DOUBLE, "f"),
}
KEYS = {"string": "string", "int32": "int32", "int64": "int64"}
ROOTS = ("p.Order", "q.Order", "p.Payment")
WORDS = ("user", "amount", "kind", "at", "USER")


@dataclass(frozen=True)
class Field:
    """A field of a random message. `form`: one, list or map; `kind`: a scalar's name or a message."""

    number: int
    name: str
    form: str
    kind: str | Message
    key: str = ""

    @property
    def signature(self) -> str:
        """What has to be the same for two fields to share a column."""
        inner = "message" if isinstance(self.kind, Message) else SCALARS[self.kind][1]
        return f"{self.form} {KEYS.get(self.key, '')} {inner}"


@dataclass(frozen=True)
class Message:
    """A random message's fields, by number."""

    fields: tuple[Field, ...]


def message(random: Random, depth: int = 0) -> Message:
    """Some fields, of all kinds; the names of a message differ."""
    names = list(WORDS)
    random.shuffle(names)
    numbers = sorted(random.sample(range(1, 6), random.randint(1, 4)))
    return Message(tuple(_field(random, number, names.pop(), depth) for number in numbers))


def _field(random: Random, number: int, name: str, depth: int) -> Field:
    form = random.choice(("one", "one", "one", "list", "map"))
    nested = depth < 2 and random.random() < 0.25
    kind = message(random, depth + 1) if nested else random.choice(list(SCALARS))
    return Field(number, name, form, kind, random.choice(list(KEYS)) if form == "map" else "")


def changed(random: Random, before: Message, depth: int = 0) -> Message:
    """A later version: fields renamed, retyped, taken away, added."""
    fields = {each.number: each for each in before.fields}
    for number in list(fields):
        draw = random.random()
        free = [word for word in WORDS if word not in {each.name for each in fields.values()}]
        each = fields[number]
        if draw < 0.15 and len(fields) > 1:
            del fields[number]
        elif draw < 0.3 and free:
            fields[number] = Field(number, random.choice(free), each.form, each.kind, each.key)
        elif draw < 0.5:
            fields[number] = _field(random, number, each.name, depth)
        elif isinstance(each.kind, Message) and draw < 0.8:
            inner = changed(random, each.kind, depth + 1)
            fields[number] = Field(number, each.name, each.form, inner, each.key)
    free = [word for word in WORDS if word not in {each.name for each in fields.values()}]
    if free and random.random() < 0.5:
        number = random.randint(1, 6)
        if number not in fields:
            fields[number] = _field(random, number, random.choice(free), depth)
    return Message(tuple(fields[number] for number in sorted(fields)))


def descriptor_set(root: str, top: Message) -> bytes:
    """The message under the full name `root`, serialized."""
    package, _, name = root.rpartition(".")
    files = FileDescriptorSet()
    file = files.file.add(name="m.proto", package=package, syntax="proto3")
    _describe(file.message_type.add(name=name), top, f".{root}")
    return files.SerializeToString()


def _describe(target: DescriptorProto, source: Message, path: str) -> None:
    target.enum_type.add(name="E").value.extend(
        descriptor_pb2.EnumValueDescriptorProto(name=f"E{number}", number=number) for number in (0, 1, 2)
    )
    for each in source.fields:
        field = target.field.add(name=each.name, number=each.number, label=F.LABEL_OPTIONAL)
        value, inner = field, target
        inside = path
        if each.form != "one":
            field.label = F.LABEL_REPEATED
        if each.form == "map":
            entry = f"{each.name[0].upper()}{each.name[1:]}Entry"
            field.type, field.type_name = F.TYPE_MESSAGE, f"{path}.{entry}"
            inner = target.nested_type.add(name=entry)
            inner.options.map_entry = True
            inner.field.add(name="key", number=1, label=F.LABEL_OPTIONAL, type=SCALARS[each.key][0])
            value = inner.field.add(name="value", number=2, label=F.LABEL_OPTIONAL)
        if isinstance(each.kind, Message):
            name = f"M{each.number}"
            value.type, value.type_name = F.TYPE_MESSAGE, f"{inside}.{name}"
            _describe(target.nested_type.add(name=name), each.kind, f"{inside}.{name}")
        else:
            value.type = SCALARS[each.kind][0]
            if each.kind == "enum":
                value.type_name = f"{path}.E"


def scalar(random: Random, kind: str) -> Any:
    """A value as protobuf takes it."""
    match kind:
        case "int32":
            return random.randint(-(1 << 31), (1 << 31) - 1)
        case "int64" | "sint64":
            return random.randint(-(1 << 63), (1 << 63) - 1)
        case "uint32":
            return random.randint(0, (1 << 32) - 1)
        case "fixed64":
            return random.randint(0, (1 << 64) - 1)
        case "bool":
            return random.random() < 0.5
        case "string":
            return random.choice(("", "größer", "a", f"{random.random()}"))
        case "enum":
            return random.randint(0, 2)
        case "bytes":
            return random.randbytes(random.randint(0, 5))
    return random.randint(-(1 << 20), 1 << 20) / 8  # float holds it whole


DEFAULTS: dict[str, Any] = {"bool": False, "string": "", "bytes": b"", "float": 0.0, "double": 0.0}


def shown(kind: str, value: Any) -> Any:
    """A value as the table shows it."""
    if kind == "fixed64":
        return Decimal(value)
    return f"E{value}" if kind == "enum" else value


def fill(random: Random, target: Any, source: Message) -> dict[int, Any]:
    """Set some of the fields of a protobuf message; what the table has to show, by field number.

    Fields without presence show their default when they are not set.
    """
    found = {each.number: _set(random, target, each) for each in source.fields}
    return {number: value for number, value in found.items() if value is not None}


def _set(random: Random, target: Any, each: Field) -> Any:
    count = random.randint(0, 2)
    own = getattr(target, each.name)
    if each.form == "one" and isinstance(each.kind, Message):
        if not count:
            return None
        own.SetInParent()
        return fill(random, own, each.kind)
    if each.form == "one":
        assert isinstance(each.kind, str)
        value = scalar(random, each.kind) if count else DEFAULTS.get(each.kind, 0)
        setattr(target, each.name, value)
        return shown(each.kind, value)
    if each.form == "list":
        if isinstance(each.kind, Message):
            return [fill(random, own.add(), each.kind) for _ in range(count)]
        values = [scalar(random, each.kind) for _ in range(count)]
        own.extend(values)
        return [shown(each.kind, value) for value in values]
    pairs = {}
    for key in sorted({scalar(random, each.key) for _ in range(count)}):
        if isinstance(each.kind, Message):
            pairs[key] = fill(random, own[key], each.kind)
        else:
            own[key] = value = scalar(random, each.kind)
            pairs[key] = shown(each.kind, value)
    return pairs


def by_column(
    source: Message, truth: Mapping[int, Any], ids: Mapping[tuple[int, ...], int], at: tuple[int, ...] = ()
) -> dict[int, Any]:
    """The same by column id. `ids`: {path of field numbers: column id}."""
    found = {}
    for each in source.fields:
        path = (*at, each.number)
        value = truth.get(each.number)
        if value is not None and isinstance(each.kind, Message):
            if each.form == "list":
                value = [by_column(each.kind, one, ids, path) for one in value]
            elif each.form == "map":
                value = {key: by_column(each.kind, one, ids, path) for key, one in value.items()}
            else:
                value = by_column(each.kind, value, ids, path)
        if value is not None:
            found[ids[path]] = value
    return found


class Identities:
    """Which fields are the same thing, by the rule that docs/tables.md states; it knows no column ids."""

    def __init__(self) -> None:
        self._known: dict[tuple[Any, ...], list[dict[str, str]]] = {}

    def of(
        self, root: str, source: Message, above: tuple[Any, ...] = ()
    ) -> Iterator[tuple[tuple[int, ...], Any]]:
        """(path of field numbers, identity) of each field of the message, nested ones too."""
        for each in source.fields:
            place = (*above, each.number, each.signature)
            known = self._known.setdefault(place, [])
            at = next((n for n, names in enumerate(known) if root in names), None)
            if at is None:
                same = [n for n, names in enumerate(known) if each.name in names.values()]
                at = same[-1] if same else len(known)
            if at == len(known):
                known.append({})
            known[at][root] = each.name
            identity = (*place, at)
            yield (each.number,), identity
            if isinstance(each.kind, Message):
                for path, inner in self.of(root, each.kind, identity):
                    yield (each.number, *path), inner
