"""`floe quarantine …`: what was set aside, brought back, discarded."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from typing import Annotated

import typer
from google.protobuf import json_format
from google.protobuf.message import DecodeError

from agent.cli import group_requests, reading, replaying, requests
from agent.cli.coordinators import coordinators
from agent.cli.failures import EPILOG, Failure, refused, together, usage
from agent.cli.options import BOOTSTRAP_DEFAULT, Bootstrap, Form, Output, TopicName
from agent.cli.output import print_json, print_table, progress, remarks, results
from agent.cli.replaying import GROUP, Replayed, Replaying
from agent.cli.requests import Bounds
from agent.cli.session import Session, check_code, session
from agent.cli.topics import run
from coordination.state.quarantine_names import SUFFIX, name_of, topic_of
from schema.proto.quarantine_pb2 import Record

app = typer.Typer(
    help="Records that broke their topic's rules: list, show, bring back repaired, discard.", epilog=EPILOG
)

LAST = 20
ALL = 1 << 62
BATCH_MAX = 10_000


@app.command("list")
def list_quarantines(bootstrap: Bootstrap = BOOTSTRAP_DEFAULT, output: Output = Form.TABLE) -> None:
    """List quarantines: offsets that are there, and how many of them are behind the last replay."""
    columns = ("topic", "quarantine", "offsets", "left")

    async def work() -> list[tuple[str, str, int, int]]:
        async with coordinators(bootstrap) as agents:
            found = await requests.topics(agents.anyone)
            names = [each.name for each in found if each.name and each.name.endswith(SUFFIX)]
            bounds = await group_requests.ends(agents.anyone, names)
            rows = []
            for name in names:
                group = partial(group_requests.positions, name=GROUP + topic_of(name))
                at = await agents.ask(GROUP + topic_of(name), group)
                own = [each for (topic, _), each in bounds.items() if topic == name]
                left = [each.end - max(each.start, at.get((name, each.partition), 0)) for each in own]
                rows.append((topic_of(name), name, sum(b.end - b.start for b in own), sum(left)))
            return rows

    rows = run(work())
    if output is Form.JSON:
        print_json([dict(zip(columns, row, strict=True)) for row in rows])
    else:
        print_table(columns, rows)


@app.command()
def show(
    topic: TopicName,
    last: Annotated[int, typer.Option("--last", min=1, help="Only so many, the newest.")] = LAST,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    output: Output = Form.TABLE,
) -> None:
    """Show the newest records in a topic's quarantine with what each of them broke."""
    found: list[_Kept] = []

    async def work() -> int:
        async with session(bootstrap) as kafka:
            _, bounds = await _bounds(kafka, topic)
        await reading.newest(bootstrap, name_of(topic), bounds, last, lambda one: found.append(_kept(one)))
        return sum(each.end - each.start for each in bounds)

    there = run(work())
    if output is Form.JSON:
        print_json([{"place": place, "at": at, **_fields(kept)} for place, at, kept in found])
    else:
        print_table(_SHOWN, [row for one in found for row in _rows(*one)])
    remarks().print(f"{len(found):,} of {there:,}", style="dim")


_SHOWN = ("place", "set aside", "client", "of", "rule", "what")
_Kept = tuple[str, str, Record]
"""Partition/offset, when it was set aside, and what was."""


def _kept(record: reading.Record) -> _Kept:
    place = f"{record.partition}/{record.offset}"
    at = datetime.fromtimestamp(record.timestamp / 1000, UTC).isoformat(timespec="milliseconds")
    try:
        return place, at, Record.FromString(record.value or b"")
    except DecodeError as error:
        raise refused(f"{record.topic}/{place} is no record of a quarantine: {error}") from None


def _fields(kept: Record) -> dict[str, object]:
    found: dict[str, object] = json_format.MessageToDict(kept, preserving_proto_field_name=True)
    return found


def _rows(place: str, at: str, kept: Record) -> Iterator[tuple[str, ...]]:
    """One for each rule that is broken."""
    for each in kept.violations:
        of = f"{each.role}{'.' if each.field else ''}{each.field}"
        yield place, at, kept.client_id, of, each.rule, each.text


@app.command()
def replay(
    topic: TopicName,
    repair: Annotated[
        str,
        typer.Option(
            "--with",
            metavar="FILE.py:FUNCTION",
            help="Repairs a record: gets floe.quarantine.v1.Record, gives bytes (the new value), "
            "(key, value), or None to leave the record out. Without it records are sent as they were.",
        ),
    ] = "",
    batch: Annotated[int, typer.Option(min=1, max=BATCH_MAX, help="Records in one transaction.")] = 500,
    records_max: Annotated[int, typer.Option("--max", min=1, help="No more than so many.")] = ALL,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    output: Output = Form.TABLE,
) -> None:
    """Bring records back into their topic, each exactly once, however often this is ended and begun again.

    They go to the partition that they were meant for, with their time and headers, and a header
    floe.replayed-from that names their place here. One that still breaks rules is set aside anew, or refused,
    as the topic's policy says.
    """
    function = replaying.repair_of(repair) if repair else replaying.as_it_was

    async def work() -> Replayed:
        async with session(bootstrap) as kafka:
            partitions, bounds = await _bounds(kafka, topic)
        given = Replaying(topic, partitions, function, batch, records_max)
        with progress() as bar:
            task = bar.add_task("replaying", total=None)
            return await replaying.replay(bootstrap, given, bounds, lambda more: bar.advance(task, more))

    done = run(work())
    if output is Form.JSON:
        print_json({"topic": topic, "written": done.written, "left_out": done.left_out})
    else:
        results().print(f"{done.written:,} records written to {topic}, {done.left_out:,} left out")


@app.command()
def discard(
    topic: TopicName,
    replayed: Annotated[
        bool, typer.Option("--replayed", help="Those that were brought back, or left out.")
    ] = False,
    everything: Annotated[bool, typer.Option("--all", help="All that are there now.")] = False,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
) -> None:
    """Delete records from a topic's quarantine. Its table keeps them, as that of any topic does."""
    if replayed is everything:
        raise usage("say which records: --replayed or --all")

    async def work() -> tuple[int, list[Failure]]:
        async with coordinators(bootstrap) as agents:
            _, bounds = await _bounds(agents.anyone, topic)
            ends = {each.partition: each.end for each in bounds}
            if replayed:
                group = partial(group_requests.positions, name=GROUP + topic)
                at = await agents.ask(GROUP + topic, group)
                ends = {part: min(end, at.get((name_of(topic), part), 0)) for part, end in ends.items()}
            below = {
                each.partition: ends[each.partition] for each in bounds if ends[each.partition] > each.start
            }
            done, problems = list[int](), list[Failure]()
            if below:
                done, problems = await requests.delete_records(agents.anyone, name_of(topic), below)
            gone = sum(below[each.partition] - each.start for each in bounds if each.partition in done)
            return gone, problems

    gone, problems = run(work())
    if gone or not problems:
        results().print(f"{gone:,} offsets of {name_of(topic)} discarded")
    if problems:
        raise together(problems)


async def _bounds(kafka: Session, topic: str) -> tuple[int, list[Bounds]]:
    """How many partitions the topic has, and where those of its quarantine begin and end. Raises Failure."""
    own, kept = await requests.topics(kafka, [topic, name_of(topic)])
    if kept.error_code:
        raise refused(
            f"topic {topic!r} has no quarantine: floe topic config {topic} --set floe.value.rules=quarantine"
        )
    check_code(own.error_code, None, f"topic {topic!r}")
    return len(own.partitions), await requests.bounds(kafka, kept)
