"""Cost of redaction: batches of 1 kB records of which two fields are marked, by MB of a core's second."""

from __future__ import annotations

import random
from collections.abc import Iterable

from agent.kafka.fetch import redacted
from coordination.state.types import Span
from objectstore.batch import DECODED_BYTES_MAX, NewRecord, build
from objectstore.compression import Compression
from schema import descriptors
from schema.compiler import compile_protos
from schema.redaction.marks import Action, Marks
from schema.redaction.messages import redactor
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
BATCHES, BATCH_RECORDS, TEXT_CHARS = 8, 500, 930


def batches(compression: Compression) -> list[bytes]:
    """Records of 1 kB."""
    row = descriptors.load(compile_protos({"row.proto": SOURCE}), "Row").message_class
    draw = random.Random(1)
    values = [
        row(
            id=n,
            who=f"who-{n}",
            mail=f"{n}@example.com",
            text=draw.randbytes(TEXT_CHARS // 2).hex(),
            deep={"n": n},
        ).SerializeToString()
        for n in range(BATCHES * BATCH_RECORDS)
    ]
    rows = [NewRecord(1_700_000_000_000, b"k%07d" % n, value) for n, value in enumerate(values)]
    return [
        build(rows[at : at + BATCH_RECORDS], base_offset=at, compression=compression)
        for at in range(0, len(rows), BATCH_RECORDS)
    ]


def figures() -> Iterable[Figure]:
    """What is stored, by codec and by what stands in the place of the fields."""
    kind = descriptors.load(compile_protos({"row.proto": SOURCE}), "Row")
    spans = [Span(0, 0, 1)]
    for codec, action in (
        (Compression.NONE, Action.REMOVE), (Compression.NONE, Action.HASH), (Compression.LZ4, Action.MASK)
    ):  # fmt: skip
        stored = batches(codec)
        plain = sum(map(len, batches(Compression.NONE)))
        judge = redacted._Judge(spans, {(1, None): redactor(kind, Marks(action), b"key")})

        def work(stored: list[bytes] = stored, judge: redacted._Judge = judge) -> None:
            for each in stored:
                redacted._rewritten(judge, memoryview(each), DECODED_BYTES_MAX)

        rate = median_rate(work, plain / 1e6)
        goal = 40 if codec is Compression.NONE else None
        name = f"redaction of two fields of 1 kB records, {action.value}, {codec.name.lower()}"
        yield Figure(name, rate, "MB/s/core", goal=goal)
