"""The layouts of one topic's table: by which schemas its records were judged, and which of them rows need."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from coordination.commands import BindSchema
from coordination.state.schemas import spans_between
from coordination.state.types import Span, Topic
from coordination.topic_configs import effective
from iceberg import flat, ledger, metadata, partitioning, sorting
from iceberg import layout as layouts
from iceberg.head import Head, hoists
from iceberg.layout import Binding, Bindings, Layout
from iceberg.ledger import Range
from iceberg.partitioning import SpecError
from iceberg.sorting import OrderError
from schema.validator import BoundSchema

if TYPE_CHECKING:
    from coordination.replica import Replica

FRAMED_KEPT = 64
"""Schemas that frames named, for which layouts have decoders from one commit to the next."""

_logger = logging.getLogger("floe.iceberg.topic_layouts")


class TopicLayouts:
    """Builds them when they are needed, and keeps the last. One committer uses it."""

    def __init__(self, replica: Replica, *, raw_bytes: bool) -> None:
        self._replica = replica
        self._raw_bytes = raw_bytes
        self._framed: frozenset[int] = frozenset()  # schemas that frames of this topic's records named
        self._topic_id = b""
        self._last: tuple[tuple[object, ...], Layout] | None = None

    def begin(self) -> None:
        """A commit is about to be planned: forget what frames named when it is much; rows say it again."""
        if len(self._framed) > FRAMED_KEPT:
            self._framed = frozenset()

    def want(self, schema_ids: Iterable[int]) -> None:
        """Frames name these schemas: layouts have their columns from now on."""
        self._framed |= frozenset(schema_ids)

    def spans(self, topic: Topic, ranges: Iterable[Range]) -> list[list[Span]]:
        """Of each range by which schemas its records were judged. No range may begin below its log start."""
        state = self._replica.state
        return [spans_between(state, topic.partitions[part], start, end) for part, start, end in ranges]

    def build(self, topic: Topic, head: Head | None, spans: Iterable[Sequence[Span]] = ()) -> Layout:
        """The table's layout under the topic's bindings of this moment, for records of these spans."""
        if topic.topic_id != self._topic_id:
            self._topic_id, self._framed, self._last = topic.topic_id, frozenset(), None
        bound = {topic.key_schema_id or 0, topic.value_schema_id or 0}
        cluster = self._replica.state.cluster_configs
        spec = effective("floe.table.partition", topic.configs, cluster)
        order = effective("floe.table.sort", topic.configs, cluster)
        hoists = self._is_flat(topic, head)
        used = bound.union(self._framed, *(each[1:] for one in spans for each in one)) - {0}
        basis = (
            topic.key_schema_id,
            topic.value_schema_id,
            len(topic.schema_ids),
            used,
            head.metadata["current-schema-id"] if head is not None else None,
            head.metadata["default-spec-id"] if head is not None else None,
            head.metadata["default-sort-order-id"] if head is not None else None,
            spec,
            order,
            hoists,
        )
        if self._last is None or self._last[0] != basis:
            known = self._replica.state.schemas
            built = layouts.build(
                bindings(topic, known, BindSchema.KEY, topic.key_schema_id, used),
                bindings(topic, known, BindSchema.VALUE, topic.value_schema_id, used),
                ids=head.metadata["properties"].get(ledger.COLUMNS_PROPERTY, "") if head is not None else "",
                previous=metadata.current_fields(head.metadata) if head is not None else (),
                raw_bytes=self._raw_bytes,
                flat=hoists,
            )
            built = _sorted(_partitioned(built, spec, head), order, head)
            for problem in built.problems:
                _logger.warning("topic %s: %s", topic.name, problem)
            self._last = (basis, built)
        return self._last[1]

    def refusal(self, topic: Topic, head: Head) -> str:
        """Why the table is not laid out as its config says (`floe.table.layout`); empty where it is."""
        wanted = hoists(topic, self._replica.state.cluster_configs)
        return flat.refusal(wanted, self._is_flat(topic, head))

    def _is_flat(self, topic: Topic, head: Head | None) -> bool:
        wanted = hoists(topic, self._replica.state.cluster_configs)
        if head is None or not flat.is_settled(head.metadata, metadata.current_fields(head.metadata)):
            return wanted
        return flat.is_flat(head.metadata)


def _partitioned(built: Layout, wanted: str, head: Head | None) -> Layout:
    """The layout partitioned as the config says; as the table is, with the reason, where it cannot be."""
    try:
        return built.partitioned(partitioning.resolved(wanted, built.fields))
    except SpecError as error:
        now = partitioning.current(head.metadata) if head is not None else ()
        return built.partitioned(now, (f"{error}; rows go on into the table as it is partitioned",))


def _sorted(built: Layout, wanted: str, head: Head | None) -> Layout:
    """The layout sorted as the config says; as the table is, with the reason, where it cannot be."""
    try:
        return built.sorted_by(sorting.resolved(wanted, built.fields))
    except OrderError as error:
        now = sorting.current(head.metadata) if head is not None else ()
        return built.sorted_by(now, (f"{error}; rows go on into the table as it is sorted",))


def bindings(
    topic: Topic, known: Mapping[int, BoundSchema], role: int, current: int | None, used: Iterable[int]
) -> Bindings:
    """The schemas of a role that rows may have, of those that the topic ever had."""
    own = [schema_id for schema_id in topic.schema_ids if known[schema_id].role == role]
    wanted = set(used)
    chosen = tuple(Binding.of(known[schema_id]) for schema_id in own if schema_id in wanted)
    return Bindings(chosen, current or 0, tuple(own))
