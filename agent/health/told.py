"""What one agent says of itself: its status and its metrics. `floe` asks by HTTP; an agent knows its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Labels = Mapping[str, str]
Samples = Mapping[str, Sequence[tuple[Labels, float]]]
"""By metric: labels and value of each."""


@dataclass(frozen=True, slots=True)
class Told:
    """One agent. `status` is its /status.json, None where it did not answer; then `error` says why."""

    name: str
    http: str
    status: Mapping[str, Any] | None = None
    samples: Samples = field(default_factory=dict)
    error: str = ""
    at: float = 0.0
    """When it answered, seconds of a monotonic clock."""
    processes: Sequence[Mapping[str, Any]] = ()
    """Of its machine, where the one that watches several was asked (agent.supervisor_port)."""

    def total(self, metric: str, **labels: str) -> float:
        """The sum of a metric's samples that have these labels; 0 without any."""
        found = self.samples.get(metric, ())
        return sum(value for had, value in found if labels.items() <= had.items())
