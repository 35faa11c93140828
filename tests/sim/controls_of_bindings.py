"""Rule 19 broken: a chunk does not say which binding judged its records; a partition remembers another.

And the rule of tables that rests on it (docs/tables.md): a row is decoded by its own schema.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, cast

from agent.kafka.produce import driver
from agent.kafka.produce.buffer import commit_command
from coordination.state import chunks
from coordination.state.data import FEATURE_LEVEL_MAX
from coordination.state.spans import begin as begin_span
from coordination.state.types import UNBOUND, Partition, Span, Topic
from iceberg import rows
from iceberg.layout import Messages, Part
from iceberg.ledger import Range
from iceberg.topic_layouts import TopicLayouts
from schema.framing import Frame
from tests.sim.controls import Control
from tests.sim.patching import patched
from tests.sim.plan import Plan

JUDGED_FOR_EVER = (1 << 63) - 1


def _bound_meanwhile() -> tuple[tuple[Any, str, Any], ...]:
    """An agent does not say by which binding it judged, so what was bound meanwhile refuses nothing."""

    def unnamed(flush: Any) -> Any:
        command = commit_command(flush)
        command.commit_chunk.judged_revision = JUDGED_FOR_EVER
        return command

    return ((driver, "commit_command", unnamed),)


def _spans_lag() -> tuple[tuple[Any, str, Any], ...]:
    """The first record behind a change of the binding is noted as of the binding before it."""

    def begin(partition: Partition, offset: int) -> None:
        before = partition.spans[-1][1:] if partition.spans else UNBOUND
        begin_span(partition, offset)
        following = partition.spans[-1]._replace(first_offset=offset + 1)
        partition.spans = (*partition.spans[:-1], Span(offset, *before), following)

    return ((chunks, "begin_span", begin),)


def _decoded_by_now() -> tuple[tuple[Any, str, Any], ...]:
    """A committer decodes by what is bound when it commits, whatever the partition remembers."""

    def spans(self: TopicLayouts, topic: Topic, ranges: Iterable[Range]) -> list[list[Span]]:
        del self
        return [[Span(start, *topic.binding)] for _, start, _ in ranges]

    return ((TopicLayouts, "spans", spans),)


class _AllOf:
    """Keys or values, all of one schema, whatever frames say."""

    def __init__(self, messages: Messages, bound: int) -> None:
        self.parts = messages.parts
        self._bound = bound

    def part(self, frame: Frame) -> Part:
        """See iceberg.layout.Messages."""
        del frame
        return self.parts[self._bound]


def _frames_ignored() -> tuple[tuple[Any, str, Any], ...]:
    """A framed record is decoded by what was bound at its offset."""
    real = rows._by_schema

    def by_schema(messages: Messages, bound: int, *rest: Any) -> Any:
        return real(cast(Messages, _AllOf(messages, bound)), bound, *rest)

    return ((rows, "_by_schema", by_schema),)


def _judged_for_ever() -> tuple[tuple[Any, str, Any], ...]:
    """A batch goes into a chunk with any that wait there, by whatever binding those were judged."""
    return ((driver.ProduceDriver, "judged_since", lambda *_: True),)


def _newest(plan: Plan) -> bool:
    return plan.level == FEATURE_LEVEL_MAX


def _with_a_binder(plan: Plan) -> Plan:
    return replace(plan, binder=True)


def _with_beginners(plan: Plan) -> Plan:
    """The log is far away, and nobody else keeps it busy."""
    alone = replace(plan, transactors=(), relay="", members=0, modern=0, keepers=False, upsert=False)
    alone = replace(alone, pipeliners=0, operator=False, mortal=False, hurt=False, registrar=False, faults=())
    return replace(alone, gated=False, beginners=True, log_s=(0.03, 0.09), store_s=(0.0, 0.005))


BINDINGS = (
    Control(
        "bound-meanwhile",
        "19: a record is judged by the binding at its place",
        frozenset({"binding-broken"}),
        lambda: patched(*_bound_meanwhile()),
        _newest,
        _with_a_binder,
    ),
    Control(
        "spans-lag",
        "19: of each record it is known which schema judged it",
        frozenset({"span-wrong"}),
        lambda: patched(*_spans_lag()),
        _newest,
        _with_a_binder,
    ),
    Control(
        "decoded-by-now",
        "tables: a row is decoded by what was bound when it was appended",
        frozenset({"columns-wrong"}),
        lambda: patched(*_decoded_by_now()),
        _newest,
        _with_a_binder,
    ),
    Control(
        "frames-ignored",
        "tables: a framed row is decoded by the schema that its frame names",
        frozenset({"columns-wrong"}),
        lambda: patched(*_frames_ignored()),
        _newest,
        _with_a_binder,
    ),
    Control(
        "overtaken-while-bound",
        "a later batch never overtakes one that its client sends again",
        frozenset({"sequence-lost", "duplicate"}),
        lambda: patched(*_judged_for_ever()),
        _newest,
        _with_beginners,
    ),
)
