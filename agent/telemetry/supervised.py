"""What the process that watches several agents counts (agent/processes); its `/metrics` has theirs, too."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge

LABEL = "process"


class SupervisorMetrics:
    """Of one machine."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.up = Gauge(
            "floe_process_up",
            "Whether the agent of a process runs and is alive; only with several processes (agent.processes)",
            [LABEL],
            registry=self.registry,
        )
        self.replaced = Counter(
            "floe_process_replaced",
            "Agents of a process that were replaced, by why: ended, silent, not alive, asked; only with "
            "several processes",
            [LABEL, "reason"],
            registry=self.registry,
        )
