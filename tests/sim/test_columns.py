"""The truth of decoded columns is protobuf's, and a table that says something else is found."""

from __future__ import annotations

import io
from random import Random
from typing import Any

import pyarrow.parquet as pq
import pytest
from google.protobuf.unknown_fields import UnknownFieldSet

from coordination.state.levels import BINDING_SPANS
from coordination.state.types import Span
from iceberg import layout as layouts
from iceberg import ledger, writer
from iceberg.layout import Binding, Layout
from objectstore.batch import NewRecord, build
from schema import descriptors
from tests.checker.findings import Finding
from tests.sim import columns
from tests.sim.astray import Astray
from tests.sim.bindings import BAD, Bindings, _Change
from tests.sim.bound_messages import MESSAGES, Message, Written

PAYLOADS = 300
FIRST, SECOND = 0, 4
"""Offsets from which on the first two messages are bound, as schemas 1 and 2; then nothing."""
END = 8


def _read(message: Message, value: bytes) -> dict[int, Any] | None:
    """As google.protobuf reads it; None: it takes a field that the message has for an unknown one."""
    kind = descriptors.load(message.descriptor_set, message.name)
    parsed: Any = kind.message_class.FromString(value)
    known = {each.number for each in message.fields}
    unknown = UnknownFieldSet(parsed)
    if any(unknown[at].field_number in known for at in range(len(unknown))):
        return None
    return {
        each.number: getattr(parsed, each.name)
        for each in message.fields
        if not each.optional or parsed.HasField(each.name)
    }


def test_the_truth_is_what_protobuf_says() -> None:
    random = Random(1)
    mistyped = 0
    for _ in range(PAYLOADS):
        payload, reader = random.choice(MESSAGES).drawn(random), random.choice(MESSAGES)
        value = Written.of(payload).value
        assert value is not None
        assert reader.shown(payload) == _read(reader, value), (reader, payload)
        mistyped += reader.shown(payload) is None
    assert PAYLOADS // 20 < mistyped < PAYLOADS // 2


def test_messages_make_wrong_decoding_visible() -> None:
    """The shortest record is one of each, and something else in each."""
    shown = [each.shown({1: 5}) for each in MESSAGES]
    assert None not in shown
    assert all(one != other for n, one in enumerate(shown) for other in shown[:n])


def _written() -> Bindings:
    """A topic of two schemas, one after the other, then none; plain records, framed ones, and bad ones."""
    known = Bindings(Astray())
    known._remembered_from = 0
    known._changes = {
        3: _Change(FIRST, 1, BINDING_SPANS),
        5: _Change(SECOND, 2, BINDING_SPANS),
        9: _Change(END, 0, BINDING_SPANS),
    }
    known.messages = {1: MESSAGES[0], 2: MESSAGES[1]}
    plain, mistyped = Written.of({1: 5}), Written.of({1: 7, 2: 0.5, 3: 1})
    framed = Written.of({1: 9, 2: "text"}, 1)
    known.written = [plain, mistyped, framed, Written(None)]
    known.written += [plain, framed, Written(BAD[0]), Written.of({1: 3}, 2)]
    known.written += [plain, framed]
    return known


def _layout(known: Bindings, *, flat: bool = False) -> Layout:
    schemas = tuple(Binding(n, each.descriptor_set, each.name) for n, each in known.messages.items())
    return layouts.build(None, layouts.Bindings(schemas, 2, tuple(known.messages)), flat=flat)


def _judged(known: Bindings, spans: list[Span], *, flat: bool = False) -> list[Finding]:
    """The table that a committer writes by these spans."""
    layout = _layout(known, flat=flat)
    batch = build([NewRecord(1, str(n).encode(), each.value) for n, each in enumerate(known.written)])
    file = writer.write_file(layout, 0, [memoryview(batch)], 0, len(known.written), (), spans)
    assert file is not None
    head = {
        "current-schema-id": 0,
        "schemas": [{"schema-id": 0, "fields": layout.fields}],
        "properties": {ledger.COLUMNS_PROPERTY: layout.ids.to_json()},
    }
    return list(columns.judged(head, [pq.ParquetFile(io.BytesIO(file.content))], known))


SPANS = [Span(FIRST, 0, 1), Span(SECOND, 0, 2), Span(END, 0, 0)]


@pytest.mark.parametrize("flat", [False, True])
def test_a_table_whose_rows_are_decoded_by_their_own_schema_is_right(flat: bool) -> None:
    known = _written()
    assert _judged(known, SPANS, flat=flat) == []
    assert known.counts == {
        "row by its binding": 2,
        "row with an error": 2,
        "row by a frame of its binding": 2,
        "row of a tombstone": 1,
        "row by a frame": 1,
        "row bound to nothing": 2,
    }


@pytest.mark.parametrize(
    ("spans", "offsets"),
    [
        # By the second the record at 1 is no error; frames, tombstones and the unparsable stay what they are.
        ([Span(0, 0, 2)], [0, 1, 8, 9]),
        ([Span(0, 0, 1), Span(SECOND + 1, 0, 2), Span(END, 0, 0)], [4]),
        ([Span(0, 0, 1), Span(SECOND, 0, 2)], [8, 9]),
        ([Span(0, 0, 0)], [0, 1, 2, 4, 5, 6, 7]),
    ],
)
def test_a_row_that_is_decoded_by_another_schema_is_found(spans: list[Span], offsets: list[int]) -> None:
    for flat in (False, True):
        findings = _judged(_written(), spans, flat=flat)
        assert {each.anomaly for each in findings} == {"columns-wrong"}
        assert [each.detail.split()[3] for each in findings] == [str(offset) for offset in offsets]


def test_before_bindings_were_remembered_a_row_is_by_one_that_came_later() -> None:
    known = _written()
    known._remembered_from = END
    known._changes = {
        revision: _Change(each.start, each.schema_id, BINDING_SPANS - 1)
        for revision, each in known._changes.items()
    }
    record = known.written[0]
    assert [each.message for each in known.shown_at(1, record)] == [MESSAGES[0], MESSAGES[1], None]
    assert [each.message for each in known.shown_at(SECOND, record)] == [MESSAGES[1], None]
    known._changes[12] = _Change(END + 2, 1, BINDING_SPANS)
    assert [each.message for each in known.shown_at(END + 1, record)] == [None]
    assert [each.message for each in known.shown_at(END + 2, record)] == [MESSAGES[0]]
    assert [each.message for each in known.shown_at(SECOND, record)] == [MESSAGES[1], None]
    assert _judged(known, [Span(0, 0, 2)])[0].detail.startswith("the row at 8 of ")
