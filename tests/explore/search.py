"""Visits every world that can be reached, once. Breadth first, so that a finding comes with a shortest story."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import blake2b

from coordination.commands import CreateTopic, command
from coordination.state import StateError
from tests.explore.check import findings
from tests.explore.history import History
from tests.explore.moves import Moves, Scope
from tests.explore.world import Agent, Budget, Client, Etcd, Ready, World

Story = tuple["Story | None", str]


@dataclass
class Outcome:
    """`states` visited, `depth` of the longest shortest story, `found` with the `story` that leads to it."""

    states: int = 0
    depth: int = 0
    complete: bool = False
    found: list[str] = field(default_factory=list)
    story: list[str] = field(default_factory=list)


def explore(
    scope: Scope,
    budget: Budget,
    states_max: int = 1 << 62,
    tell: Callable[[int, int], None] = lambda states, depth: None,
) -> Outcome:
    """Look at everything. Stops at the first finding."""
    history = History(scope.state)
    moves = Moves(scope, history)
    world = beginning(moves, budget)
    outcome = Outcome()
    seen = {_key(world, history)}
    waiting: deque[tuple[World, int, Story | None]] = deque([(world, 0, None)])
    checked: dict[tuple[object, ...], list[str]] = {}
    while waiting and outcome.states < states_max:
        world, depth, story = waiting.popleft()
        outcome.states += 1
        outcome.depth = depth
        if outcome.states % 10_000 == 0:
            tell(outcome.states, depth)
        steps = moves.steps(world)
        while True:
            said = ""
            try:
                said, after = next(steps)
                key = _key(after, history)
                if key in seen:
                    continue
                seen.add(key)
                relevant = (after.etcd.head, after.stored, tuple(c.acked for c in after.clients))
                if relevant not in checked:
                    checked[relevant] = findings(after, history, scope)
                found = checked[relevant]
            except StopIteration:
                break
            except (StateError, AssertionError) as error:
                said, found, after = said or "the next step", [f"stopped: {error}"], world
            if found:
                outcome.found, outcome.story = found, _told((story, said))
                return outcome
            waiting.append((after, depth + 1, (story, said)))
    outcome.complete = not waiting
    return outcome


def beginning(moves: Moves, budget: Budget) -> World:
    """All agents registered, the topic there and known to all."""
    scope = moves.scope
    agents = tuple(Agent(chr(ord("a") + number)) for number in range(scope.agents))
    world = World(agents, tuple(Client() for _ in scope.targets), Etcd(0, 0, (), 0), (), (), (), Budget(*[0] * 9))
    topic = CreateTopic(name="t", topic_id=bytes(16), partitions=scope.partitions)
    for number in range(scope.agents):
        world = _settled(moves, moves._register(world, number))
    agent = world.agents[0]
    world = world.with_agent(0, agent._replace(queue=(Ready(command(topic).SerializeToString(), (), 0),)))
    return _settled(moves, world)._replace(budget=budget)


def _settled(moves: Moves, world: World) -> World:
    """Let agents and etcd do what they can, clients nothing."""
    idle = ("client", "the lease", "{} registers")
    while True:
        steps = [after for said, after in moves.steps(world) if not said.startswith(idle) and "registers" not in said]
        if not steps:
            return world
        world = steps[0]


def _key(world: World, history: History) -> bytes:
    """What tells worlds apart: the state's content, not the order of events that made it."""
    head = world.etcd.head
    agents = [
        (agent._replace(node=0), history[agent.node].canon, history.between(agent.node, head))
        for agent in world.agents
    ]
    etcd = world.etcd._replace(head=0, trimmed=0)
    trimmed = history[world.etcd.trimmed].depth - history[head].depth
    rest = (world.clients, etcd, world.stored, world.sends, world.attempts, world.budget)
    return blake2b(repr((agents, history[head].canon, trimmed, rest)).encode(), digest_size=16).digest()


def _told(story: Story | None) -> list[str]:
    lines = []
    while story is not None:
        story, said = story
        lines.append(said)
    return lines[::-1]
