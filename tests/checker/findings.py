"""What a checker says: anomalies by name, each with the operations that show it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Literal

Weight = Literal["fail", "allowed", "reported"]
SHOWN_MAX = 20


@dataclass(frozen=True, slots=True)
class Finding:
    """One anomaly. Only those of weight `fail` make a history bad.

    `allowed` is what a client may see under group subscription; `reported` is legal in Kafka's protocol.
    """

    anomaly: str
    key: str
    detail: str
    operations: tuple[int, ...]
    weight: Weight = "fail"

    def __str__(self) -> str:
        where = f" on {self.key}" if self.key else ""
        return f"{self.anomaly} ({self.weight}){where}: {self.detail}; operations {list(self.operations)}"


@dataclass(slots=True)
class Judgement:
    """All findings, and the counts that make a clean judgement mean something."""

    findings: list[Finding] = field(default_factory=list)
    operations: Counter[str] = field(default_factory=Counter)
    """By outcome."""
    acknowledged: int = 0
    """Sends of ok operations."""
    read: int = 0
    """Records that ok polls returned."""

    @property
    def valid(self) -> bool:
        """No finding fails the history."""
        return not any(each.weight == "fail" for each in self.findings)

    @property
    def counts(self) -> dict[str, int]:
        """Findings by `anomaly (weight)`."""
        counted = Counter(f"{each.anomaly} ({each.weight})" for each in self.findings)
        return dict(sorted(counted.items()))

    def report(self) -> str:
        """The counts, then the first findings."""
        outcomes = " · ".join(f"{name} {count}" for name, count in sorted(self.operations.items()))
        head = f"{outcomes} · acknowledged {self.acknowledged} · read {self.read} · {self.counts or 'clean'}"
        return "\n".join([head, *(str(each) for each in self.findings[:SHOWN_MAX])])
