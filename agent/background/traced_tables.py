"""A table's commit as a trace, with an event for each of its steps (agent/telemetry/tracing.py).

Steps are events and no spans: data files are made side by side, and a step does not say when it ends.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from agent.telemetry.tracing import Trace, Traces
from iceberg.steps import Steps
from iceberg.upsert.steps import UpsertSteps
from objectstore import tasks
from objectstore.episodes import loop_time

COMMITS = "commit-table"


class TracedSteps(Steps):
    """The steps of one topic's table."""

    called = "commit table"

    def __init__(self, topic: str, traces: Traces) -> None:
        self._topic, self._traces = topic, traces
        self._trace: Trace | None = None

    @contextmanager
    def turn(self) -> Iterator[None]:
        """See Steps. A turn that found nothing to commit leaves no trace."""
        trace = self._trace = self._traces.begin(self.called)
        if trace is None:
            yield
            return
        trace.attributes["messaging.destination.name"] = [self._topic]
        error = ""
        try:
            yield
        except BaseException as failure:
            error = "cancelled" if tasks.cancelled(failure) else type(failure).__name__
            raise
        finally:
            self._trace = None
            if error or any(step.name == COMMITS for step in trace.steps):
                self._traces.end(trace, error)

    async def before(self, step: str) -> None:
        """See Steps."""
        await super().before(step)
        if self._trace is not None:
            now = loop_time()
            self._trace.step(step, now, now)


class TracedLatestSteps(TracedSteps, UpsertSteps):
    """The steps of one topic's table of newest rows."""

    called = "commit latest table"
