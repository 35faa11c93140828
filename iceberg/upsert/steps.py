"""The steps by which a latest table comes to its next snapshot; a test can end it before any of them."""

from __future__ import annotations

from coordination.steps import reach
from iceberg.steps import Steps

STEPS = (
    "claim",
    "rename-table",
    "load-table",
    "set-old-table-aside",
    "create-namespace",
    "store-first-metadata",
    "create-table",
    "plan",
    "read-records",
    "fold-rows",
    "read-file",
    "merge-rows",
    "store-file",
    "store-manifests",
    "merge-manifests",
    "store-manifest-list",
    "store-metadata",
    "commit-table",
    "remember-head",
)


class UpsertSteps(Steps):
    """Told before each step, as iceberg.steps.Steps of a topic's append table."""

    async def before(self, step: str) -> None:
        """`step` (one of STEPS) comes next. What is raised here ends the turn as a crash would."""
        assert step in STEPS, step
        reach(f"latest/{step}")
