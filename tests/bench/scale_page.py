"""The tables and plots of docs/scale.md, made from the model alone: `python -m tests.bench.scale_page`.

What was measured comes from tests/bench/scale.json, which bench_scale leaves. A test makes all of it anew.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from agent.config.limits import ProduceConfig
from agent.costs.growth import Grown, Shape, counted, end, grown, settled
from agent.costs.units import GIB, MIB
from tests.bench.bench_scale import KEPT, RUNS, Asked, Found
from tests.bench.load import RECORD_BYTES
from tests.bench.plot import Curve, Plot

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = DOCS / "scale.md"
BEGIN, END = "<!-- written by `python -m tests.bench.scale_page` -->", "<!-- end of what is written -->"
AGENTS = (3, 6, 12, 25, 50, 100, 200, 300)
WRITES = {"1 GiB/s": GIB, "10 GiB/s": 10 * GIB}
BATCHES = {"16 KiB": 16_384, "256 KiB": 262_144}
LATER = ProduceConfig(linger_ms=250, quiet_ms=250, chunk_bytes_max=64 * MIB)
"""Fewer and larger chunks, at the price of latency."""
CPU, SENT = "CPU of an agent, % of a core", "sent by etcd, kB/s"
PLAIN = "without relays"
WAYS: dict[str, dict[str, Any]] = {
    PLAIN: {},
    "with relays": {"relay": True},
    "linger of 250 ms, chunks of 64 MiB": {"produce": LATER},
}


def measured_runs() -> list[Found]:
    """What bench_scale has kept."""
    return [Found(**{**each, "asked": Asked(**each["asked"])}) for each in json.loads(KEPT.read_text())]


def modelled(run: Found) -> Grown:
    """The model of such a run, at its own rate of entries: as many as the machine's PUTs let there be."""
    return counted(shape_of(run), run.total("appends") / run.seconds)


def shape_of(run: Found) -> Shape:
    """The load of a run, with the durations that its agents counted."""
    asked = run.asked
    puts, appends = run.total("puts"), run.total("appends")
    return Shape(
        agents=asked.agents,
        write=run.slices * asked.records * RECORD_BYTES / run.seconds,
        zones=1,
        fanout=0,
        batch_bytes=asked.records * RECORD_BYTES,
        request_batches=asked.batches,
        producers=asked.connections,
        put_s=run.total("put_s") / puts,
        append_s=run.total("append_s") / appends,
    )


def pairs(run: Found) -> dict[str, tuple[float, float]]:
    """What was measured, beside what the model says; per entry what grows with entries."""
    told, entries = modelled(run), run.total("appends")
    return {
        "entries/s": (entries / run.seconds, grown(shape_of(run)).entries),
        CPU: (statistics.mean(run.cpu) / run.seconds * 100, told.agent * 100),
        "log, B/s": (run.total("log_bytes") / run.seconds, told.log_bytes),
        SENT: (run.etcd_sent / run.seconds / 1e3, told.etcd_out / 1e3),
        "etcd's CPU, % of a core": (run.etcd_cpu / run.seconds * 100, told.etcd_cpu * 100),
    }


def plots() -> dict[str, Plot]:
    """By file name."""
    runs = measured_runs()
    curves = [
        Curve(f"{name}: {what}", [(run.asked.agents, pairs(run)[key][part]) for run in runs], not part)
        for name, key in (("CPU", CPU), ("sent by etcd", SENT))
        for part, what in enumerate(("measured", "model"))
    ]
    title = "CPU of an agent, and what etcd sends: measured, and by the model"
    found = {"scale-measured.svg": Plot(title, "agents", "% of a core; kB/s", curves)}
    for name, write in WRITES.items():
        file = f"scale-{name.split('/')[0].replace(' ', '').lower()}.svg"
        shapes = [Shape(agents=agents, write=write) for agents in AGENTS]
        found[file] = Plot(
            f"{name} in batches of 16 KiB: how much of each resource is used, by agents",
            "agents",
            "share of what there is (dashed: all of it)",
            list(_shares(shapes)),
            mark=1.0,
        )
    return found


def _shares(shapes: Sequence[Shape]) -> Iterator[Curve]:
    """Each resource of clusters without relays, and the relay's loop of those with."""
    plain = [grown(shape) for shape in shapes]
    for number, use in enumerate(plain[0].uses):
        yield Curve(use.name, [(one.shape.agents, one.uses[number].share) for one in plain])
    near = [grown(replace(shape, relay=True)) for shape in shapes]
    relay = "the loop of a zone's relay"
    yield Curve(
        f"with relays: {relay}",
        [(one.shape.agents, use.share) for one in near for use in one.uses if use.name == relay],
    )


def tables() -> Iterator[str]:
    """Measured beside the model; then what a load comes to, and what ends."""
    yield "### Measured and modelled"
    yield ""
    runs = measured_runs()
    yield "| | " + " | ".join(f"{agents} agent{'s' if agents > 1 else ''}" for agents in RUNS) + " |"
    yield "|---" * (1 + len(RUNS)) + "|"
    for name in pairs(runs[0]):
        cells = [
            f"{_three(measured)} / {_three(told)}" for measured, told in (pairs(run)[name] for run in runs)
        ]
        yield f"| {name}: measured / model | " + " | ".join(cells) + " |"
    yield ""
    for write_name, write in WRITES.items():
        for batch_name, batch in BATCHES.items():
            yield from _table(f"{write_name}, batches of {batch_name}", write, batch)
    yield from _ends()


def _table(title: str, write: float, batch: float) -> Iterator[str]:
    yield f"### {title}"
    yield ""
    yield (
        "| agents | way | entries/s, wished | nearest to its end | entries/s, settled | a chunk every, ms "
        "| log, MB/s | etcd sends, MB/s | GETs/s | apply, cores each | agents' CPU-s/GB |"
    )
    yield "|---" * 11 + "|"
    for agents in (12, 50, 300):
        for way, settings in WAYS.items():
            shape = Shape(agents=agents, write=write, batch_bytes=batch, **settings)
            wished, one = grown(shape), settled(shape)
            found = f"| {agents} | {way} | {wished.entries:,.0f} | {_first(wished)} "
            if one.first.share > 1.001:
                yield f"{found}| not carried: {_first(one)} | | | | | | |"
                continue
            yield (
                f"{found}| {one.entries:,.0f} | {one.every_s * 1000:,.0f} | {one.log_bytes / 1e6:,.2f} "
                f"| {one.etcd_out / 1e6:,.1f} | {one.gets:,.0f} | {one.apply:.2f} | {one.cpu_per_gb:,.1f} |"
            )
    yield ""


def _three(value: float) -> str:
    """With three digits that count."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _first(found: Grown) -> str:
    text = f"{found.first.name}: {found.first.share:,.2f}"
    return text if found.first.share <= 1.001 else f"**{text}**"


def _ends() -> Iterator[str]:
    sizes = (3, 12, 50, 100, 300)
    yield "### How much a cluster writes at most"
    yield ""
    yield "| batches | way | " + " | ".join(f"{agents} agents" for agents in sizes) + " |"
    yield "|---" * (2 + len(sizes)) + "|"
    for batch_name, batch in BATCHES.items():
        for way, settings in WAYS.items():
            most = [end(Shape(agents=agents, write=MIB, batch_bytes=batch, **settings)) for agents in sizes]
            cells = [f"{one.shape.write / MIB:,.0f} MiB/s: {one.first.name}" for one in most]
            yield f"| {batch_name} | {way} | " + " | ".join(cells) + " |"
    yield ""


def rendered() -> str:
    """The whole page, with what is written made anew."""
    head, rest = PAGE.read_text().split(BEGIN)
    return "\n".join([f"{head}{BEGIN}", "", *tables(), f"{END}{rest.split(END)[1]}"])


if __name__ == "__main__":
    PAGE.write_text(rendered())
    for file, plot in plots().items():
        (DOCS / file).write_text(plot.svg())
