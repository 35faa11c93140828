"""What a simulated run gave."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from tests.checker.findings import Judgement
from tests.checker.operations import Operation
from tests.sim.plan import Plan


@dataclass(slots=True)
class Outcome:
    """What a run gave."""

    plan: Plan
    judgement: Judgement
    trace: list[str]
    digest: str
    """Of the trace: the same for the same seed."""
    virtual_s: float
    coverage: Counter[str] = field(default_factory=Counter)
    operations: list[Operation] = field(default_factory=list)
