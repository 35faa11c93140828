"""A member of etcd gets another log on its disk; and what tests of that see of agents."""

from __future__ import annotations

import base64
import json
import time
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from coordination.commands import Entry
from deploy.services.etcd import Etcd
from deploy.services.floe import FloeAgent

LOG = "/floe/floe/log/"
SECONDS_MAX = 120  # then something is stuck


class Victim(NamedTuple):
    """An entry that commits a chunk, its revision, and what it becomes: of the same length, and readable."""

    revision: int
    payload: bytes
    changed: bytes


def victims(sound: Etcd) -> Iterator[Victim]:
    """Two partitions change places: their records are each other's. There may be none yet."""
    begin, end = (base64.b64encode(each.encode()).decode() for each in (LOG, LOG[:-1] + "0"))
    answer = sound._call("kv/range", {"key": begin, "range_end": end, "sort_target": "MOD", "limit": 0})
    for each in answer.get("kvs", ()):
        payload = base64.b64decode(each["value"])
        entry = Entry.FromString(payload)
        for command in entry.commands:
            handles = command.commit_chunk.partition
            if len(set(handles)) >= 2:
                handles[0], handles[1] = handles[1], handles[0]
                changed = entry.SerializeToString()
                if len(changed) == len(payload):
                    yield Victim(int(each["mod_revision"]), payload, changed)


def change_disk(member: Etcd, victim: Victim) -> None:
    """The member's `db` says something else when it starts again: etcd has no checksum of values."""
    member.terminate()
    path = member.data / "member" / "snap" / "db"
    content = path.read_bytes()
    assert victim.payload in content, "the member has the entry in its db"
    path.write_bytes(content.replace(victim.payload, victim.changed))
    member.start()


def status(agent: FloeAgent) -> dict[str, Any]:
    """The agent's own page; `ready` alone, and false, where it does not answer."""
    try:
        with urllib.request.urlopen(f"{agent.http}/status", timeout=30) as response:
            told: dict[str, Any] = json.load(response)
            return told
    except OSError:
        return {"ready": False}


def told_by(agent: FloeAgent, event: str) -> str:
    """Lines of its log that have `event` in them."""
    lines = agent.log_path.read_text(errors="replace").splitlines()
    return "\n".join(line for line in lines if event in line)


def until(condition: Callable[[], bool], what: str) -> None:
    """Wait. Raises AssertionError where it does not come."""
    deadline = time.monotonic() + SECONDS_MAX
    while not condition():
        assert time.monotonic() < deadline, f"not within {SECONDS_MAX} s: {what}"
        time.sleep(0.2)
