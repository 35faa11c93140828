"""What `floe topic skip-damaged` does: ask an agent what is damaged, and decide to go on without."""

from __future__ import annotations

import getpass
from typing import Any

from agent.cli import agent_http
from agent.cli.output import progress, remarks, results

RANGES_PER_REQUEST_MAX = 1_000  # as the agent takes them


def find(http: str, topic: str, partition: int, start: int) -> list[dict[str, Any]]:
    """The damaged ranges from `start` to the end, as the agent reads the store. Raises Failure."""
    damaged: list[dict[str, Any]] = []
    with progress() as bar:
        task = bar.add_task(f"reading {topic}-{partition}", total=None)
        while True:
            path = f"/admin/topics/{topic}/damaged?partition={partition}&from={start}"
            found = agent_http.ask(http, path)
            damaged += found["damaged"]
            bar.update(task, total=found["end"], completed=found["to"])
            if found["to"] >= found["end"] or found["to"] <= start:
                return damaged
            start = found["to"]


def skip(http: str, topic: str, partition: int, damaged: list[dict[str, Any]], by: str) -> None:
    """Have the cluster note that these are passed over. Raises Failure."""
    ranges = [[each["from_offset"], each["to_offset"]] for each in damaged]
    for first in range(0, len(ranges), RANGES_PER_REQUEST_MAX):
        body = {
            "partition": partition,
            "ranges": ranges[first : first + RANGES_PER_REQUEST_MAX],
            "by": by,
        }
        agent_http.ask(http, f"/admin/topics/{topic}/skipped", body)


def skipped(http: str, topic: str) -> list[dict[str, Any]]:
    """All ranges of the topic that are passed over. Raises Failure."""
    found: list[dict[str, Any]] = agent_http.ask(http, f"/admin/topics/{topic}/skipped")["skipped"]
    return found


def whoever() -> str:
    """Who runs the command, as far as the system knows."""
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):
        return "floe topic skip-damaged"


def say(topic: str, partition: int, damaged: list[dict[str, Any]], *, recorded: bool) -> None:
    """What was found, for people."""
    name = f"{topic}-{partition}"
    if not damaged:
        results().print(f"nothing of {name} is damaged")
        return
    new = [each for each in damaged if not each["skipped"]]
    offsets = sum(each["to_offset"] - each["from_offset"] for each in new)
    if not new:
        remarks().print(f"all of it is passed over already: readers of {name} go on behind it", style="dim")
    elif recorded:
        remarks().print(f"{offsets} offsets of {name} are passed over from now on", style="dim")
    else:
        remarks().print(
            f"to go on without these {offsets} offsets: floe topic skip-damaged {topic} "
            f"--partition {partition} --yes; an object that comes back is read again"
        )
