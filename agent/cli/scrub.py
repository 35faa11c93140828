"""What `floe bucket scrub` does: have an agent read the bucket again now, and say what it found."""

from __future__ import annotations

import asyncio
from typing import Any

from agent.cli import agent_http
from agent.cli.failures import refused
from agent.cli.output import print_table, progress, remarks, results
from coordination.clock import SystemClock

PATH = "/admin/scrub"
LOOK_S = 0.5
"""Between two looks at how far it is."""
CLOCK = SystemClock()
_TOLD = (
    ("harmless", "objects are damaged where nothing refers to them any more"),
    ("strays", "objects are not Floe's, or of authors that the log does not know"),
    ("unread", "objects could not be read: the store gave an error"),
)


async def run(http: str, bytes_per_s: int | None, *, repair: bool) -> dict[str, Any]:
    """Begin a run at the agent (or join the one that goes on) and wait for its end.

    Raises Failure, also where the one that goes on mends nothing, and was to.
    """
    wanted = {"repair": repair, "bytes_per_s": bytes_per_s}
    told: dict[str, Any] = agent_http.ask(http, PATH, wanted)["now"]
    if repair and not told["repair"]:
        what = "scrubs the bucket already, and that run mends nothing"
        raise refused(f"the agent at {http} {what}: give --repair again when it is over")
    began = told["began_ms"]
    with progress() as bar:
        task = bar.add_task("scrubbing", total=None)
        while not told["done"]:
            bar.update(task, description=line(told))
            await CLOCK.sleep(LOOK_S)
            found = await asyncio.to_thread(agent_http.ask, http, PATH)
            told = found.get("now") or {}
            if told.get("began_ms") != began:
                raise refused(f"the agent at {http} was restarted meanwhile: run it again")
    return told


def line(told: dict[str, Any]) -> str:
    """How far it is: the part, what was read, at which rate, what was found."""
    per_s = told["bytes"] / told["seconds"] if told["seconds"] else 0.0
    figures = f"{told['objects']} objects, {told['bytes'] / 1e6:.1f} MB, {per_s / 1e6:.1f} MB/s"
    mended = f"repaired {told['repaired']}" if told["repair"] else f"repairable {told['repairable']}"
    return f"{'all' if told['done'] else told['part']}: {figures}; found {told['found']}, {mended}"


def say(told: dict[str, Any]) -> None:
    """The end, for people."""
    results().print(line(told))
    rows = []
    for each in told["beyond_repair"]:
        places = [f"{p['topic']}-{p['partition']} [{p['start']}, {p['end']})" for p in each["places"]]
        rows.append((each["key"], each["reason"], "; ".join(places) or each["table"] or "-"))
    if rows:
        print_table(("beyond repair", "problem", "records"), rows)
        remarks().print(
            "restore these objects under their names from the bucket's versions, or let readers go on "
            "without: floe topic skip-damaged TOPIC --partition P",
            style="dim",
        )
    for name, what in _TOLD:
        if told[name]:
            remarks().print(f"{told[name]} {what}", style="dim")
    if told["repairable"]:
        remarks().print("to mend what can be: floe bucket scrub --repair", style="dim")
