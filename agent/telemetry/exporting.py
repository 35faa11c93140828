"""Traces on their way to a collector, by OpenTelemetry's exporter (OTLP over HTTP, protobuf).

One thread sends, in batches; whatever the collector does, nothing but that thread waits for it. What could
not be sent within traces.timeout_ms is lost and counted. opentelemetry is imported when an exporter
is made, and only then: agents without an endpoint neither need nor load it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from agent.config.errors import ConfigError
from agent.config.telemetry import TracesConfig
from agent.telemetry.episodes import Episodes
from agent.telemetry.logs import logger
from agent.telemetry.tracing import Kept, Step, Trace, Traces
from coordination.clock import Clock
from objectstore import tasks

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.trace.export import SpanExporter
    from opentelemetry.trace import SpanContext

_log = logger("traces")

BATCH_MAX = 128  # traces of one request to the collector
STOP_S = 2.0  # for the last ones when the agent ends
SCOPE = "floe"
MISSING = (
    "traces.endpoint: opentelemetry is not installed: pip install 'floe-streaming[traces]', "
    "or leave the setting out"
)


class Exporting:
    """Sends what is kept. `about`: what every span says of this agent (OpenTelemetry's resource)."""

    def __init__(self, config: TracesConfig, traces: Traces, clock: Clock, about: Mapping[str, str]) -> None:
        """Raises ConfigError when opentelemetry is not installed, or the headers are none."""
        self._config, self._traces, self._clock, self._about = config, traces, clock, about
        self._exporter = _exporter(config)
        self._thread = ThreadPoolExecutor(1, "traces")
        self._task: asyncio.Task[None] | None = None
        self._refused = Episodes(
            _log,
            asyncio.get_running_loop().time,
            begins="traces are not taken, and are lost",
            ends="traces are taken again",
        )

    def start(self) -> None:
        """Begin to send."""
        self._task = tasks.kept(self._run, "traces")

    async def stop(self) -> None:
        """Send what is left, within STOP_S."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            with suppress(TimeoutError):
                async with asyncio.timeout(STOP_S):
                    await self._send_all()
        self._exporter.shutdown()  # ends the waiting between two tries
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._config.interval_ms / 1000)
            await self._send_all()

    async def _send_all(self) -> None:
        queue, metrics = self._traces.queue, self._traces.metrics
        while queue:
            batch = [queue.popleft() for _ in range(min(len(queue), BATCH_MAX))]
            sent = await asyncio.get_running_loop().run_in_executor(self._thread, self._send, batch)
            if sent:
                self._refused.over("")
            else:
                metrics.traces_lost.labels("exporter").inc(len(batch))
                self._refused.met("", endpoint=self._config.endpoint, traces=len(batch))

    def _send(self, batch: Sequence[Kept]) -> bool:
        """Whether the collector took it. In the thread."""
        from opentelemetry.sdk.trace.export import SpanExportResult

        spans = [span for kept in batch for span in _spans(kept, self._clock, self._about)]
        return self._exporter.export(spans) is SpanExportResult.SUCCESS


def _exporter(config: TracesConfig) -> SpanExporter:
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    except ImportError:
        raise ConfigError(MISSING) from None
    return OTLPSpanExporter(
        endpoint=config.endpoint,
        headers=headers_of(config),
        timeout=config.timeout_ms / 1000,
        certificate_file=config.ca_file or None,
    )


def headers_of(config: TracesConfig) -> dict[str, str]:
    """`name=value` pairs parted by commas. Raises ConfigError, which does not quote them."""
    found: dict[str, str] = {}
    for pair in filter(None, map(str.strip, config.headers.get_secret_value().split(","))):
        name, equals, value = pair.partition("=")
        if not equals or not name.strip():
            raise ConfigError("traces.headers: not of the form name=value,name=value")
        found[name.strip().lower()] = value.strip()
    return found


def _spans(kept: Kept, clock: Clock, about: Mapping[str, str]) -> list[ReadableSpan]:
    """A trace as OpenTelemetry's spans: the whole, and one for each step. What has no length is an event."""
    from opentelemetry import trace as ot
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import Event, ReadableSpan
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope
    from opentelemetry.trace.status import Status, StatusCode

    trace = kept.trace
    ours: dict[str, Any] = {
        "resource": Resource(dict(about)),
        "instrumentation_scope": InstrumentationScope(SCOPE),
    }
    root = _context(clock.random_bits(128) or 1, clock)
    links = [
        ot.Link(ot.SpanContext(each.trace_id, each.span_id, True, ot.TraceFlags(int(each.sampled))))
        for each in kept.links
    ]
    events = [
        Event(each.name, dict(each.attributes), timestamp=_ns(trace, each.start))
        for each in trace.steps
        if each.end <= each.start
    ]
    if trace.left_out:
        trace.attributes["floe.steps_left_out"] = trace.left_out
    whole = ReadableSpan(
        trace.name,
        root,
        attributes=trace.attributes,
        events=events,
        links=links,
        kind=ot.SpanKind.SERVER if trace.kind == "server" else ot.SpanKind.INTERNAL,
        status=Status(StatusCode.ERROR, trace.error) if trace.error else Status(),
        start_time=_ns(trace, trace.start),
        end_time=_ns(trace, trace.end),
        **ours,
    )
    parts = [_part(trace, each, root, clock, ours) for each in trace.steps if each.end > each.start]
    return [whole, *parts]


def _part(trace: Trace, step: Step, root: SpanContext, clock: Clock, ours: Mapping[str, Any]) -> ReadableSpan:
    from opentelemetry.sdk.trace import ReadableSpan

    return ReadableSpan(
        step.name,
        _context(root.trace_id, clock),
        parent=root,
        attributes=dict(step.attributes),
        start_time=_ns(trace, step.start),
        end_time=_ns(trace, step.end),
        **ours,
    )


def _context(trace_id: int, clock: Clock) -> SpanContext:
    from opentelemetry.trace import SpanContext, TraceFlags

    return SpanContext(trace_id, clock.random_bits(64) or 1, False, TraceFlags(TraceFlags.SAMPLED))


def _ns(trace: Trace, at: float) -> int:
    """Unix ns of a time of the event loop's clock."""
    return trace.at_ms * 1_000_000 + int((at - trace.start) * 1e9)
