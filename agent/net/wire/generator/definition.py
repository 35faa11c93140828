"""The definition files: their grammar, and the model that the emitters work on.

A file describes one API. Nesting is by two spaces. A line of a message is

    name  type  versions  [nullable=VERSIONS] [default=VALUE] [tag=NUMBER:VERSIONS]

`[]` before a type makes an array. A capitalised type is a struct, whose fields follow indented, or stand
under `struct Name` when several fields share it. `4+` means from 4 on, `0-12` both ends included.
The facts come from Apache Kafka's own message definitions (Apache-2.0).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

VERSION_MAX = 32767
PRIMITIVES = frozenset(
    ("bool", "int8", "int16", "uint16", "int32", "int64", "float64", "string", "bytes", "records", "uuid")
)


class DefinitionError(Exception):
    """A definition file that makes no sense: says which file, which line and why."""


class Versions(NamedTuple):
    """A closed range of versions; empty when high < low."""

    low: int
    high: int

    def __contains__(self, version: object) -> bool:
        return isinstance(version, int) and self.low <= version <= self.high


NONE = Versions(0, -1)


@dataclass(slots=True)
class Field:
    """One field of a struct, over all versions."""

    name: str
    base: str
    array: bool
    versions: Versions
    nullable: Versions = NONE
    default: str | None = None
    tag: int | None = None
    tagged: Versions = NONE
    fields: list[Field] = field(default_factory=list)

    @property
    def struct(self) -> bool:
        """Whether the field, or each of its elements, is a struct."""
        return self.base not in PRIMITIVES

    def plain_in(self, version: int) -> bool:
        """Whether the field stands untagged in this version."""
        return version in self.versions and version not in self.tagged

    def tagged_in(self, version: int) -> bool:
        """Whether the field is a tagged one in this version."""
        return version in self.versions and version in self.tagged


@dataclass(slots=True)
class Message:
    """A request or a response."""

    kind: str
    fields: list[Field]


@dataclass(slots=True)
class Api:
    """One API: key, name as in Kafka, the versions spoken, and its two messages."""

    key: int
    name: str
    versions: Versions
    flexible: Versions
    request: Message
    response: Message

    @property
    def module(self) -> str:
        """The module's name under agent.net.wire.generated."""
        return "".join(f"_{c.lower()}" if c.isupper() else c for c in self.name).lstrip("_")


class _Line(NamedTuple):
    number: int
    depth: int
    words: list[str]


def parse_versions(text: str) -> Versions:
    """`none`, `3`, `3+` or `3-5`."""
    if text == "none":
        return NONE
    if text.endswith("+"):
        return Versions(int(text[:-1]), VERSION_MAX)
    low, _, high = text.partition("-")
    return Versions(int(low), int(high or low))


def load(folder: Path) -> list[Api]:
    """Read every definition of a folder, in the order of the API keys.

    Raises DefinitionError.
    """
    apis = []
    for path in sorted(folder.glob("k*.txt")):
        try:
            apis.append(parse(path.read_text()))
        except (ValueError, IndexError, KeyError, DefinitionError) as error:
            raise DefinitionError(f"{path.name}: {error}") from error
    return sorted(apis, key=lambda api: api.key)


def parse(text: str) -> Api:
    """Parse one definition file. Raises DefinitionError."""
    lines = [
        _Line(number, (len(line) - len(line.lstrip())) // 2, line.split())
        for number, line in enumerate(text.splitlines(), 1)
        if line.strip() and not line.lstrip().startswith("#")
    ]
    heads = {line.words[0]: line.words[1:] for line in lines if line.depth == 0}
    sections = {" ".join(head.words): body for head, body in _sections(lines)}
    structs = {name[7:]: body for name, body in sections.items() if name.startswith("struct ")}
    return Api(
        key=int(heads["api"][0]),
        name=heads["api"][1],
        versions=parse_versions(heads["versions"][0]),
        flexible=parse_versions(heads["flexible"][0]),
        request=Message("request", _fields(sections["request"], structs)),
        response=Message("response", _fields(sections["response"], structs)),
    )


def _sections(lines: Sequence[_Line]) -> list[tuple[_Line, list[_Line]]]:
    sections: list[tuple[_Line, list[_Line]]] = []
    for line in lines:
        if line.depth == 0:
            sections.append((line, []))
        else:
            sections[-1][1].append(line)
    return sections


def _fields(lines: Sequence[_Line], structs: dict[str, list[_Line]]) -> list[Field]:
    fields: list[Field] = []
    start = 0
    while start < len(lines):
        head = lines[start]
        end = start + 1
        while end < len(lines) and lines[end].depth > head.depth:
            end += 1
        made = _field(head)
        children = lines[start + 1 : end]
        if made.struct:
            made.fields = _fields(children or structs[made.base], structs)
        elif children:
            raise DefinitionError(f"line {head.number}: {made.name} is a {made.base} and has no fields")
        fields.append(made)
        start = end
    return fields


def _field(line: _Line) -> Field:
    name, kind, versions, *rest = line.words
    options = dict(word.split("=", 1) for word in rest)
    made = Field(name, kind.removeprefix("[]"), kind.startswith("[]"), parse_versions(versions))
    made.nullable = parse_versions(options.pop("nullable", "none"))
    made.default = options.pop("default", None)
    if "tag" in options:
        tag, _, tagged = options.pop("tag").partition(":")
        made.tag, made.tagged = int(tag), parse_versions(tagged)
    if options:
        raise DefinitionError(f"line {line.number}: unknown option {', '.join(options)}")
    if not made.struct and made.base not in PRIMITIVES:
        raise DefinitionError(f"line {line.number}: unknown type {made.base}")
    if made.struct and not made.base[0].isupper():
        raise DefinitionError(f"line {line.number}: unknown type {made.base}")
    return made
