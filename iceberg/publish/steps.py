"""The steps of a pass, by name, and the place where a test can end a publisher between any two of them."""

from __future__ import annotations

STEPS = ("list", "look", "barrier", "create", "replace", "drop")


class Steps:
    """Told before each step. Production does nothing here."""

    async def before(self, step: str) -> None:
        """`step` (one of STEPS) comes next. What is raised here ends the pass as a crash would."""
        assert step in STEPS, step
