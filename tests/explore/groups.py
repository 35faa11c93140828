"""Two agents that both believe that they coordinate one group, and a member that commits through either.

Each agent proposes from the state that it has, which may be old: a generation with whomever it has heard of,
the assignments of a generation that lacks them. What it took reaches the log when it likes, in its own order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator
from typing import Any, NamedTuple

from google.protobuf.message import Message

from coordination.commands import (
    AssignClassicGeneration,
    ClassicMember,
    CommitOffsets,
    CreateTopic,
    PutClassicGeneration,
    RegisterAgent,
    command,
)
from coordination.state import Done, State
from coordination.state.group_offsets import position_of
from tests.explore.history import History, Node, Numbers
from tests.explore.search import Step
from tests.explore.transaction_language import AGENTS, GROUP

MEMBER, OTHER = "m", "n"
Item = tuple[str, tuple[Any, ...]]


class Client(NamedTuple):
    """The member that commits 1, 2, …: `waiting` for an agent's answer to try `tried`; -1: for none."""

    generation: int = 0
    acked: int = 0
    waiting: int = -1
    tried: int = 0


class World(NamedTuple):
    """`queues`: per agent what it has taken and not appended; `sent`: appended, not applied by it."""

    head: int
    nodes: tuple[int, ...]
    queues: tuple[tuple[Item, ...], ...]
    client: Client
    proposals: int
    late: int
    commits: int


class Commands:
    """See Language."""

    def encode(self, author: int, item: Item) -> bytes:
        """See Language."""
        kind, fields = item
        made: Message
        match kind:
            case "register":
                made = RegisterAgent(name=fields[0], node_id=-1, feature_min=1, feature_max=1)
            case "topic":
                made = CreateTopic(name="t", topic_id=bytes(16), partitions=1)
            case "put":
                members = [
                    ClassicMember(
                        member_id=name, protocols=[ClassicMember.Protocol(name="range", metadata=b"")]
                    )
                    for name in fields[1]
                ]
                made = PutClassicGeneration(
                    group=GROUP, expected_revision=fields[0], protocol_type="x", protocol="range",
                    leader=fields[1][0], members=members,
                )  # fmt: skip
            case "assign":
                made = AssignClassicGeneration(
                    group=GROUP,
                    expected_revision=fields[0],
                    member_id=[MEMBER],
                    assignment=[fields[1].encode()],
                )
            case _:
                made = CommitOffsets(
                    group=GROUP, generation=fields[0], member_id=MEMBER, partition=[0], offset=[fields[1]],
                    seen_revision=fields[2],
                )  # fmt: skip
        return command(made).SerializeToString()

    def essence(self, node: Node) -> Hashable:
        """The group with its revisions, which later proposals name."""
        group = node.state.groups.get(GROUP)
        if group is None:
            return node.depth if node.depth < len(AGENTS) + 1 else 0
        return (
            generation_of(node.state),
            group.revision,
            group.committer,
            group.committed_revision,
            position(node),
        )


def generation_of(state: State) -> tuple[int, tuple[tuple[str, bytes], ...], bool]:
    """Its number, its members with what they were given, and whether that is decided."""
    group = state.groups.get(GROUP)
    if group is None or group.classic is None:
        return 0, (), False
    known = group.classic
    members = tuple((name, member.assignment) for name, member in known.members.items())
    return known.generation, members, known.assigned


def position(node: Node) -> int:
    """The group's position; 0 for none."""
    found = position_of(node.state, GROUP, 0)
    return 0 if found is None else found.offset


class Groups:
    """The model."""

    def __init__(self, proposals: int, late: int, commits: int = 2) -> None:
        self._bounds = proposals, late, commits
        self.stories: Counter[str] = Counter()
        self.numbers = Numbers()
        self.history = History(Commands(), self.numbers)

    def start(self) -> World:
        """Agents and topic are there; the group is not."""
        head = 0
        for agent, name in enumerate("ab"):
            head = self._append(head, agent, ("register", (name,)))
        head = self._append(head, 0, ("topic", ()))
        return World(head, (head, head), ((), ()), Client(), *self._bounds)

    def _append(self, head: int, agent: int, item: Item) -> int:
        known = self.history[head].state.incarnations.get(AGENTS[agent])
        return self.history.extend(head, (AGENTS[agent], 1 + (known.sequence if known else 0), (item,)))

    def key(self, world: World) -> Hashable:
        """Exact: the entries that an agent has not applied are named by their nodes."""
        return (self.numbers(tuple(world)),)

    def findings(self, world: World) -> list[str]:
        """A generation is what it was once decided, and no position goes back within it."""
        node = self.history[world.head]
        before = self.history[node.parent]
        number, members, _ = generation_of(node.state)
        earlier, had, decided = generation_of(before.state)
        found = []
        if number < earlier:
            found.append(f"generation {number} follows {earlier}")
        if number == earlier and decided and members != had:
            found.append(f"two coordinators: generation {number} was {had}, is {members}")
        if number == earlier and position(node) < position(before):
            found.append(
                f"nonmonotonic position: {position(before)}, then {position(node)}, in generation {number}"
            )
        return found

    def steps(self, world: World) -> Iterator[Step]:
        """Agents apply, propose and append; the member joins, commits, gives up."""
        for agent, node in enumerate(world.nodes):
            if node != world.head:
                yield self._apply(world, agent)
            if world.queues[agent]:
                yield self._land(world, agent)
            if world.proposals:
                yield from self._propose(world, agent)
        yield from self._member(world)

    def _apply(self, world: World, agent: int) -> Step:
        node = self.history.following(world.nodes[agent], world.head)
        after = world._replace(nodes=_with(world.nodes, agent, node))
        made = self.history[node]
        assert made.content is not None
        assert made.applied is not None
        author, _, ((kind, fields),) = made.content
        client = world.client
        said = ("{} applies {} of {}", "ab"[agent], f"{kind} {fields}", author)
        if (
            author == AGENTS[agent]
            and kind == "commit"
            and client.waiting == agent
            and fields[3] == client.tried
        ):
            well = isinstance(made.applied.results[0], Done)
            acked = fields[1] if well else client.acked
            after = after._replace(client=client._replace(acked=acked, waiting=-1))
        return said, after

    def _land(self, world: World, agent: int) -> Step:
        item, *rest = world.queues[agent]
        head = self._append(world.head, agent, item)
        said = ("{} appends {}", "ab"[agent], f"{item[0]} {item[1]}")
        return said, world._replace(head=head, queues=_with(world.queues, agent, tuple(rest)))

    def _propose(self, world: World, agent: int) -> Iterator[Step]:
        state = self.history[world.nodes[agent]].state
        group = state.groups.get(GROUP)
        expected = 0 if group is None else group.revision
        number, members, assigned = generation_of(state)
        items: list[Item] = [("put", (expected, (MEMBER,))), ("put", (expected, (OTHER, MEMBER)))]
        if members and not assigned:
            items.append(("assign", (expected, "ab"[agent])))
        for item in items:
            if any(kind in ("put", "assign") for kind, _ in world.queues[agent]):
                return
            if any(kind in ("put", "assign") for kind, _ in world.queues[1 - agent]):
                self.stories["two agents coordinate one group"] += 1
            queues = _with(world.queues, agent, (*world.queues[agent], item))
            said = ("{} proposes {} after generation {}", "ab"[agent], f"{item[0]} {item[1]}", number)
            yield said, world._replace(queues=queues, proposals=world.proposals - 1)

    def _member(self, world: World) -> Iterator[Step]:
        client = world.client
        for agent, node in enumerate(world.nodes):
            number, members, assigned = generation_of(self.history[node].state)
            known = assigned and any(name == MEMBER for name, _ in members)
            if known and number > client.generation and client.waiting < 0:
                after = client._replace(generation=number)
                yield (
                    ("the member joins generation {} by {}", number, "ab"[agent]),
                    world._replace(client=after),
                )
            late = client.waiting >= 0
            if not client.generation or client.acked == world.commits or (late and not world.late):
                continue
            sent = client._replace(waiting=agent, tried=client.tried + 1)
            seen = self.history[node].depth
            item = ("commit", (client.generation, client.acked + 1, seen, sent.tried))
            queues = _with(world.queues, agent, (*world.queues[agent], item))
            if late or sent.tried <= world.commits + self._bounds[1]:
                said = (
                    "the member commits {} by {}{}",
                    client.acked + 1,
                    "ab"[agent],
                    " again" if late else "",
                )
                yield said, world._replace(queues=queues, client=sent, late=world.late - late)


def _with(values: tuple[Any, ...], place: int, value: Any) -> tuple[Any, ...]:
    return (*values[:place], value, *values[place + 1 :])
