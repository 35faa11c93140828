"""`floe produce` and `floe consume`: a quick look, protobuf shown and taken as JSON."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from agent.cli import requests
from agent.cli.failures import Failure, Status, after, refused, usage
from agent.cli.input import Numbered, given, piped
from agent.cli.options import BOOTSTRAP_DEFAULT, HTTP_DEFAULT, Bootstrap, Form, Http, Output, TopicName
from agent.cli.output import print_json, progress, remarks
from agent.cli.reading import Reading, read
from agent.cli.registry import Registry
from agent.cli.session import Session, session
from agent.cli.topics import run
from agent.cli.values import Encode, Encoding, known_values
from agent.cli.writing import Line, Written, portions, write

if TYPE_CHECKING:
    from rich.progress import Progress

LINES_PER_REQUEST = 1_000


def produce(
    topic: TopicName,
    value: Annotated[
        list[str] | None,
        typer.Option("--value", "-v", help="A record's value; repeatable. Else: lines of input."),
    ] = None,
    key: Annotated[str | None, typer.Option("--key", "-k", help="Key of every record.")] = None,
    separator: Annotated[str, typer.Option("--key-separator", help="Lines are KEY, this text, VALUE.")] = "",
    header: Annotated[
        list[str] | None, typer.Option("--header", "-H", metavar="NAME=VALUE", help="A header; repeatable.")
    ] = None,
    partition: Annotated[int, typer.Option(min=-1, help="Write to this partition; -1: by key.")] = -1,
    subject: Annotated[
        str, typer.Option(help="Encode values by this subject of the schema registry, its newest version.")
    ] = "",
    schema_id: Annotated[int, typer.Option("--schema", min=0, help="Or by the schema with this id.")] = 0,
    message: Annotated[
        str, typer.Option(help="Message of that file, in full; of PROTOBUF. Else its first one.")
    ] = "",
    key_subject: Annotated[str, typer.Option(help="Encode keys by this subject.")] = "",
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    http: Http = HTTP_DEFAULT,
    output: Output = Form.TABLE,
) -> None:
    """Write records: one for each --value, or for each line of standard input.

    Of a topic that is bound to a protobuf message, values (and keys) are JSON objects:
    floe produce orders --value '{"id": 7, "amount": 12.5}'

    With --subject or --schema they are encoded by the registry, and name its schema in Confluent's frame.
    """
    if message and not (subject or schema_id):
        raise usage("--message is of a schema: give --subject or --schema")
    if subject and schema_id:
        raise usage("give --subject or --schema, not both")
    headers = [(name, text.encode()) for name, _, text in (h.partition("=") for h in header or [])]

    async def work() -> Written:
        async with session(bootstrap) as kafka:
            found = await requests.topic(kafka, topic, create=True)
            values = await asyncio.to_thread(
                _encoding, topic, http, (subject, schema_id, message, key_subject)
            )
            texts = given(value, LINES_PER_REQUEST) if value else piped(sys.stdin, LINES_PER_REQUEST)
            lines = (_lines(each, key, separator, values) async for each in texts)
            with progress() as bar:
                return await _all(kafka, topic, len(found.partitions), lines, (headers, partition), bar)

    written = run(work())
    if output is Form.JSON:
        rows = [{"partition": p, "first": a, "last": b} for p, (a, b) in sorted(written.offsets.items())]
        print_json({"topic": topic, "records": written.count, "partitions": rows})
        return
    places = ", ".join(f"{p} at {first}…{last}" for p, (first, last) in sorted(written.offsets.items()))
    remarks().print(
        f"{written.count} record{'s' if written.count != 1 else ''} written to {topic}: partition {places}"
    )


def _encoding(topic: str, http: str, asked: tuple[str, int, str, str]) -> Encoding:
    """How text becomes records: by the registry where that is asked for, else by the topic's bindings."""
    subject, schema_id, message, key_subject = asked
    encoders: dict[str, Encode] = {}
    if subject or schema_id or key_subject:
        from agent.cli import encoding  # imported here: it brings the compiler along

        registry = Registry(http)
        if subject:
            encoders["value"] = encoding.by_subject(registry, subject, message=message)
        elif schema_id:
            encoders["value"] = encoding.by_id(registry, schema_id, message)
        if key_subject:
            encoders["key"] = encoding.by_subject(registry, key_subject)
    return Encoding(encoders, known_values(topic, http))


def _lines(texts: Sequence[Numbered], key: str | None, separator: str, values: Encoding) -> Iterator[Line]:
    for number, text in texts:
        own = key
        if separator:
            own, found, text = text.partition(separator)
            if not found:
                raise usage(f"record {number} has no {separator!r} between key and value")
        try:
            parsed_key = None if own is None else values.parse("key", own)
            yield Line(number, parsed_key, values.parse("value", text))
        except Failure as failure:
            raise Failure(failure.status, f"record {number}: {failure}") from None


async def _all(
    kafka: Session,
    topic: str,
    partitions: int,
    batches: AsyncIterator[Iterator[Line]],
    placing: tuple[list[tuple[str, bytes]], int],
    bar: Progress,
) -> Written:
    """Write everything, as many lines per request as are there and one takes."""
    headers, partition = placing
    task = bar.add_task(f"writing {topic}", total=None)
    written = Written()
    try:
        async for lines in batches:
            for batch in portions(list(lines), headers):
                await write(kafka, topic, partitions, batch, written, headers=headers, partition=partition)
                bar.advance(task, len(batch))
    except Failure as failure:
        raise after([f"{written.count} records were written"] if written.count else [], failure) from None
    if not written.count:
        raise refused("nothing to write: give --value or lines on standard input")
    return written


def consume(
    topic: TopicName,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on with new records until Ctrl-C.")
    ] = False,
    records_max: Annotated[
        int, typer.Option("--max", "-n", min=0, help="Stop after this many; 0: no bound.")
    ] = 0,
    newest: Annotated[
        bool, typer.Option("--latest", help="Begin at the end instead of the beginning.")
    ] = False,
    offset: Annotated[int, typer.Option(min=-1, help="Begin at this offset of every partition.")] = -1,
    partition: Annotated[int, typer.Option(min=-1, help="Only this partition.")] = -1,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    http: Http = HTTP_DEFAULT,
) -> None:
    """Read records as JSON lines, from the beginning to the present end (or on, with --follow)."""
    if newest and offset >= 0:
        raise usage("--latest and --offset contradict each other; give one")
    reading = Reading(topic, follow, records_max, newest, offset, partition)

    async def work() -> int:
        async with session(bootstrap) as kafka:
            bounds = await requests.bounds(kafka, await requests.topic(kafka, topic))
        if partition >= len(bounds):
            raise refused(f"topic {topic!r} has the partitions 0 to {len(bounds) - 1}")
        return await read(bootstrap, reading, bounds, known_values(topic, http))

    try:
        count = run(work())
    except BrokenPipeError:  # `floe consume … | head` has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(Status.OK) from None
    remarks().print(f"{count} record{'s' if count != 1 else ''}", style="dim")
