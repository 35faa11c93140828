"""Cost of redaction: batches of 1 kB records of which two fields are marked, by MB of a core's second."""

from __future__ import annotations

import io
import json
import random
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import fastavro

from agent.kafka.fetch import redacted, rewriting
from coordination.state.types import Span
from objectstore.batch import DECODED_BYTES_MAX, NewRecord, build
from objectstore.compression import Compression
from schema import descriptors, framing
from schema.compiler import compile_protos
from schema.redaction import avro as avro_redaction
from schema.redaction import json as json_redaction
from schema.redaction import messages
from schema.redaction.marks import Action, Marks, Redactor
from schema.registry.avro import schema as avro_schema
from schema.registry.json import schema as json_schema
from tests.bench.bench_schema import median_rate
from tests.bench.figure import Figure

SOURCE = b"""
syntax = "proto3";
message Row {
  uint64 id = 1;
  string who = 2 [debug_redact = true];
  string mail = 3 [debug_redact = true];
  string text = 4;
  Deep deep = 5;
}
message Deep { uint64 n = 1; string note = 2; }
"""
PII = {"confluent:tags": ["PII"]}
DEEP = [{"name": "n", "type": "long"}, {"name": "note", "type": "string", "default": ""}]
AVRO = {
    "type": "record",
    "name": "Row",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "who", "type": "string", **PII},
        {"name": "mail", "type": ["null", "string"], **PII},
        {"name": "text", "type": "string"},
        {"name": "deep", "type": {"type": "record", "name": "Deep", "fields": DEEP}},
    ],
}
TEXT = {"type": "string"}
JSON = {
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "who": {**TEXT, **PII},
        "mail": {**TEXT, **PII},
        "text": TEXT,
        "deep": {"type": "object", "properties": {"n": {"type": "integer"}, "note": TEXT}},
    },
}
BATCHES, BATCH_RECORDS, TEXT_CHARS = 8, 500, 930
ID = 7
FRAME = framing.prefix(ID, (0,))[: framing.ID_END]


def rows() -> Iterator[dict[str, Any]]:
    """What records say."""
    draw = random.Random(1)
    for n in range(BATCHES * BATCH_RECORDS):
        text = draw.randbytes(TEXT_CHARS // 2).hex()
        yield {"id": n, "who": f"who-{n}", "mail": f"{n}@example.com", "text": text, "deep": {"n": n}}


def batches(values: Iterable[bytes], compression: Compression) -> list[bytes]:
    """Records of 1 kB."""
    made = [NewRecord(1_700_000_000_000, b"k%07d" % n, value) for n, value in enumerate(values)]
    return [
        build(made[at : at + BATCH_RECORDS], base_offset=at, compression=compression)
        for at in range(0, len(made), BATCH_RECORDS)
    ]


Found = tuple[list[bytes], Callable[[Marks], Redactor | None], Any]


def of_protobuf() -> Found:
    """Records, what redacts them, and how the verdict about them is found."""
    kind = descriptors.load(compile_protos({"row.proto": SOURCE}), "Row")
    values = [kind.message_class(**each).SerializeToString() for each in rows()]
    return values, lambda marks: messages.redactor(kind, marks, b"key"), None


def of_avro() -> Found:
    """Likewise."""
    form, parsed = avro_schema.parse(json.dumps(AVRO), {}).canonical, fastavro.parse_schema(AVRO)
    values = []
    for each in rows():
        made = io.BytesIO()
        fastavro.schemaless_writer(made, parsed, each)
        values.append(FRAME + made.getvalue())
    return values, lambda marks: avro_redaction.redactor(form, {}, marks, b"key"), (ID, ())


def of_json() -> Found:
    """Likewise."""
    form = json_schema.parse(json.dumps(JSON), {}).canonical
    values = [FRAME + json.dumps(each).encode() for each in rows()]
    return values, lambda marks: json_redaction.redactor(form, {}, marks, b"key"), (ID, ())


def figures() -> Iterable[Figure]:
    """What is stored, by the records' type, by codec and by what stands in the place of the fields."""
    remove, plain = (Compression.NONE, Action.REMOVE), Compression.NONE
    for name, of, cases in (
        ("", of_protobuf, (remove, (plain, Action.HASH), (Compression.LZ4, Action.MASK))),
        (" of AVRO", of_avro, (remove, (plain, Action.HASH))),
        (" of JSON", of_json, (remove, (plain, Action.HASH))),
    ):
        values, make, named = of()
        size = sum(map(len, batches(values, plain))) / 1e6
        for codec, action in cases:
            stored, verdict = batches(values, codec), make(Marks(action, frozenset({"PII"})))
            judge = redacted.Judge([Span(0, 0, 1)], {(1, named): verdict})

            def work(stored: list[bytes] = stored, judge: redacted.Judge = judge) -> None:
                for each in stored:
                    rewriting.changed([judge], judge, memoryview(each), DECODED_BYTES_MAX)
                    if (judge.changed, judge.withheld, judge.missing) != (BATCH_RECORDS, 0, set()):
                        raise AssertionError(f"of {BATCH_RECORDS} records {judge.changed} are changed")

            goal = 40 if codec is plain else None
            told = f"redaction of two fields of 1 kB records{name}, {action.value}, {codec.name.lower()}"
            yield Figure(told, median_rate(work, size), "MB/s/core", goal=goal)
