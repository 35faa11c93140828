"""Random histories of bindings: what Floe writes is right by the audit, which decodes without Floe's decoder.

The same histories as test_table_bindings.py, of nested and flat tables. One cell changed at random is seen,
in its row.
"""

from __future__ import annotations

import io
import json
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from iceberg import arrow_types
from iceberg.arrow_types import FIELD_ID
from iceberg.column_ids import VALUE_ID
from iceberg.spark import flat
from iceberg.spark.columns import Judge, TableColumns
from iceberg.spark.schemas import VALUE, Schema, TopicSchemas
from tests.property.test_table_bindings import Topic, played

HISTORIES = 12
ROWS = 160
IDS = range(1 << 20)


def judge_of(topic: Topic) -> Judge:
    """As the audit has it from the table's properties and from the cluster."""
    schemas = [
        Schema(each.schema_id, VALUE, each.root, each.binding.descriptor_set) for each in topic.schemas
    ]
    spans: dict[int, list[tuple[int, int, int]]] = {0: [(0, 0, 0), *topic.spans]}
    return TableColumns(json.dumps(topic.fields), topic.ids).judge(TopicSchemas(schemas, spans))


def as_the_table_is_now(topic: Topic) -> list[dict[str, Any]]:
    """All rows, in the columns that a reader of Iceberg finds by their ids."""
    kinds = {each["name"]: each["type"] for each in flat.whole(topic.fields)}
    found = []
    for content in topic.files:
        table = pq.read_table(io.BytesIO(content))
        given = {each.name: each.type for each in table.schema}
        others = [each for each in table.schema if each.name not in flat.TOP]
        given["value"] = pa.struct([*given["value"], *others])
        for row in table.to_pylist():
            place = {name: row["kafka"][name] for name in ("partition", "offset")}
            row["value"].update({each.name: row[each.name] for each in others})
            messages = {
                name: named(row[name], given[name], kinds[name]) for name in ("key", "value", "headers")
            }
            found.append(place | messages)
    return found


def named(value: Any, given: pa.DataType, wanted: Any) -> Any:
    """A value of a file as the column of now."""
    if value is None or isinstance(wanted, str):
        return value
    if wanted["type"] == "struct":
        by_id = {int(each.metadata[FIELD_ID]): each for each in given}
        return {
            each["name"]: named(value[by_id[each["id"]].name], by_id[each["id"]].type, each["type"])
            if each["id"] in by_id
            else None
            for each in wanted["fields"]
        }
    if wanted["type"] == "list":
        return [named(each, given.value_type, wanted["element"]) for each in value]
    return [(key, named(each, given.item_type, wanted["value"])) for key, each in value]


def handed(topic: Topic, rows: list[dict[str, Any]]) -> pa.RecordBatch:
    """The rows as Spark hands them over."""
    fields = flat.whole(topic.fields)
    messages = [arrow_types.within(each, IDS) for each in fields if each["name"] != "kafka"]
    kind = pa.schema([pa.field("partition", pa.int32()), pa.field("offset", pa.int64()), *messages])
    return pa.RecordBatch.from_pylist(rows, kind)


def changed(random: Random, row: dict[str, Any], kinds: list[dict[str, Any]]) -> bool:
    """Change one column of the row's value, if it has one that can be; whether it was."""
    value = row["value"]
    columns = [each for each in kinds if each["name"] not in ("__raw__", "__err__")]
    numbers = [each["name"] for each in columns if each["type"] in ("int", "long")]
    texts = [each["name"] for each in columns if each["type"] == "string"]
    if value is None or not numbers + texts:
        return False
    name = random.choice(numbers + texts)
    value[name] = ((value[name] or 0) + 1) % 1_000 if name in numbers else (value[name] or "") + "x"
    return True


@pytest.mark.parametrize("seed", range(HISTORIES))
def test_what_floe_writes_is_right_and_a_changed_cell_is_not(seed: int) -> None:
    topic = played(seed, ROWS)
    judge = judge_of(topic)
    rows = as_the_table_is_now(topic)
    assert len(rows) == topic.end
    wrong = judge.wrong(handed(topic, rows))
    assert [(offset, each) for offset, each in enumerate(wrong) if each] == []
    kinds = next(each for each in flat.whole(topic.fields) if each["id"] == VALUE_ID)["type"]["fields"]
    damaged = {
        at for at in topic.random.sample(range(len(rows)), 20) if changed(topic.random, rows[at], kinds)
    }
    wrong = judge.wrong(handed(topic, rows))
    assert {offset for offset, each in enumerate(wrong) if each} == damaged
