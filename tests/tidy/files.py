"""What the house rules look at: every file of the work tree that git tracks or would track."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("agent", "iceberg", "schema", "coordination", "objectstore")
GENERATED = ("agent/net/wire/generated/",)
GENERATED_ENDS = ("_pb2.py", "_pb2.pyi")
SOURCES = (".py", ".sh")
FILE_BYTES_MAX = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class File:
    """One text file. `path` is relative to the checkout, with slashes."""

    path: str
    text: str

    @property
    def generated(self) -> bool:
        """Written by a program; its generator is held to the rules instead."""
        return self.path.startswith(GENERATED) or self.path.endswith(GENERATED_ENDS)

    @property
    def python(self) -> bool:
        """A Python source of our own."""
        return self.path.endswith(".py") and not self.generated

    @property
    def product(self) -> bool:
        """Part of the five packages."""
        return self.path.partition("/")[0] in PACKAGES


@dataclass(frozen=True, slots=True)
class Problem:
    """One broken rule, at a line that an editor can open."""

    path: str
    line: int
    what: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.what}"


@cache
def house() -> tuple[File, ...]:
    """All text files, by path."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    return tuple(_read(sorted(set(listed.stdout.decode().split("\0")) - {""})))


def _read(paths: list[str]) -> Iterator[File]:
    for path in paths:
        file = ROOT / path
        if not file.is_file() or file.stat().st_size > FILE_BYTES_MAX:
            continue
        try:
            yield File(path, file.read_text(encoding="utf-8"))
        except UnicodeDecodeError:
            continue  # not text


def lines(file: File) -> Iterator[tuple[int, str]]:
    """Lines with their numbers, from 1."""
    return enumerate(file.text.splitlines(), 1)
