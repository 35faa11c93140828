"""What an agent tells other agents of itself, for pages about all of them: counters, and why it is not well.

JSON, so that a version may add to it: what is unknown is passed over, what is missing is none.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from agent.version import VERSION

if TYPE_CHECKING:
    from prometheus_client import Counter

    from agent.telemetry.metrics import Metrics

REASONS: Final = 20
"""Of an agent that is not ready; …"""
CHARS: Final = 500
"""… each cut to so many characters."""
COUNTED: Final = ("records_in", "bytes_in", "bytes_out")


class ToldFigures(NamedTuple):
    """Counters since its start, by name of COUNTED, and why it is not ready (empty: it is)."""

    agent: str
    version: str
    counts: dict[str, float]
    reasons: tuple[str, ...] = ()

    def encoded(self) -> bytes:
        """For the wire."""
        return json.dumps(self._asdict()).encode()


def decoded(data: bytes) -> ToldFigures:
    """Inverse of `encoded`. Raises ValueError for what is none."""
    try:
        told = json.loads(data)
        counts = {name: float(told["counts"].get(name, 0.0)) for name in COUNTED}
        reasons = tuple(str(each)[:CHARS] for each in list(told.get("reasons", ()))[:REASONS])
        return ToldFigures(str(told["agent"])[:CHARS], str(told["version"])[:CHARS], counts, reasons)
    except (AttributeError, KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"no figures of an agent: {error!r}") from None


def told_now(agent: str, metrics: Metrics, reasons: Sequence[str]) -> ToldFigures:
    """This agent's own."""
    counters = (metrics.produce_records, metrics.produce_bytes, metrics.fetch_bytes)
    counts = {name: count(each) for name, each in zip(COUNTED, counters, strict=True)}
    return ToldFigures(agent, VERSION, counts, tuple(each[:CHARS] for each in reasons[:REASONS]))


def count(counter: Counter) -> float:
    """A counter's value; of one without labels."""
    return float(next(iter(counter.collect())).samples[0].value)
