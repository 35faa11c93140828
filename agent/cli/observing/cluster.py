"""What all agents of a cluster say of themselves, asked side by side."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from agent.cli import agent_http
from agent.cli.failures import Failure, unreachable
from agent.health.told import Labels, Told
from coordination.clock import SystemClock

ANSWER_S = 5.0
"""How long an agent may take."""
SIDE_BY_SIDE = 16
CLOCK = SystemClock()


def look(base: str) -> list[Told]:
    """Every agent that the one at `base` knows, it first. Raises Failure when that one does not answer."""
    first = ask(base, "")
    if first.status is None:
        raise unreachable(first.error)
    scheme = first.http.partition("://")[0]
    others = [
        (f"{scheme}://{each['http']}", str(each["name"]))
        for each in first.status["brokers"]
        if each["http"] and each["name"] != first.name
    ]
    return [first, *again(others)]


def again(agents: Sequence[tuple[str, str]]) -> list[Told]:
    """Ask these, by (http, name), side by side."""
    if not agents:
        return []
    with ThreadPoolExecutor(min(SIDE_BY_SIDE, len(agents))) as pool:
        return list(pool.map(lambda each: ask(*each), agents))


def ask(http: str, name: str) -> Told:
    """One agent's status and metrics."""
    try:
        http, status, processes = agent_http.status_at(http, seconds_max=ANSWER_S)
        text = agent_http.fetch(http, "/metrics", seconds_max=ANSWER_S).decode()
    except Failure as failure:
        return Told(name or http, http, error=str(failure))
    return Told(
        str(status["agent"]), http, status, samples_of(text), at=CLOCK.monotonic(), processes=processes
    )


def samples_of(text: str) -> dict[str, list[tuple[Labels, float]]]:
    """What `/metrics` shows, by the samples' names."""
    from prometheus_client.parser import text_string_to_metric_families

    found: dict[str, list[tuple[Labels, float]]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, []).append((sample.labels, sample.value))
    return found
