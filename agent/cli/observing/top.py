"""`floe top`: what each agent does now, from two looks at its counters."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Annotated

import typer

from agent.cli.observing.cluster import CLOCK, look
from agent.cli.options import HTTP_DEFAULT, Form, Http, Output
from agent.cli.output import print_json, print_table
from agent.health.told import Told

MIB = 2**20
INTERVAL_S_MIN, INTERVAL_S_MAX = 0.2, 3_600.0
Interval = Annotated[
    float,
    typer.Option(
        "--interval", "-n", min=INTERVAL_S_MIN, max=INTERVAL_S_MAX, help="Seconds between two looks."
    ),
]
Once = Annotated[bool, typer.Option("--once", help="Two looks, one table, and leave (as in a pipe).")]


@dataclass(frozen=True, slots=True)
class Line:
    """One agent between two looks. Rates are per second; `put_ms` and `append_ms` are means."""

    agent: str
    zone: str
    state: str
    cpu_percent: float = 0.0
    memory_mib: float = 0.0
    connections: int = 0
    requests: float = 0.0
    in_mib: float = 0.0
    out_mib: float = 0.0
    records_in: float = 0.0
    puts: float = 0.0
    put_ms: float = 0.0
    append_ms: float = 0.0
    lag_s: float = 0.0
    loop_ms: float = 0.0
    table_behind_s: float = 0.0


def top(
    http: Http = HTTP_DEFAULT, interval: Interval = 2.0, once: Once = False, output: Output = Form.TABLE
) -> None:
    """Rates, lag and delays of all agents, again and again until Ctrl-C; the busiest first.

    With --once, in a pipe, and as JSON: one time.
    """
    import sys

    if once or output is Form.JSON or not sys.stdout.isatty():
        _show(_lines(http, interval), output)
        return
    _live(http, interval)


def _lines(http: str, interval: float, before: Sequence[Told] = ()) -> list[Line]:
    first = before or look(http)
    asyncio.run(CLOCK.sleep(interval))
    return lines(first, look(http))


def lines(before: Sequence[Told], now: Sequence[Told]) -> list[Line]:
    """One line for each agent, the most bytes first. Both looks are at agents of one cluster."""
    earlier = {each.name: each for each in before}
    zones = {
        broker["name"]: broker["zone"] for each in now if each.status for broker in each.status["brokers"]
    }
    found = [_line(each, earlier.get(each.name), zones.get(each.name, "")) for each in now]
    return sorted(found, key=lambda each: (-(each.in_mib + each.out_mib), each.agent))


def _line(now: Told, before: Told | None, zone: str) -> Line:
    if now.status is None:
        return Line(now.name, zone, "no answer")
    state = "ready" if now.status["ready"] else "NOT READY"
    grown = _Grown(before, now)
    return Line(
        now.name,
        zone,
        state,
        cpu_percent=round(100 * grown.rate("process_cpu_seconds_total"), 1),
        memory_mib=round(now.total("process_resident_memory_bytes") / MIB, 1),
        connections=int(now.total("floe_connections")),
        requests=round(grown.rate("floe_requests_total"), 1),
        in_mib=round(grown.rate("floe_produce_bytes_total") / MIB, 2),
        out_mib=round(grown.rate("floe_fetch_bytes_total") / MIB, 2),
        records_in=round(grown.rate("floe_produce_records_total"), 1),
        puts=round(grown.rate("floe_put_seconds_count"), 1),
        put_ms=round(grown.mean_ms("floe_put_seconds"), 1),
        append_ms=round(grown.mean_ms("floe_append_seconds"), 1),
        lag_s=round(now.total("floe_lag_seconds"), 1),
        loop_ms=round(1000 * now.total("floe_event_loop_delay_seconds"), 1),
        table_behind_s=round(_worst(now.samples.get("floe_table_seconds_behind", ())), 1),
    )


class _Grown:
    """How counters grew between two looks; an agent that was started anew in between counts from 0."""

    def __init__(self, before: Told | None, now: Told) -> None:
        started = "process_start_time_seconds"
        same = before is not None and before.status and before.total(started) == now.total(started)
        self._before = before if same else None
        self._now = now

    def _by(self, counter: str) -> float:
        return self._now.total(counter) - (self._before.total(counter) if self._before else 0.0)

    def rate(self, counter: str) -> float:
        """Per second; 0 for an agent of which there is one look only."""
        seconds = self._now.at - self._before.at if self._before else 0.0
        return self._by(counter) / seconds if seconds > 0 else 0.0

    def mean_ms(self, histogram: str) -> float:
        """Of what was measured in between, ms; 0 when nothing was."""
        count = self._by(f"{histogram}_count")
        return 1000 * self._by(f"{histogram}_sum") / count if count > 0 else 0.0


def _worst(samples: Sequence[tuple[Mapping[str, str], float]]) -> float:
    return max((value for _, value in samples), default=0.0)


COLUMNS = {
    "agent": "agent",
    "zone": "zone",
    "state": "",
    "cpu_percent": "cpu %",
    "memory_mib": "MiB",
    "connections": "conn",
    "requests": "req/s",
    "in_mib": "in MiB/s",
    "out_mib": "out MiB/s",
    "records_in": "records/s",
    "puts": "PUT/s",
    "put_ms": "PUT ms",
    "append_ms": "append ms",
    "lag_s": "lag s",
    "loop_ms": "loop ms",
    "table_behind_s": "tables s",
}
"""What each field is called above its column."""


def _cells(found: Sequence[Line]) -> Iterator[list[object]]:
    for each in found:
        values = asdict(each)
        yield [values[name] for name in COLUMNS]


def _show(found: Sequence[Line], output: Form) -> None:
    if output is Form.JSON:
        print_json([asdict(each) for each in found])
    else:
        print_table(list(COLUMNS.values()), _cells(found))


def _live(http: str, interval: float) -> None:
    """On a terminal, in one place."""
    from rich.live import Live
    from rich.table import Table

    before = look(http)
    with Live(auto_refresh=False) as screen:
        while True:
            asyncio.run(CLOCK.sleep(interval))
            now = look(http)
            table = Table(*COLUMNS.values(), box=None, pad_edge=False, header_style="bold")
            for cells in _cells(lines(before, now)):
                table.add_row(*map(str, cells))
            screen.update(table, refresh=True)
            before = now
