"""Cost of frames on reading: batches of 1 kB records that get or lose one, by MB of a core's second."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from agent.kafka.fetch import frames, rewriting
from coordination.state.state import State
from coordination.state.types import Schema, Span
from objectstore.batch import DECODED_BYTES_MAX
from objectstore.compression import Compression
from schema import framing
from schema.compiler import compile_protos
from schema.descriptors import load
from tests.bench.bench_redaction import SOURCE, batches, of_protobuf
from tests.bench.bench_schema import median_rate
from tests.bench.figure import Figure

OWN, REGISTERED = 1, 2


async def _told(_missing: set[int]) -> Mapping[int, bytes | str]:
    raise AssertionError("all is known")


def figures() -> Iterable[Figure]:
    """Both directions, and batches that are as they are wanted already."""
    files = compile_protos({"row.proto": SOURCE})
    values, _, _ = of_protobuf()
    state = State()
    state.schemas[OWN] = Schema(OWN, "t", 0, 1, files, "Row", 0, False)
    prefix = framing.prefix(REGISTERED, load(files, "Row").indexes)
    spans = [Span(0, 0, OWN)]
    put = frames.Enveloped(spans, state, _told, _nothing)
    put._targets = {OWN: prefix}
    take = frames.Bare(spans, state, unbound=False, count=_nothing)
    for codec in (Compression.NONE, Compression.LZ4):
        bare = batches(values, codec)
        plain = sum(map(len, batches(values, Compression.NONE)))
        framed = [bytes(rewriting.changed([put], put, memoryview(each), DECODED_BYTES_MAX)) for each in bare]
        for what, judge, stored in (
            ("bare records framed", put, bare),
            ("framed records bared", take, framed),
            ("bare records read bare", take, bare),
        ):

            def work(stored: list[bytes] = stored, judge: rewriting.Judge = judge) -> None:
                for each in stored:
                    rewriting.changed([judge], judge, memoryview(each), DECODED_BYTES_MAX)

            rate = median_rate(work, plain / 1e6)
            yield Figure(f"frames, {what}, 1 kB records, {codec.name.lower()}", rate, "MB/s/core")


def _nothing(_changed: int, _unframed: int) -> None:
    """Nobody counts."""
