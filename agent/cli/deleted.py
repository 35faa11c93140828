"""Topics are deleted; and deleted ones, asked of an agent over HTTP: listed, brought back, let go of."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated

import typer

from agent.cli import agent_http, requests
from agent.cli.failures import Failure, together
from agent.cli.options import BOOTSTRAP_DEFAULT, HTTP_DEFAULT, Bootstrap, Form, Http, Output
from agent.cli.output import print_json, print_table, results
from agent.cli.session import session

_PATH = "/admin/deleted-topics"

DeletedName = Annotated[
    str, typer.Argument(metavar="TOPIC", help="The name that it had, or its id (floe topic list --deleted).")
]


def listed(http: str, output: Form) -> None:
    """All of them, the oldest first. Raises Failure."""
    found = agent_http.ask(http, _PATH)["topics"]
    if output is Form.JSON:
        print_json(found)
        return
    rows = [
        (
            each["topic"],
            each["topic_id"],
            each["partitions"],
            each["size_bytes"],
            moment(each["deleted_ms"]),
            each["by"] or "-",
            moment(each["until_ms"]),
        )
        for each in found
    ]
    print_table(("topic", "id", "partitions", "bytes", "deleted", "by", "until"), rows)


def delete(
    names: Annotated[list[str], typer.Argument(metavar="TOPIC…", help="Names of the topics.")],
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    output: Output = Form.TABLE,
) -> None:
    """Delete topics with all their records, all that can be. Their tables stay.

    `floe topic undelete` brings them back for floe.delete.retention.ms; `floe topic purge` frees their room.
    """

    async def work() -> tuple[list[str], list[Failure]]:
        async with session(bootstrap) as kafka:
            return await requests.delete(kafka, list(dict.fromkeys(names)))

    tell(*asyncio.run(work()), output)


def tell(names: Sequence[str], problems: Sequence[Failure], output: Form) -> None:
    """What is deleted, then why the rest is not. Raises Failure for that."""
    if names and output is Form.JSON:
        print_json({"deleted": names})
    elif names:
        results().print(f"deleted {', '.join(names)}")
    if problems:
        raise together(problems)


def undelete(
    topic: DeletedName,
    name: Annotated[str, typer.Option("--as", metavar="NEW", help="The name that it is to have.")] = "",
    http: Http = HTTP_DEFAULT,
    output: Output = Form.TABLE,
) -> None:
    """Bring a deleted topic back: its id, records, offsets, configs, groups' positions and table."""
    answer = agent_http.ask(http, f"{_PATH}/undelete", {"topic": topic, "name": name})
    if output is Form.JSON:
        print_json(answer)
    else:
        results().print(f"topic {answer['topic']} is there again, id {answer['topic_id']}")


def purge(topic: DeletedName, http: Http = HTTP_DEFAULT, output: Output = Form.TABLE) -> None:
    """Let go of a deleted topic for good, whatever its time: the bucket gets its room back."""
    purged = agent_http.ask(http, f"{_PATH}/purge", {"topic": topic})["purged"]
    if output is Form.JSON:
        print_json(purged)
    else:
        told = f"{purged['topic']} ({purged['topic_id']}), {purged['size_bytes']} bytes of records"
        results().print(f"let go of {told}: their objects go with the next collections")


def moment(stamp_ms: int) -> str:
    """A stamp for people, in UTC."""
    return datetime.fromtimestamp(stamp_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
