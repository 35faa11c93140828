"""Records that were refused: which topic would not take them, why, and who sent them.

A producer is told, but its application may keep that to itself. So a refusal is counted by topic and reason,
told in the log (the first of a topic and reason at once, then at most one line in TOLD_AGAIN_S, which says
how many there were), and the newest are listed by /status. Of records a few bytes may be quoted.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agent.telemetry.by_topic import ByTopic
from agent.telemetry.logs import logger

if TYPE_CHECKING:
    from agent.telemetry.metrics import Metrics
    from coordination.clock import Clock

_log = logger("produce")

NEWEST_MAX = 20  # refusals that /status lists
TOLD_AGAIN_S = 60.0
# topics and reasons whose last log line is remembered; the longest unmet is forgotten first
KINDS_MAX = 1_000
TEXT_MAX = 500  # characters of the message
NAME_MAX = 100  # characters of the client's own name


@dataclass(frozen=True, slots=True)
class Refusal:
    """One batch that was refused whole. `at_ms`: Unix ms. `code`: the name of Kafka's error code."""

    topic: str
    partition: int
    code: str
    message: str
    client_id: str
    host: str
    at_ms: int


@dataclass(slots=True)
class _Kind:
    """Refusals of one topic for one reason. `told_s`: the clock's monotonic seconds of the last line."""

    told_s: float | None = None
    untold: int = 0


class Refusals:
    """What this agent refused since it started."""

    def __init__(self, clock: Clock, metrics: Metrics) -> None:
        self._clock = clock
        self.topics = ByTopic(metrics.produce_rejected)
        self._newest: deque[Refusal] = deque(maxlen=NEWEST_MAX)
        self._kinds: OrderedDict[tuple[str, str], _Kind] = OrderedDict()

    @property
    def newest(self) -> list[Refusal]:
        """The newest, newest first."""
        return list(reversed(self._newest))

    def note(
        self, topic: str, partition: int, code: str, message: str | None, client_id: str | None, host: str
    ) -> None:
        """Count a batch that was refused; say so if that was not said of late."""
        self.topics.labels(topic, code).inc()
        text, name = (message or "")[:TEXT_MAX], (client_id or "")[:NAME_MAX]
        refusal = Refusal(topic, partition, code, text, name, host, self._clock.now_ms())
        self._newest.append(refusal)
        self._tell(refusal)

    def _tell(self, refusal: Refusal) -> None:
        key, now_s = (refusal.topic, refusal.code), self._clock.monotonic()
        kind = self._kinds.setdefault(key, _Kind())
        self._kinds.move_to_end(key)
        if len(self._kinds) > KINDS_MAX:
            self._kinds.popitem(last=False)
        kind.untold += 1
        if kind.told_s is not None and now_s - kind.told_s < TOLD_AGAIN_S:
            return
        count, kind.untold, kind.told_s = kind.untold, 0, now_s
        _log.warning(
            "records are refused",
            topic=refusal.topic,
            partition=refusal.partition,
            reason=refusal.code,
            message=refusal.message,
            client_id=refusal.client_id,
            client=refusal.host,
            batches=count,
        )
