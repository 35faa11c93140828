"""Pages of docs/ that are run as they stand: their fenced blocks, and a terminal to run them in.

The word behind a block's language is a file's name, or says how the block is meant: `running` (the fixtures
start it), `once` (done before any test), `fails` (it ends with a status that is not 0).
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

BLOCK = re.compile(r"^```(\w+)(?: (\S+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block: its language, the word behind it (a file's name, or `running`) and its text."""

    language: str
    name: str
    text: str


def blocks(page: Path) -> Iterator[Block]:
    """The fenced blocks of a page, in its order."""
    for language, name, text in BLOCK.findall(page.read_text()):
        yield Block(language, name, text)


@dataclass
class Shell:
    """A user's terminal: variables and folder stay from block to block."""

    home: Path
    instead: Mapping[str, str]
    environment: dict[str, str]
    folder: Path
    said: list[str] = field(default_factory=list)

    def of_here(self, text: str) -> str:
        """The page's text with this run's ports."""
        for theirs, ours in self.instead.items():
            text = text.replace(theirs, ours)
        return text

    def run(self, text: str, *, fails: bool = False) -> None:
        """One block; what it says is kept. With `fails` it has to end with a status that is not 0."""
        state = self.home / ".state"
        script = f"set -eo pipefail\n{self.of_here(text)}\npwd > {state}; env -0 >> {state}\n"
        ran = subprocess.run(
            ["bash", "-c", script],
            cwd=self.folder, env=self.environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert (ran.returncode != 0) == fails, f"{text}\n{ran.stdout[-2000:]}\n{ran.stderr[-3000:]}"
        self.said = [*ran.stderr.splitlines(), *ran.stdout.splitlines()]
        if fails:
            return
        folder, _, variables = state.read_text().partition("\n")
        self.folder = Path(folder)
        self.environment = dict(each.split("=", 1) for each in variables.split("\0") if "=" in each)
