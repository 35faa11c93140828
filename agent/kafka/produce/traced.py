"""Where the time of a Produce went, and whose traces its records belong to (agent/telemetry/tracing.py)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from agent.kafka.produce.buffer import Flush, Offered, Pending, Request
from agent.telemetry.tracing import LINKS_MAX, Link, Trace, parsed
from coordination.state.types import Partition
from objectstore.batch import CorruptBatch, records
from objectstore.naming import chunk_key

TOPICS_MAX = 8  # that a trace names
LINKED_BYTES_MAX = 65_536
"""Larger batches are not opened for their first record's headers: traces are made on the event loop."""


def note(trace: Trace, partitions: Sequence[Partition], offered: Sequence[Offered]) -> None:
    """Of which topics it is, and where its links can be found once the trace is kept."""
    trace.attributes["messaging.destination.name"] = list(
        dict.fromkeys(each.topic.name for each in partitions)
    )[:TOPICS_MAX]
    trace.attributes["messaging.batch.message_count"] = sum(each.header.record_count for each in offered)
    trace.attributes["floe.record_bytes"] = sum(len(each.data) for each in offered)
    trace.links = partial(links_of, offered[:LINKS_MAX])


def links_of(offered: Sequence[Offered]) -> list[Link]:
    """The spans that the first records of the batches name in their header `traceparent`."""
    found: dict[tuple[int, int], Link] = {}
    for each in offered:
        link = _link(each) if len(each.data) <= LINKED_BYTES_MAX else None
        if link is not None:
            found[link.trace_id, link.span_id] = link
    return list(found.values())


def _link(offered: Offered) -> Link | None:
    try:
        first = next(records(offered.data, LINKED_BYTES_MAX * 16), None)
    except CorruptBatch:
        return None
    for name, value in first.headers if first is not None else ():
        if name == "traceparent" and value is not None:
            return parsed(bytes(value))
    return None


def requests_of(taken: Sequence[Pending]) -> list[Request]:
    """The requests that are traced, each once."""
    return list({id(each.request): each.request for each in taken if each.request.trace is not None}.values())


def tell(flush: Flush, now: float) -> None:
    """Tell the requests of a flush that is decided, or given up, where their time went."""
    for request in flush.traced:
        trace = request.trace
        assert trace is not None, "only those are remembered"
        if not trace.steps:  # of a request in several chunks only once
            trace.step("admit", trace.start, request.arrived)
        trace.step("buffer", request.arrived, flush.started)
        chunk, size = chunk_key(flush.chunk), flush.encoded.size
        stored = flush.stored_at or now
        trace.step("put", flush.started, stored, {"floe.chunk": chunk, "floe.chunk_bytes": size})
        if flush.stamps:
            sent, answered = flush.stamps[0], min(flush.stamps[-1], now) if flush.stamps[1:] else now
            trace.step("order", stored, sent)
            trace.step("append", sent, answered)
            if answered < now:  # else it was seen applied before its append was answered
                trace.step("apply", answered, now)
        trace.answering = now
    flush.traced = []
