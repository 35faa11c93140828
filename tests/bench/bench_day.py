"""A day of writes on a virtual clock: what the replicated state takes when merging and collection keep up.

The real apply, the real merging job's choice and plan, real manifests and real swap commands; only record
bytes are not there. Every flush touches some of the partitions, some of them always. Memory is the growth of
this process over an empty state; manifests, which belong in the bucket, are in it too.

`python -m tests.bench.bench_day [partitions in a flush]` writes docs/state-of-a-day.svg as well.
"""

from __future__ import annotations

import json
import math
import random
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from agent.background.rewriting.merging import planner
from agent.background.rewriting.merging.job import Merging
from agent.background.rewriting.merging.merge import SWAP_ROWS_MAX
from agent.background.rewriting.merging.planner import RANGE, Due, MergeRules
from agent.background.rewriting.swap import Swap
from agent.config import MergingConfig
from agent.config.limits import CollectionConfig
from agent.telemetry.metrics import Metrics
from coordination.commands import ChunkId as ChunkIdMessage
from coordination.commands import (
    CommitChunk,
    CreateTopic,
    Entry,
    ForgetChunks,
    ForgetSegments,
    RegisterAgent,
    command,
)
from coordination.log import LogEntry
from coordination.snapshot import encode
from coordination.state import Done, State
from objectstore.manifest import Manifest
from objectstore.naming import ManifestId, SegmentId
from objectstore.removal import DELETE_KEYS_MAX
from objectstore.segment import HEADER_BYTES, SegmentInfo
from tests.bench.figure import Figure

INCARNATION = 0x1234_5678_9ABC
BEGIN_MS = 1_700_000_000_000
PARTITIONS, FLUSHES_PER_S, HOURS = 1000, 5, 24
TOUCHED = 100  # partitions in a flush: every twentieth always, the others at random
SLICE_BYTES, RECORDS = 4_000, 20
SAMPLE_S = 600
GOAL_MIB = 200.0
WIDTH, LEFT = 800, 80  # of the picture, and of what stands left of its axes
PICTURE = Path(__file__).resolve().parents[2] / "docs" / "state-of-a-day.svg"


@dataclass(frozen=True, slots=True)
class Sample:
    """The state at one time of the day. Sizes in MiB."""

    hour: float
    memory: float
    snapshot: float
    rows: int
    chunks: int
    garbage: int  # objects that wait for collection
    segments: int


class Day:
    """One agent's state and what its background jobs do with it, in virtual seconds."""

    def __init__(self, touched: int) -> None:
        merging, collection = MergingConfig(), CollectionConfig()
        self.rules = MergeRules(
            merging.min_slices,
            merging.keep_slices,
            merging.tail_slices_max,
            merging.segment_bytes,
            merging.age_s,
        )
        self.merge_s, self.collect_s = merging.interval_ms // 1000, collection.interval_s
        self.grace_ms = int(collection.grace_s * 1000)
        self.touched = touched
        self.state = State()
        self.sequence = self.chunk = self.number = self.now_ms = 0
        self.manifests: dict[int, Manifest] = {}
        replica = SimpleNamespace(state=self.state, node_id=1, incarnation=INCARNATION)
        parts: Any = SimpleNamespace(replica=replica, rules=self.rules)
        self.job = Merging(parts, Metrics(), poll_s=self.merge_s)
        self.draw = random.Random(1)
        self.base_mib = _resident_mib()
        self.apply(RegisterAgent(name="bench", node_id=-1, feature_min=1, feature_max=1))
        self.apply(CreateTopic(name="t", topic_id=bytes(16), partitions=PARTITIONS))

    def apply(self, *messages: Any) -> Sequence[Any]:
        """One entry at the present virtual time."""
        self.sequence += 1
        entry = Entry(
            format=1,
            incarnation=INCARNATION,
            sequence=self.sequence,
            proposed_ms=BEGIN_MS + self.now_ms,
            applied_revision=self.sequence - 1,
            commands=map(command, messages),
        )
        logged = LogEntry(self.sequence, INCARNATION, self.sequence, entry.SerializeToString())
        return self.state.apply(logged).results

    def samples(self, hours: float) -> Iterator[Sample]:
        """Live through so many hours; one sample every SAMPLE_S."""
        for second in range(int(hours * 3600)):
            for part in range(FLUSHES_PER_S):
                self.now_ms = second * 1000 + part * 1000 // FLUSHES_PER_S
                self.flush()
            if second % self.merge_s == 0:
                self.merge(second)
            if second % self.collect_s == 0:
                self.collect()
            if (second + 1) % SAMPLE_S == 0:
                yield self.sample((second + 1) / 3600)

    def flush(self) -> None:
        """One chunk with a slice of each touched partition."""
        handles = range(PARTITIONS)
        if self.touched < PARTITIONS:
            always = range(0, PARTITIONS, 20)
            others = self.draw.sample(range(PARTITIONS), max(0, self.touched - len(always)))
            handles = sorted({*always, *others})  # type: ignore[assignment]  # ascending numbers, both
        count = len(handles)
        self.apply(
            CommitChunk(
                number=self.chunk,
                size=HEADER_BYTES + count * SLICE_BYTES,
                first_position=HEADER_BYTES,
                partition=handles,
                length=[SLICE_BYTES] * count,
                offsets=[RECORDS] * count,
                max_timestamp_ms=[BEGIN_MS + self.now_ms] * count,
            )
        )
        self.chunk += 1

    def merge(self, now_s: float) -> None:
        """What the job does in one look, without the bytes."""
        for number in range((PARTITIONS + RANGE - 1) // RANGE):
            swaps: list[Any] = []
            rows = 0
            for due in self.job.due(number, now_s):
                rows += due.rows
                if swaps and rows > SWAP_ROWS_MAX:
                    self.swap(swaps)
                    swaps, rows = [], due.rows
                swaps.append(self.merged(due))
            if swaps:
                self.swap(swaps)

    def merged(self, due: Due) -> Any:
        """The swap of one partition."""
        partition = self.state.partitions[due.handle]
        assert partition is not None
        manifest = self.manifests.get(due.handle)
        step = planner.plan(partition, manifest, due.rows, self.rules, self.state.cluster_configs)
        assert step is not None
        self.number += 1
        absorbed = [step.before[at] for at in range(step.absorbed, len(step.before))]
        refs = step.taken.refs
        size = step.taken.bytes + sum(each.record_bytes for each in absorbed)
        written = SegmentInfo(
            SegmentId(INCARNATION, due.handle, self.number),
            absorbed[0].base_offset if absorbed else refs[0].base_offset,
            step.taken.end_offset,
            HEADER_BYTES + size + 1000,
            HEADER_BYTES + size,
            sum(each.records for each in absorbed) + sum(ref.end_offset - ref.base_offset for ref in refs),
            absorbed[0].first_timestamp_ms if absorbed else refs[0].max_timestamp_ms,
            refs[-1].max_timestamp_ms,
        )
        after, released = step.after(written, partition.log_start)
        name = ManifestId(INCARNATION, due.handle, self.number)
        self.manifests[due.handle] = after
        size = len(after.encode(name))
        return Swap(name, after, size, partition.merged, step.taken.last_chunk, released, ()).command()

    def swap(self, swaps: Sequence[Any]) -> None:
        """One entry, which nothing hinders here."""
        for result in self.apply(*swaps):
            assert isinstance(result, Done), result

    def collect(self) -> None:
        """Forget what was let go of a grace ago, as collection does after it has deleted the objects."""
        due_ms = BEGIN_MS + self.now_ms - self.grace_ms
        state = self.state
        chunks = [each for each, since in state.chunks.garbage.items() if since <= due_ms]
        for page in _pages(chunks):
            self.apply(ForgetChunks(chunks=[ChunkIdMessage(incarnation=c[0], number=c[1]) for c in page]))
        segments = [each for each, since in state.segment_garbage.items() if since <= due_ms]
        manifests = [each for each, (since, _) in state.manifest_garbage.items() if since <= due_ms]
        for kind, names in (("segment", segments), ("manifest", manifests)):
            for page in _pages(names):
                columns = zip(*page, strict=True)
                fields = zip(("incarnation", "partition", "number"), columns, strict=True)
                self.apply(ForgetSegments(**{f"{kind}_{field}": column for field, column in fields}))

    def sample(self, hour: float) -> Sample:
        """The state as it is."""
        state = self.state
        garbage = len(state.chunks.garbage) + len(state.segment_garbage) + len(state.manifest_garbage)
        memory = _resident_mib() - self.base_mib
        return Sample(
            round(hour, 3),
            round(memory, 2),
            round(len(encode(state)) / 2**20, 2) if hour == int(hour) else 0.0,
            sum(len(each.slices) for each in state.partitions if each is not None),
            len(state.chunks.by_serial),
            garbage,
            sum(map(len, self.manifests.values())),
        )


def _pages(names: Sequence[Any]) -> Iterator[Sequence[Any]]:
    for start in range(0, len(names), DELETE_KEYS_MAX):
        yield names[start : start + DELETE_KEYS_MAX]


def _resident_mib() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 2**20


def lived(touched: int, hours: float) -> list[Sample]:
    """A day in a process of its own, so that nothing else is in its memory."""
    line = [sys.executable, "-m", "tests.bench.bench_day", "--samples", str(touched), str(hours)]
    done = subprocess.run(line, check=True, stdout=subprocess.PIPE, text=True)
    return [Sample(**json.loads(each)) for each in done.stdout.splitlines()]


def figures() -> Iterable[Figure]:
    """Memory and snapshot at their highest, and how far the day's second half exceeds its first."""
    day = lived(TOUCHED, HOURS)
    yield from figures_of(day, TOUCHED)


def figures_of(day: Sequence[Sample], touched: int) -> Iterator[Figure]:
    """What is told of a day."""
    title = f"state in 24 h, {FLUSHES_PER_S} flushes/s, {touched} of {PARTITIONS:,} partitions in each"
    yield Figure(f"{title}: memory", max(each.memory for each in day), "MiB", goal=GOAL_MIB, better="less")
    yield Figure(f"{title}: snapshot", max(each.snapshot for each in day), "MiB", better="less")
    half = len(day) // 2
    rows = [max(each.rows for each in part) for part in (day[:half], day[half:])]
    yield Figure(f"{title}: slices, second half over first", rows[1] / rows[0], "", better="less")


def picture(day: Sequence[Sample], touched: int) -> str:
    """The day as SVG: memory and its goal above, what is in the state below."""
    rows_max = _round_up(max(each.rows for each in day) * 1.25)
    panels: list[Any] = [
        (
            30,
            _round_up(GOAL_MIB * 1.1),
            [
                ("memory of the state, MiB", "#1f77b4", [each.memory for each in day]),
                (f"goal: {GOAL_MIB:g} MiB", "#d62728", [GOAL_MIB] * len(day)),
            ],
            60,  # below the goal, above what is reached
        ),
        (230, rows_max, [("slices not merged yet", "#2ca02c", [each.rows for each in day])], 26),
    ]
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} 440" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="440" fill="white"/>',
        f'<text x="{LEFT}" y="18">{FLUSHES_PER_S} flushes/s, {touched} of {PARTITIONS:,} partitions in each: '
        f"{day[-1].hour * 3600 * FLUSHES_PER_S * touched:,.0f} slices written in {day[-1].hour:g} h</text>",
    ]
    for top, most, curves, names in panels:
        lines += _panel(top, most, day[-1].hour)
        for number, (name, colour, values) in enumerate(curves):
            across = (WIDTH - LEFT - 20) / day[-1].hour
            points = " ".join(
                f"{LEFT + each.hour * across:.1f},{top + 160 * (1 - value / most):.1f}"
                for each, value in zip(day, values, strict=True)
            )
            lines.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
            lines.append(
                f'<text x="{WIDTH - 180}" y="{top + names + 16 * number}" fill="{colour}">{name}</text>'
            )
    return "\n".join([*lines, "</svg>", ""])


def _round_up(value: float) -> float:
    """The next number above with one digit that counts, halves included: what an axis ends with."""
    digit = 10.0 ** math.floor(math.log10(value))
    return math.ceil(value / digit * 2) / 2 * digit


def _panel(top: int, most: float, hours: float) -> Iterator[str]:
    """Axes with some numbers."""
    yield f'<path d="M{LEFT} {top}V{top + 160}H{WIDTH - 20}" fill="none" stroke="black"/>'
    for part in (0.0, 0.5, 1.0):
        value = f"{most * part:,.0f}"
        yield f'<text x="{LEFT - 6}" y="{top + 164 - 160 * part:.0f}" text-anchor="end">{value}</text>'
    for hour in range(0, int(hours) + 1, max(1, int(hours) // 8)):
        at = LEFT + hour / hours * (WIDTH - LEFT - 20)
        yield f'<text x="{at:.0f}" y="{top + 176}" text-anchor="middle">{hour} h</text>'


def main(words: Sequence[str]) -> None:
    """`--samples partitions hours` prints samples; a number of partitions draws their day."""
    if words[:1] == ["--samples"]:
        for each in Day(int(words[1])).samples(float(words[2])):
            print(json.dumps(asdict(each)), flush=True)
        return
    touched = int(words[0]) if words else TOUCHED
    day = lived(touched, HOURS)
    PICTURE.write_text(picture(day, touched))
    for figure in figures_of(day, touched):
        print(figure.line())


if __name__ == "__main__":
    main(sys.argv[1:])
