"""One figure of the benchmark: what was measured, beside its peer and its goal."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Literal

ROUNDS = 3  # medians of at least three; peers take turns within a round


@dataclass(frozen=True, slots=True)
class Figure:
    """`goal` bounds the ratio value / peer_value when there is a peer, else the value."""

    name: str
    value: float
    unit: str
    peer: str = ""
    peer_value: float | None = None
    goal: float | None = None
    better: Literal["more", "less"] = "more"

    @property
    def ratio(self) -> float | None:
        """value / peer_value."""
        return None if not self.peer_value else self.value / self.peer_value

    @property
    def met(self) -> bool | None:
        """Whether the goal is reached; None without a goal."""
        if self.goal is None:
            return None
        reached = self.value if self.ratio is None else self.ratio
        return reached >= self.goal if self.better == "more" else reached <= self.goal

    def line(self) -> str:
        """One JSON line."""
        known = asdict(self)
        known |= {
            "ratio": self.ratio and round(self.ratio, 3),
            "met": self.met,
            "value": round(self.value, 3),
        }
        known["peer_value"] = self.peer_value and round(self.peer_value, 3)
        return json.dumps(known)

    @classmethod
    def read(cls, line: str) -> Figure:
        """The figure of a line that another process wrote."""
        known = json.loads(line)
        return cls(**{field.name: known[field.name] for field in fields(cls)})


def median(measure: Callable[[], float], rounds: int = ROUNDS) -> float:
    """The median of several runs."""
    return statistics.median(measure() for _ in range(rounds))


def interleaved(measures: Sequence[Callable[[], float]], rounds: int = ROUNDS) -> list[float]:
    """The median of each, the peers taking turns so that a change of the machine's speed meets both."""
    taken: list[list[float]] = [[] for _ in measures]
    for number in range(rounds):
        order = list(enumerate(measures))
        for index, measure in order if number % 2 == 0 else reversed(order):
            taken[index].append(measure())
    return [statistics.median(values) for values in taken]
