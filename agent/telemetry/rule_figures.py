"""Records that break rules of protovalidate: how many, which rules, and the newest, kept or refused.

Topics name as many rules as RULES_MAX each; what comes of others is counted together. Of records a few bytes
may be quoted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agent.telemetry.by_topic import OTHERS, TOPICS_MAX, ByTopic
from agent.telemetry.logs import logger

if TYPE_CHECKING:
    from agent.telemetry.metrics import Metrics
    from coordination.clock import Clock

_log = logger("rules")

NEWEST_MAX = 20  # batches that /status lists
RULES_MAX = 50  # rules of one topic that the metrics name
TEXT_MAX = 500  # characters of what is told of a batch
NAME_MAX = 100  # characters of the client's own name


@dataclass(frozen=True, slots=True)
class Observed:
    """One batch that was kept though it broke rules, or though they could not be evaluated. `at_ms`: Unix ms.

    `records`: how many of its records; 0 where none could be looked at.
    """

    topic: str
    partition: int
    records: int
    message: str
    client_id: str
    host: str
    at_ms: int


@dataclass(frozen=True, slots=True)
class SetAside:
    """Records of a topic that this agent put into its quarantine since it started; `at_ms`: the last ones."""

    topic: str
    records: int
    at_ms: int


class RuleFigures:
    """What the rules of topics found since this agent started."""

    def __init__(self, clock: Clock, metrics: Metrics) -> None:
        self._clock = clock
        self._records = ByTopic(metrics.rules_records)
        self._bad = ByTopic(metrics.rules_bad_records)
        self._broken = ByTopic(metrics.rules_broken)
        self._failed = ByTopic(metrics.rules_failed)
        self._quarantined = ByTopic(metrics.rules_quarantined)
        self._aside: dict[str, SetAside] = {}
        self._rules: dict[str, set[str]] = {}
        self._newest: deque[Observed] = deque(maxlen=NEWEST_MAX)

    @property
    def newest(self) -> list[Observed]:
        """The newest batches that were kept all the same, newest first."""
        return list(reversed(self._newest))

    def count(self, topic: str, records: int, bad: int, broken: Mapping[tuple[str, str], int]) -> None:
        """Rules of a batch were evaluated: of so many records, so many of them bad."""
        self._records.labels(topic).inc(records)
        if bad:
            self._bad.labels(topic).inc(bad)
        for (role, rule), count in broken.items():
            self._broken.labels(topic, role, self._named(topic, rule)).inc(count)

    def failed(self, topic: str) -> None:
        """Rules of a batch could not be evaluated."""
        self._failed.labels(topic).inc()

    def observed(
        self, topic: str, partition: int, records: int, message: str, client_id: str | None, host: str
    ) -> None:
        """A batch was kept that would have been refused."""
        name, at_ms = (client_id or "")[:NAME_MAX], self._clock.now_ms()
        self._newest.append(Observed(topic, partition, records, message[:TEXT_MAX], name, host, at_ms))
        _log.info(
            "records break rules, and are kept",
            topic=topic,
            partition=partition,
            records=records,
            message=message[:TEXT_MAX],
            client_id=name,
            client=host,
        )

    def set_aside(self, topic: str, records: int) -> None:
        """Records of the topic are in its quarantine: they were stored there with the rest of their batch."""
        self._quarantined.labels(topic).inc(records)
        name = topic if topic in self._aside or len(self._aside) < TOPICS_MAX else OTHERS
        before = self._aside.pop(name, None)
        total = records + (before.records if before is not None else 0)
        self._aside[name] = SetAside(name, total, self._clock.now_ms())

    @property
    def quarantined(self) -> list[SetAside]:
        """What was set aside by topic, the newest first."""
        return list(reversed(self._aside.values()))

    def keep(self, wanted: Callable[[str], bool]) -> None:
        """Name no topic any more that is not wanted."""
        for each in (self._records, self._bad, self._broken, self._failed, self._quarantined):
            each.keep(wanted)
        for topic in [each for each in self._aside if each != OTHERS and not wanted(each)]:
            del self._aside[topic]
        for topic in [each for each in self._rules if not wanted(each)]:
            del self._rules[topic]

    def _named(self, topic: str, rule: str) -> str:
        """The rule as the metrics name it."""
        known = self._rules.setdefault(topic, set())
        if rule not in known:
            if len(known) >= RULES_MAX:
                return OTHERS
            known.add(rule)
        return rule
