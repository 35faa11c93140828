"""A .proto file and what it imports, as schemas that refer to one another.

An import that is no reference of its own is registered under its import path, as Confluent's serializers do.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from agent.cli.failures import Failure, Status, usage
from agent.cli.protos import IMPORT
from schema.registry.known import NAMES

Given = Mapping[str, tuple[str, int]]
"""Import path → subject and version (-1: the latest), as told on the command line."""

_VERSION = re.compile(r"-1|[0-9]{1,9}")
SUFFIXES = {".proto": "PROTOBUF", ".avsc": "AVRO", ".json": "JSON", ".jsonschema": "JSON"}


def kind_of(file: Path, given: str | None = None) -> str:
    """The type of a schema: the one that is given, else by its file's name. Raises Failure."""
    if given is not None:
        return given.upper()
    kind = SUFFIXES.get(file.suffix)
    if kind is None:
        raise usage(
            f"{file}: which type of schema it is goes by its name, {', '.join(SUFFIXES)}, or by --type"
        )
    return kind


def given_references(texts: Sequence[str]) -> dict[str, tuple[str, int]]:
    """References of the command line: NAME=SUBJECT[@VERSION]. Raises Failure."""
    found = {}
    for text in texts:
        name, sign, rest = text.partition("=")
        subject, at, number = rest.rpartition("@")
        if not at:
            subject, number = rest, "-1"
        if not sign or not name or not subject or not _VERSION.fullmatch(number):
            raise usage(f"--reference {text!r} is not IMPORT_PATH=SUBJECT or IMPORT_PATH=SUBJECT@VERSION")
        found[name] = (subject, int(number))
    return found


def text_of(file: Path) -> str:
    """What a file holds. Raises Failure."""
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise Failure(Status.FAILED, f"{file} cannot be read: {error}") from None


def found_in(file: Path, folders: Sequence[Path]) -> Path:
    """The file; where there is none, the one of that import path in a folder."""
    inside = (folder / file for folder in folders if not file.is_absolute())
    return file if file.is_file() else next((each for each in inside if each.is_file()), file)


def imports_of(text: str) -> list[str]:
    """Import paths of a .proto text, but those that every registry knows."""
    return [name for name in dict.fromkeys(IMPORT.findall(text)) if name not in NAMES]


def behind_what_they_import(text: str, given: Given, folders: Sequence[Path]) -> Iterator[tuple[str, str]]:
    """Import path and text of each file that is not given, over all levels, what is imported first.

    Raises Failure for one that is in no folder, and for imports in a circle.
    """
    done: dict[str, None] = {}
    yield from _behind(text, given, folders, done, ())


def _behind(
    text: str, given: Given, folders: Sequence[Path], done: dict[str, None], way: tuple[str, ...]
) -> Iterator[tuple[str, str]]:
    for name in imports_of(text):
        if name in given or name in done:
            continue
        if name in way:
            raise Failure(Status.FAILED, f"imports go round in a circle: {' → '.join((*way, name))}")
        found = text_of(_in_folders(name, folders))
        yield from _behind(found, given, folders, done, (*way, name))
        done[name] = None
        yield name, found


def _in_folders(name: str, folders: Sequence[Path]) -> Path:
    for folder in folders:
        if (folder / name).is_file():
            return folder / name
    looked = ", ".join(map(str, folders))
    raise usage(
        f'import "{name}" is in none of {looked}: name its root with --proto-path, or the subject that has '
        f"it with --reference {name}=SUBJECT"
    )
