"""Whom Metadata names: never nobody.

A client that is told of no broker has nobody to ask again; aiokafka stays so for ever, and asks itself in a
loop without a pause.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from agent.kafka.context import Context
from coordination.state.types import Broker


class Named:
    """Looks at every answer of Metadata. `wrong`: (anomaly, detail)."""

    def __init__(self, wrong: Callable[[str, str], None]) -> None:
        self._wrong = wrong
        self._told = False

    @contextmanager
    def watches(self) -> Iterator[None]:
        """All agents' answers meanwhile."""
        listed = Context.listed

        def watched(ctx: Context) -> list[Broker]:
            found = listed(ctx)
            if not found and not self._told:
                self._told = True
                self._wrong("nobody-named", f"node {ctx.services.replica.node_id} lists no broker")
            return found

        Context.listed = watched  # type: ignore[method-assign, assignment]  # in this process only, for one run
        try:
            yield
        finally:
            Context.listed = listed  # type: ignore[method-assign]  # as it was
