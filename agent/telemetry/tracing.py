"""Traces: where the time of one request, or of one table's commit, went.

What is traced is noted in plain values while it goes on, and judged when it is over: kept is the share that
was chosen when it began (head sampling), and whatever took long (traces.slow_ms), of which nobody
knows before. What is kept waits in a bounded queue for the exporter (exporting.py). Without an endpoint
nothing begins: `current` is None everywhere, which is all that is asked on a request's way.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from types import MappingProxyType, TracebackType
from typing import Literal, NamedTuple

from agent.config.telemetry import TracesConfig
from agent.telemetry.metrics import Metrics
from coordination.clock import Clock

STEPS_MAX = 64  # of one trace; further ones are counted in `left_out`
LINKS_MAX = 16  # traces of clients that one trace names

Kind = Literal["server", "internal"]
Value = str | int | float | Sequence[str]
Attributes = Mapping[str, Value]
NONE: Attributes = MappingProxyType({})
_TRACEPARENT = re.compile(rb"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(?:-.*)?")
"""W3C Trace Context, 3.2: version, trace id, span id, flags; of later versions more may follow."""


class Step(NamedTuple):
    """A part of a trace. Times: the event loop's, seconds; a step without a length is an event."""

    name: str
    start: float
    end: float
    attributes: Attributes


class Link(NamedTuple):
    """A client's span, by W3C's ids."""

    trace_id: int
    span_id: int
    sampled: bool


def parsed(text: bytes) -> Link | None:
    """A traceparent; None where it is none."""
    match = _TRACEPARENT.fullmatch(text)
    if match is None or match[1] == b"ff" or (match[1] == b"00" and len(text) != 55):
        return None
    link = Link(int(match[2], 16), int(match[3], 16), bool(int(match[4], 16) & 1))
    return link if link.trace_id and link.span_id else None


class Trace:
    """One request or commit. `start`, `end`: the event loop's time, seconds; `end` is 0 while it goes on.

    `waited_s`: how long it waited on purpose (a poll for records), which makes nothing slow. `at_ms`: when it
    began, Unix ms. `links`: asked for once it is known that the trace is kept.
    """

    __slots__ = (
        "answering", "at_ms", "attributes", "end", "error", "kind", "left_out", "links", "name", "sampled",
        "start", "steps", "waited_s",
    )  # fmt: skip

    def __init__(self, name: str, kind: Kind, start: float, at_ms: int, sampled: bool) -> None:
        self.name, self.kind, self.start, self.at_ms, self.sampled = name, kind, start, at_ms, sampled
        self.end = self.waited_s = self.answering = 0.0
        self.error = ""
        self.attributes: dict[str, Value] = {}
        self.steps: list[Step] = []
        self.left_out = 0
        self.links: Callable[[], Sequence[Link]] = tuple

    def step(self, name: str, start: float, end: float, attributes: Attributes = NONE) -> None:
        """Note a part. Nothing where the trace is over."""
        if self.end:
            return
        if len(self.steps) < STEPS_MAX:
            self.steps.append(Step(name, start, max(start, end), attributes))
        else:
            self.left_out += 1


current: ContextVar[Trace | None] = ContextVar("trace", default=None)
"""The trace that this task works for; None: of none."""


class step:
    """Note what is done within as a step of the current trace; `waits`: it waits on purpose."""

    __slots__ = ("_attributes", "_name", "_now", "_start", "_trace", "_waits")

    def __init__(
        self, name: str, now: Callable[[], float], *, waits: bool = False, attributes: Attributes = NONE
    ) -> None:
        self._name, self._now, self._waits, self._attributes = name, now, waits, attributes
        self._trace: Trace | None = None
        self._start = 0.0

    def __enter__(self) -> None:
        self._trace = current.get()
        if self._trace is not None:
            self._start = self._now()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        if self._trace is not None:
            now = self._now()
            self._trace.step(self._name, self._start, now, self._attributes)
            self._trace.waited_s += now - self._start if self._waits else 0.0


class Kept(NamedTuple):
    """A trace for the exporter, with what of it had to be asked for at once."""

    trace: Trace
    links: Sequence[Link]


class Traces:
    """What is begun, judged and waits to be sent. `now`: the event loop's time."""

    def __init__(
        self, config: TracesConfig, clock: Clock, metrics: Metrics, now: Callable[[], float]
    ) -> None:
        self.on = bool(config.endpoint)
        self.queue: deque[Kept] = deque()
        self.metrics = metrics
        self._share, self._slow_s = config.share, config.slow_ms / 1000
        self._per_s_max, self._queue_max = config.per_s_max, config.queue_traces_max
        self._clock, self._now = clock, now
        self._second, self._kept = 0, 0  # how many were kept in which second

    def begin(self, name: str, kind: Kind = "internal") -> Trace | None:
        """Begin one; None where it would not be kept however long it takes."""
        if not self.on:
            return None
        sampled = self._share > 0 and self._clock.random() < self._share
        if not sampled and not self._slow_s:
            return None
        return Trace(name, kind, self._now(), self._clock.now_ms(), sampled)

    def end(self, trace: Trace, error: str = "", *, may_be_slow: bool = True) -> None:
        """Judge one that is over. `may_be_slow`: not so for what waits for others by its nature."""
        now = self._now()
        if trace.answering:
            trace.step("answer", trace.answering, now)
        trace.end, trace.error = max(now, trace.start + 1e-9), error
        slow = may_be_slow and bool(self._slow_s) and now - trace.start - trace.waited_s >= self._slow_s
        if trace.sampled or slow:
            self._keep(trace, "slow" if slow else "sampled")

    def _keep(self, trace: Trace, why: str) -> None:
        second = int(trace.end)
        if second != self._second:
            self._second, self._kept = second, 0
        if self._kept >= self._per_s_max:
            self.metrics.traces_lost.labels("rate").inc()
        elif len(self.queue) >= self._queue_max:
            self.metrics.traces_lost.labels("queue").inc()
        else:
            self._kept += 1
            trace.attributes["floe.kept"] = why
            self.queue.append(Kept(trace, trace.links()[:LINKS_MAX]))
            trace.links = tuple  # it may hold records
            self.metrics.traces_kept.labels(why).inc()
