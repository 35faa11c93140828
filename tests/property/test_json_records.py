"""Records of random JSON schemas: jsonschema's verdict at the door, and columns that say what records say.

jsonschema shares nothing with the judge. What the judge says it cannot judge is not compared.
"""

from __future__ import annotations

import json
import random
from typing import Any

from iceberg import json_columns, rows
from iceberg import layout as layouts
from iceberg.layout import Binding, Bindings, Registered
from objectstore import batch
from schema.registry.json.judging import Judge
from schema.registry.json.schema import parse
from tests.property.test_registry_json_compatibility import Side, document, drawn, finished

SEEDS = range(250)
DOCUMENTS = 12
SUBJECT = Binding(1, b"", "", follows=True)


def table(said: Any, payloads: list[bytes]) -> tuple[list[Any], dict[str, Any]]:
    """The values of rows, and the columns with their types."""
    form = parse(json.dumps(said), {}).canonical
    one = Registered((7, None), message=json_columns.name_of(form), schema_type="JSON", form=form)
    layout = layouts.build(None, Bindings((SUBJECT,), 1, (1,), (one,), frozenset({one.framed})))
    assert not layout.problems
    content = batch.build([batch.NewRecord(0, None, b"\0\0\0\0\7" + each) for each in payloads])
    found: list[Any] = []
    for each in rows.arrow_batches(layout, 0, [memoryview(content)], 0, len(payloads)):
        each.validate(full=True)
        found += each.column("value").to_pylist()
    inside = layout.fields[2]["type"]["fields"]
    return found, {each["name"]: each["type"] for each in inside if not each["name"].startswith("__")}


def says(kind: Any, cell: Any, value: Any) -> bool:
    """Whether a cell is what the record has there; what is inside a struct, as far as there are columns."""
    if value is None or cell is None:
        return value is None and cell is None
    if isinstance(kind, str):
        return (
            bool(json.loads(cell) == value)
            if kind == "string" and not isinstance(value, str)
            else (cell == value or (kind == "string" and cell == json.dumps(value)))
        )
    if kind["type"] == "struct":
        return all(says(each["type"], cell[each["name"]], value.get(each["name"])) for each in kind["fields"])
    if kind["type"] == "list":
        pairs = zip(cell, value, strict=True)
        return all(says(kind["element"], *each) for each in pairs)
    return dict(cell).keys() == value.keys() and all(
        says(kind["value"], held, value[key]) for key, held in cell
    )


def test_the_verdict_is_jsonschema_s_and_columns_say_what_records_say() -> None:
    good = bad = left = columns = 0
    for seed in SEEDS:
        draw, new = random.Random(seed), seed % 2 == 0
        schema = finished(draw, drawn(draw, new), new)
        side = Side(schema, new)
        if side.loaded is None:
            continue
        judge = Judge(side.loaded.root)
        made = [document(draw, schema, schema) for _ in range(DOCUMENTS)]
        payloads = [json.dumps(each).encode() for each in made]
        found, named = table(side.told, payloads)
        columns += len(named) > 1
        for value, payload, row in zip(made, payloads, found, strict=True):
            why = judge.problem(payload)
            assert row["__err__"] == why, (seed, value)
            if why is not None and "cannot be judged" in why:
                left += 1
                continue
            accepted = side.accepts(value)
            assert accepted == (why is None), (seed, value, why, json.dumps(side.told))
            good, bad = good + accepted, bad + (not accepted)
            if accepted:
                whole = {"value": value} if set(named) == {"value"} else value
                whole = whole if isinstance(whole, dict) else {}
                assert all(says(kind, row[name], whole.get(name)) for name, kind in named.items()), (
                    seed,
                    value,
                )
    assert good > 500
    assert bad > 500
    assert columns > 10
    assert left < 500
