"""Records below a topic's log start, asked of an agent over HTTP: listed, brought back, let go of."""

from __future__ import annotations

from typing import Annotated, Any
from urllib.parse import quote

import typer

from agent.cli import agent_http
from agent.cli.deleted import moment
from agent.cli.options import HTTP_DEFAULT, Form, Http, Output, TopicName
from agent.cli.output import print_json, print_table, remarks, results

Partition = Annotated[
    int | None, typer.Option("--partition", min=0, help="Of this one; of all if not given.")
]


def held(name: TopicName, http: Http = HTTP_DEFAULT, output: Output = Form.TABLE) -> None:
    """Show records that retention or DeleteRecords took and that can come back (floe.records.grace.ms)."""
    found = agent_http.ask(http, _path(name))
    if output is Form.JSON:
        print_json(found)
        return
    rows = [row for each in found["partitions"] for row in _rows(each)]
    print_table(("partition", "from", "below", "held bytes, about", "until"), rows)
    if not found["grace_ms"]:
        told = f"what goes from {name} now is gone at once: floe.records.grace.ms is 0"
        remarks().print(told, style="dim")


def _rows(one: dict[str, Any]) -> list[tuple[object, ...]]:
    """A row for each range; the bytes, which are of all together, stand by the first."""
    sizes = [one["held_bytes"], *[""] * len(one["ranges"])]
    return [
        (one["partition"], each["from"], each["below"], size, moment(each["until_ms"]))
        for each, size in zip(one["ranges"], sizes, strict=False)
    ]


def undelete_records(
    name: TopicName,
    partition: Partition = None,
    to: Annotated[
        int | None,
        typer.Option("--to", min=0, help="The new log start; the oldest record that is held if not given."),
    ] = None,
    http: Http = HTTP_DEFAULT,
    output: Output = Form.TABLE,
) -> None:
    """Bring back records that retention or DeleteRecords took, while they are held: the log start moves back.

    What is too old for retention.ms goes again with the next look of retention: raise it first.
    """
    answer = agent_http.ask(http, f"{_path(name)}/undelete", _body(partition, to))
    if output is Form.JSON:
        print_json(answer)
        return
    print_table(("partition", "start"), [(each["partition"], each["start"]) for each in answer["partitions"]])


def purge_records(
    name: TopicName,
    partition: Partition = None,
    to: Annotated[
        int | None, typer.Option("--to", min=0, help="Only those below this offset; all if not given.")
    ] = None,
    http: Http = HTTP_DEFAULT,
    output: Output = Form.TABLE,
) -> None:
    """Let go of records below the log start for good, whatever their time: they cannot come back.

    Their objects go with the next collections; where records that stay lie in the same objects, later.
    """
    answer = agent_http.ask(http, f"{_path(name)}/purge", _body(partition, to))
    if output is Form.JSON:
        print_json(answer)
        return
    results().print(f"let go of {answer['purged_offsets']} offsets of {name} below the log start")


def _path(name: str) -> str:
    return f"/admin/topics/{quote(name, safe='')}/held"


def _body(partition: int | None, offset: int | None) -> dict[str, object]:
    given = {"partition": partition, "offset": offset}
    return {key: value for key, value in given.items() if value is not None}
