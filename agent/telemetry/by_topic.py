"""A metric by topic that stays small: so many topics are named, and none that is gone.

Topics come and go by the thousand, and a label stays for the life of the process unless it is removed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from prometheus_client import Counter, Gauge

_M = TypeVar("_M", Counter, Gauge)

TOPICS_MAX = 200  # topics that one metric names; what comes of others is counted together
OTHERS = "(others)"  # as the name of those; no topic can be called that


class ByTopic(Generic[_M]):
    """Whom `metric`, whose first label is the topic, names."""

    def __init__(self, metric: _M) -> None:
        self._metric: _M = metric
        self._named: dict[str, set[tuple[str, ...]]] = {}  # topic → its values of all labels

    def labels(self, topic: str, *more: str) -> _M:
        """Where to note something of a topic; `more`: the metric's other labels."""
        named = self._named.get(topic)
        if named is None:
            if len(self._named) >= TOPICS_MAX:
                return self._metric.labels(OTHERS, *more)
            named = self._named[topic] = set()
        named.add((topic, *more))
        return self._metric.labels(topic, *more)

    def keep(self, wanted: Callable[[str], bool]) -> None:
        """Name no topic any more that is not wanted; one that comes again counts from 0."""
        for topic in [each for each in self._named if not wanted(each)]:
            for values in self._named.pop(topic):
                self._metric.remove(*values)
