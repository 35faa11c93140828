"""How far many seeds are, in a file: hours of them are run in several goes, of one code."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.sim.coverage import Coverage
from tests.sim.many import Sum

ROOT = Path(__file__).resolve().parents[2]
PLAYED = (
    "agent", "coordination", "iceberg", "objectstore", "schema",
    "tests/checker", "tests/equipment", "tests/sim", "requirements.lock",
)  # fmt: skip
"""What a seed's run is made of."""


class OtherCode(Exception):
    """The file is of another code or another run; the message says what to do."""


def code_of(root: Path = ROOT) -> str:
    """A digest of what runs: those sources with their names, what they are linked with, and the Python."""
    digest = hashlib.sha256(f"{sys.implementation.cache_tag} ".encode())
    for name in PLAYED:
        place = root / name
        for path in [place] if place.is_file() else sorted(place.rglob("*.py")):
            content = path.read_bytes()
            digest.update(f"{path.relative_to(root)} {len(content)} ".encode() + content)
    return digest.hexdigest()


@dataclass(slots=True)
class Progress:
    """What the seeds so far gave. It is kept after each piece: an end in the middle loses those under way."""

    path: Path
    code: str
    first: int
    """The seed that the run begins at, whichever go this is."""
    seconds: float
    """Simulated, under faults, of each."""
    whole: Sum = field(default_factory=Sum)
    wall_s: float = 0.0
    """Of all goes together."""

    @property
    def done(self) -> int:
        """How many seeds of the run."""
        return self.whole.counts["seeds"]

    def keep(self, whole: Sum, wall_s: float) -> None:
        """So far it is now."""
        self.whole, self.wall_s = whole, wall_s
        told = {
            "code": self.code, "first": self.first, "seconds": self.seconds, "wall_s": round(wall_s, 1),
            "virtual_s": round(whole.virtual_s, 3), "cpu_s": round(whole.cpu_s, 3),
            "counts": dict(sorted(whole.counts.items())), "bad": whole.bad, "runs": whole.coverage.runs,
            "coverage": dict(sorted(whole.coverage.counts.items())),
        }  # fmt: skip
        fresh = self.path.with_name(f".{self.path.name}.{os.getpid()}")
        self.path.parent.mkdir(parents=True, exist_ok=True)
        fresh.write_text(json.dumps(told, indent=0, ensure_ascii=False) + "\n")
        fresh.replace(self.path)


def load(path: Path, first: int, seconds: float) -> Progress:
    """What is in the file, or nothing yet. Raises OtherCode."""
    fresh = Progress(path, code_of(), first, seconds)
    if not path.exists():
        return fresh
    told: dict[str, Any] = json.loads(path.read_text())
    if told["code"] != fresh.code:
        raise OtherCode(
            f"--progress {path}: the {told['counts']['seeds']} seeds in it ran on other code or another "
            f"Python ({told['code'][:12]}, this is {fresh.code[:12]}); go on in a work tree of that commit, "
            "or name another file"
        )
    for option, given in (("first", first), ("seconds", seconds)):
        if told[option] != given:
            raise OtherCode(
                f"--progress {path}: it began with --{option} {told[option]}, and now it is {given}; "
                "leave that as it was"
            )
    coverage = Coverage()
    coverage.counts, coverage.runs = Counter(told["coverage"]), told["runs"]
    bad = [(seed, text) for seed, text in told["bad"]]
    fresh.whole = Sum(Counter(told["counts"]), coverage, told["virtual_s"], told["cpu_s"], bad)
    fresh.wall_s = told["wall_s"]
    return fresh
