"""The steps of a commit, by name, and the place where a test can end a committer between any two of them."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

from coordination.steps import reach

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
    "write-file",
    "store-file",
    "find-old-files",
    "find-small-files",
    "read-small-files",
    "merge-files",
    "store-merged-file",
    "merge-manifests",
    "store-manifests",
    "store-manifest-list",
    "store-history",
    "store-base",
    "store-metadata",
    "commit-table",
    "remember-head",
    "list-orphans",
    "delete-orphans",
)


class Steps:
    """Told before each step. Production does nothing here but to pass it on (coordination/steps.py)."""

    def turn(self) -> AbstractContextManager[None]:
        """Around one turn of the table: a commit, if there is something to commit, and what goes with it."""
        return nullcontext()

    async def before(self, step: str) -> None:
        """`step` (one of STEPS) comes next. What is raised here ends the commit as a crash would."""
        assert step in STEPS, step
        reach(f"table/{step}")
