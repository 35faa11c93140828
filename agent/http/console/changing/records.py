"""Records before an offset: deleted, by DeleteRecords."""

from __future__ import annotations

from typing import Final

from agent.http.console.changing.asked import DELETE_RECORDS, TIMEOUT_MS, asker
from agent.http.console.changing.plans import (
    BadFields,
    Errors,
    Field,
    Form,
    Given,
    Plan,
    controls,
    hidden,
    whole,
)
from agent.http.console.changing.topics import after, topic_named
from agent.http.console.markup import many
from agent.http.console.topics import HERE
from agent.http.console.words import number
from agent.http.parts import Parts
from agent.net.wire.generated import delete_records as dr
from coordination.config_types import LONG_MAX
from coordination.state.types import Partition, Topic

PARTITIONS_MAX: Final = 1_000
"""Of one change."""


class RecordsDelete:
    """Of one partition, or of all up to their ends."""

    name, here = "records-delete", HERE
    _FIELDS = (
        Field("partition", "Partition", "Empty: all of them, to their ends."),
        Field("before", "Before offset", "Empty: to the end as the preview shows it."),
    )

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    def form(self, given: Given, errors: Errors) -> Form:
        """Which partition, and up to where."""
        topic = topic_named(self._parts, given)
        fields = many((hidden({"topic": topic.name}), controls(self._FIELDS, given, errors)))
        return Form(f"Delete records of {topic.name}", HERE, fields)

    async def plan(self, given: Given) -> Plan:
        """To the offsets of now: what is written meanwhile stays."""
        parts, topic = self._parts, topic_named(self._parts, given)
        name, wanted = topic.name, _wanted(topic, given)
        targets = {one.index: before for one, before in wanted}

        def made() -> dr.DeleteRecordsRequest:
            rows = [dr.DeleteRecordsPartition(*each) for each in targets.items()]
            return dr.DeleteRecordsRequest([dr.DeleteRecordsTopic(name, rows)], TIMEOUT_MS)

        def look() -> object:
            known = parts.replica.state.topics.get(name)
            starts = () if known is None else [known.partitions[each].log_start for each in targets]
            return known and known.topic_id, starts

        return Plan(
            f"Delete records of {name}",
            given,
            [
                (
                    f"Partition {one.index}, first offset",
                    number(one.log_start),
                    number(max(before, one.log_start)),
                )
                for one, before in wanted
            ],
            look,
            look(),
            asker(parts, self.name, DELETE_RECORDS, made),
            after(name),
            notes=("Nobody brings these records back. Rows of its table go by floe.table.retention.",),
        )


def _wanted(topic: Topic, given: Given) -> list[tuple[Partition, int]]:
    """Each partition with the offset before which its records go. Raises BadFields."""
    bounded = bool(given.get("before", "").strip())
    if not given.get("partition", "").strip():
        if bounded:
            raise BadFields({"partition": "an offset is one of a single partition: say which"})
        if len(topic.partitions) > PARTITIONS_MAX:
            raise BadFields({"partition": f"there are more than {PARTITIONS_MAX:,}: name one"})
        return [(each, each.high_watermark) for each in topic.partitions]
    one = topic.partitions[whole(given, "partition", 0, len(topic.partitions) - 1)]
    if not bounded:
        return [(one, one.high_watermark)]
    before = whole(given, "before", 0, LONG_MAX)
    if not one.log_start <= before <= one.high_watermark:
        told = f"partition {one.index} has the offsets {one.log_start:,} to {one.high_watermark:,}"
        raise BadFields({"before": told})
    return [(one, before)]
