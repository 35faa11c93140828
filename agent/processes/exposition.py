"""Several agents' metrics as one page: each family once, its samples with one label more.

As with any exporter that stands for several processes: a sum over that label is the machine's, and what
an agent alone would show is found by it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

LABEL: Final = "process"
_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")


@dataclass(slots=True)
class _Family:
    """`head`: its help and type, as the first who has it says."""

    head: dict[str, str] = field(default_factory=dict)
    samples: list[str] = field(default_factory=list)


def merged(texts: Mapping[str, str]) -> str:
    """Prometheus' text format, by the value of the label; a family's samples stand together."""
    families: dict[str, _Family] = {}
    for process, text in texts.items():
        _take(families, f'{LABEL}="{process}"', text)
    lines = (line for each in families.values() for line in (*each.head.values(), *each.samples))
    return "".join(f"{line}\n" for line in lines)


def _take(families: dict[str, _Family], label: str, text: str) -> None:
    family = families.setdefault("", _Family())
    for line in text.split("\n"):
        if line.startswith("# "):
            _, kind, name, *_ = [*line.split(" ", 3), "", ""]
            if kind in ("HELP", "TYPE"):
                family = families.setdefault(name, _Family())
                family.head.setdefault(kind, line)
        elif line:
            family.samples.append(_labelled(line, label))


def _labelled(sample: str, label: str) -> str:
    """A sample with one label more, before its own."""
    found = _NAME.match(sample)
    end = found.end() if found else 0
    name, rest = sample[:end], sample[end:]
    if not rest.startswith("{"):
        return f"{name}{{{label}}}{rest}"
    comma = "" if rest.startswith("{}") else ","
    return f"{name}{{{label}{comma}{rest[1:]}"
