"""A member of the log has another log on its disk than the others, and an agent starts at it (decision 0043).

Chunks that were committed are not in some of its entries: their records would be gone, and what comes later
would have other offsets. The agent reads all of it anew, since it has just died. A story (plans/) tells it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from coordination.commands import Entry, Heartbeat, command
from coordination.log import LogEntry
from tests.sim.faults.fault import Fault
from tests.sim.node import AgentNode

if TYPE_CHECKING:
    from tests.sim.world import World

MEMBER = 2
ALTERED_MAX = 5  # entries


def _differ(world: World, targets: Sequence[AgentNode]) -> None:
    entries, _ = world.server.read(0, 1 << 30)
    chosen = [each for each in entries if _commits(each)][-ALTERED_MAX:]
    for each in chosen:
        world.server.alter(MEMBER, _altered(each))
    world.witness.altered = world.server.altered
    for agent in targets:
        agent.crash()
        agent.member = MEMBER


def _commits(entry: LogEntry) -> bool:
    commands = Entry.FromString(entry.payload).commands
    return any(each.WhichOneof("kind") == "commit_chunk" for each in commands)


def _altered(entry: LogEntry) -> LogEntry:
    message = Entry.FromString(entry.payload)
    for each in message.commands:
        if each.WhichOneof("kind") == "commit_chunk":
            each.CopyFrom(command(Heartbeat()))
    return replace(entry, payload=message.SerializeToString())


def _start(world: World, targets: Sequence[AgentNode]) -> None:
    """Its disk stays as it is: who follows it must find out."""
    del world
    for agent in targets:
        if not agent.alive:
            agent.start()


COPIES = (Fault("member-differs", _differ, _start),)
