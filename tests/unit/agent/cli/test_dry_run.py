"""What `floe topic rules` counts: rules by field, whichever item of a list or a map broke them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from agent.cli.rules import Trial, by_message, rows
from tests.unit.schema import samples

BODY = "message M { repeated int32 items = 1 [(buf.validate.field).repeated.items.int32.gt = 0]; }"


def test_items_of_a_list_are_one_field() -> None:
    kind = samples.ruled(BODY)
    trial = Trial(by_message(kind.descriptor_set, kind.name))
    for offset, items in enumerate(([1], [1, -1], [-1, -2, 3])):
        payload = kind.message_class(items=items).SerializeToString()
        record: Any = SimpleNamespace(partition=0, offset=offset, key=None, value=payload, headers=())
        trial.look(record)
    outcome = trial.outcome
    assert (outcome.records, outcome.ruled, outcome.bad) == (3, 3, 2)
    assert [*rows(outcome)] == [("value.items[]", "int32.gt", 3, "0 at 1", "must be greater than 0")]
    (broken,) = outcome.broken.values()
    assert [offset for _, offset, _ in broken.examples] == [1, 2]
