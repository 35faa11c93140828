"""`floe group …`: list, describe with lag, set positions, delete."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Annotated

import typer

from agent.cli import deleted, group_requests
from agent.cli.coordinators import coordinators, listed
from agent.cli.failures import EPILOG, Failure, refused, usage
from agent.cli.group_requests import Group, Place
from agent.cli.options import BOOTSTRAP_DEFAULT, Bootstrap, Form, Output
from agent.cli.output import print_json, print_table, remarks, results
from agent.cli.requests import Bounds
from agent.cli.session import Session, session
from agent.cli.topics import run

app = typer.Typer(help="Consumer groups: list, lag, set positions, delete.", epilog=EPILOG)

NAMED_MAX = 5
"""Partitions that a remark names."""

GroupName = Annotated[str, typer.Argument(metavar="GROUP", help="Name of the group.")]


@app.command("list")
def list_groups(bootstrap: Bootstrap = BOOTSTRAP_DEFAULT, output: Output = Form.TABLE) -> None:
    """List the groups of all agents with their protocol and state. Status 4 when an agent is not reached."""

    async def work() -> tuple[list[tuple[str, str, str]], Failure | None]:
        async with session(bootstrap) as kafka:
            found, problem = await listed(kafka)
        return [(group.group_id, group.group_type, group.group_state) for group in found], problem

    (rows, problem), columns = run(work()), ("group", "type", "state")
    if output is Form.JSON:
        print_json([dict(zip(columns, row, strict=True)) for row in rows])
    else:
        print_table(columns, rows)
    if problem is not None:
        raise problem


@app.command()
def describe(name: GroupName, bootstrap: Bootstrap = BOOTSTRAP_DEFAULT, output: Output = Form.TABLE) -> None:
    """Show a group's state, its members, and for each partition its position and lag (records behind).

    Who has which partition is told for groups of the consumer protocol; classic ones keep it to themselves.
    """

    async def work() -> tuple[Group, dict[Place, int], dict[Place, Bounds]]:
        async with coordinators(bootstrap) as agents:
            group = await agents.ask(name, partial(group_requests.described, name=name))
            committed = await agents.ask(name, partial(group_requests.positions, name=name))
            held = [place for member in group.members for place in member.partitions]
            topics = sorted({topic for topic, _ in (*committed, *held)})
            return group, committed, await group_requests.ends(agents.anyone, topics)

    group, committed, bounds = run(work())
    rows = _lags(group, committed, bounds)
    if output is Form.JSON:
        print_json(
            {
                "group": group.name,
                "type": group.kind,
                "state": group.state,
                "lag": sum(row[4] for row in rows if isinstance(row[4], int)),
                "members": [
                    {"member": each.member_id, "client": each.client_id, "host": each.host}
                    for each in group.members
                ],
                "partitions": [dict(zip(_COLUMNS, row, strict=True)) for row in rows],
            }
        )
        return
    lag = sum(row[4] for row in rows if isinstance(row[4], int))
    results().print(
        f"{group.name}: {group.state}, {group.kind}, {len(group.members)} members, {lag:,} records behind"
    )
    print_table(_COLUMNS, [["-" if cell is None else cell for cell in row] for row in rows])
    if group.members:
        members = [(each.member_id, each.client_id, each.host) for each in group.members]
        print_table(("member", "client", "host"), members)


_COLUMNS = ("topic", "partition", "position", "end", "lag", "client")
Row = tuple[str, int, int | None, int | None, int | None, str | None]


def _lags(group: Group, committed: Mapping[Place, int], bounds: Mapping[Place, Bounds]) -> list[Row]:
    """A row for each partition that the group has a position in, or a member; None: not known."""
    owners = {place: each.client_id for each in group.members for place in each.partitions}
    rows: list[Row] = []
    for place in sorted({*committed, *owners}):
        position, bound = committed.get(place), bounds.get(place)
        end = bound.end if bound is not None else None
        lag = None
        if bound is not None:
            lag = max(0, bound.end - (position if position is not None else bound.start))
        rows.append((*place, position, end, lag, owners.get(place)))
    return rows


@app.command()
def reset(
    name: GroupName,
    topic: Annotated[
        str, typer.Option("--topic", "-t", help="The topic; all that it has read without.")
    ] = "",
    partition: Annotated[int, typer.Option(min=-1, help="Only this partition of --topic.")] = -1,
    to: Annotated[
        str,
        typer.Option(
            help="earliest, latest, an offset (beyond what is there: the nearest that is), or a time, ISO "
            "8601 (UTC unless it says otherwise), such as 2026-11-22T16:00:00+01:00."
        ),
    ] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be set.")] = False,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    output: Output = Form.TABLE,
) -> None:
    """Set the positions of a group that has no members. A group that does not exist is made.

    floe group reset billing --topic orders --to earliest
    """
    if not to:
        raise usage("--to is missing: give earliest, latest, an offset or a time")
    if partition >= 0 and not topic:
        raise usage("--partition needs --topic")

    async def work() -> list[tuple[str, int, int | None, int]]:
        async with coordinators(bootstrap) as agents:
            before = await agents.ask(name, partial(group_requests.positions, name=name))
            topics = [topic] if topic else sorted({known for known, _ in before})
            bounds = await group_requests.ends(agents.anyone, topics)
            places = {p: b for p, b in bounds.items() if partition in (-1, p[1])}
            if not places:
                raise refused(
                    f"group {name!r}: there is no such partition; `floe topic list` shows what is there"
                )
            wanted = await _targets(agents.anyone, places, to)
            if not dry_run:
                await agents.ask(name, partial(group_requests.commit, name=name, offsets=wanted))
            return [(*place, before.get(place), offset) for place, offset in sorted(wanted.items())]

    rows, columns = run(work()), ("topic", "partition", "before", "position")
    if output is Form.JSON:
        print_json([dict(zip(columns, row, strict=True)) for row in rows])
    else:
        print_table(columns, [["-" if cell is None else cell for cell in row] for row in rows])


async def _targets(kafka: Session, places: Mapping[Place, Bounds], to: str) -> dict[Place, int]:
    """The offset to set for each partition, within its bounds."""
    if to == "earliest":
        return {place: bound.start for place, bound in places.items()}
    if to == "latest":
        return {place: bound.end for place, bound in places.items()}
    if to.isdecimal() and len(to) < 20:
        return _nearest(places, int(to))
    try:
        when = datetime.fromisoformat(to)
        when = when if when.tzinfo else when.replace(tzinfo=UTC)
        stamp_ms = max(0, round(when.timestamp() * 1000))  # below, Kafka means others
    except (ValueError, OverflowError):
        raise usage(f"--to {to!r} is neither earliest, latest, an offset, nor a time") from None
    found = await group_requests.at_time(kafka, list(places), stamp_ms)
    return {place: found.get(place, bound.end) for place, bound in places.items()}


def _nearest(places: Mapping[Place, Bounds], wanted: int) -> dict[Place, int]:
    """This offset where it is, else the start or the end, as kafka-consumer-groups has it, and says."""
    found = {place: max(bound.start, min(wanted, bound.end)) for place, bound in places.items()}
    if others := [f"{topic}-{number}" for (topic, number), at in found.items() if at != wanted]:
        more = f" and {len(others) - NAMED_MAX} more" if len(others) > NAMED_MAX else ""
        remarks().print(
            f"{', '.join(others[:NAMED_MAX])}{more}: no offset {wanted} is there, the nearest one is taken",
            style="dim",
        )
    return found


@app.command()
def delete(
    names: Annotated[list[str], typer.Argument(metavar="GROUP…", help="Names of the groups.")],
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    output: Output = Form.TABLE,
) -> None:
    """Delete groups that have no members, with their positions; all that can be."""
    deleted.tell(*run(_deleted(bootstrap, list(dict.fromkeys(names)))), output)


async def _deleted(bootstrap: str, names: Sequence[str]) -> tuple[list[str], list[Failure]]:
    """Which groups are deleted, and why the others are not; each is its own agent's to delete."""
    gone, problems = [], []
    async with coordinators(bootstrap) as agents:
        for name in names:
            try:
                await agents.ask(name, partial(group_requests.delete, name=name))
                gone.append(name)
            except Failure as failure:
                problems.append(failure)
    return gone, problems
