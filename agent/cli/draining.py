"""`floe drain`: one agent gives away what it leads and holds before it is worked on, and is taken back."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from agent.cli import agent_http
from agent.cli.failures import Failure, Status, refused
from agent.cli.options import HTTP_DEFAULT, Form, Http, Output
from agent.cli.output import print_json, remarks
from coordination.clock import SystemClock

PATH = "/admin/drain"
LOOK_S = 0.5
"""Between two looks at how far it is."""
WAIT_S_MAX = 86_400.0
CLOCK = SystemClock()

BY_ID = "id:"
"""In front of a number that is a node id; no name has a colon."""

AgentName = Annotated[
    str, typer.Argument(metavar="AGENT", help="Name or node id of the agent; id:2 is the node id 2.")
]
Undo = Annotated[bool, typer.Option("--undo", help="Take it back: clients are sent to it again.")]
Wait = Annotated[
    bool,
    typer.Option("--wait", help="Leave when it is done; status 1 when it is not, or not in time."),
]
Patience = Annotated[
    float, typer.Option("--timeout", min=0.0, max=WAIT_S_MAX, help="Seconds that --wait waits at most.")
]


def drain(
    agent: AgentName,
    undo: Undo = False,
    wait: Wait = False,
    timeout: Patience = 60.0,
    http: Http = HTTP_DEFAULT,
    output: Output = Form.TABLE,
) -> None:
    """Have an agent give away what it leads, coordinates and holds; it takes nothing new until --undo or a
    restart.

    floe drain agent-2 --wait && … work on its machine …
    """
    asked, status, _ = agent_http.status_at(http)
    base = address_of(status, agent, asked)
    told = agent_http.ask(base, PATH, {"drained": not undo})
    if wait:
        told = asyncio.run(_waited(base, told, timeout))
    if output is Form.JSON:
        print_json(told)
    else:
        print(said(told))
    if wait and told["drained"] is undo:
        raise Failure(Status.FAILED, _undone(told["agent"], undo=undo))
    if wait and not told["done"]:
        raise typer.Exit(Status.FAILED)


def address_of(status: Mapping[str, Any], agent: str, base: str) -> str:
    """Where an agent answers that the one at `base` knows. Raises Failure."""
    scheme = base.partition("://")[0]
    broker = _meant(status["brokers"], agent)
    if broker["name"] == status["agent"]:
        return base
    if broker["http"]:
        return f"{scheme}://{broker['http']}"
    raise refused(f"agent {agent!r} has no HTTP address: set http.advertised_host there")


def _meant(brokers: Sequence[Mapping[str, Any]], agent: str) -> Mapping[str, Any]:
    """The one of this name or node id; names may be numbers. Raises Failure where these are two agents."""
    node_id = agent.removeprefix(BY_ID)
    named = [each for each in brokers if each["name"] == agent]
    numbered = [each for each in brokers if str(each["node_id"]) == node_id]
    if named and numbered and named[0] is not numbered[0]:
        raise refused(
            f"{agent!r} is the name of the agent with node id {named[0]['node_id']}, and the node id of "
            f"agent {numbered[0]['name']!r}: say {BY_ID}{named[0]['node_id']} or {BY_ID}{agent}"
        )
    if found := named or numbered:
        return found[0]
    known = ", ".join(str(each["name"]) for each in brokers)
    raise refused(f"the cluster has no agent {agent!r}: it has {known or 'none'}")


async def _waited(base: str, told: dict[str, Any], timeout_s: float) -> dict[str, Any]:
    """Its last answer, which is another matter's where that was asked of it meanwhile, or it was restarted.

    Someone who does not answer for a while is asked again: it may be busy.
    """
    end = CLOCK.monotonic() + timeout_s
    shown, drained = "", told["drained"]
    while not told["done"] and told["drained"] is drained and CLOCK.monotonic() < end:
        line = said(told)
        if line != shown:
            remarks().print(line, style="dim")
            shown = line
        await CLOCK.sleep(LOOK_S)
        try:
            told = agent_http.ask(base, PATH)
        except Failure as failure:
            if failure.status is not Status.UNREACHABLE or CLOCK.monotonic() >= end:
                raise
    return told


def _undone(name: str, *, undo: bool) -> str:
    """Why it was waited for nothing, and what to do."""
    again = f"run floe drain {name}{' --undo' if undo else ''} --wait again"
    if undo:
        return f"{name} does not come back: it was drained anew meanwhile; {again}"
    return f"{name} is not drained: it was restarted, or its drain taken back, meanwhile; {again}"


def said(told: Mapping[str, Any]) -> str:
    """How far it is, for people."""
    name = told["agent"]
    if not told["drained"]:
        return f"{name} takes clients again" if told["done"] else f"{name} comes back when it is well"
    if told["serves_alone"]:
        return f"{name} is to be drained, but no other agent is well now: it goes on serving"
    if told["done"]:
        return f"{name} is drained: it leads, coordinates and holds nothing"
    left = {
        "groups": told["groups_classic"] + told["groups_consumer"],
        "jobs": len(told["claims"]),
        "bytes that are being written": told["produce_held_bytes"],
        "waiting readers": told["fetch_parked"],
    }
    rest = ", ".join(f"{count} {what}" for what, count in left.items() if count)
    return f"{name} gives away: {rest or 'its place in Metadata'}"
