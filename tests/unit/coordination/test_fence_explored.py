"""The connection fence of transactions v1 over every order of what may happen to a client's requests.

One client commits transactions one after the other. Each of its requests is answered, or applied and its
answer lost, or held; when it gets no answer it gives the connection up, opens another one to either agent and
sends the request again. What is held arrives whenever it likes. Nothing may end a transaction that the client
has not asked to end, and a request on a fresh connection is sent away only when something held came after the
connection was opened. The apply is the real one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from coordination.commands import Fence
from coordination.state import Done, Refused, Result, fence
from coordination.state.fence import CLOSE
from coordination.state.transaction_types import Transaction
from coordination.state.types import At
from tests.unit.coordination.kit import Producer, Script

AGENTS = (11, 12)
TRANSACTIONS = 2
ANSWERED, LOST, HELD = range(3)


class Broken(AssertionError):
    """The fence let through what it must not, or sent away what it must not."""


class Oracle:
    """Takes the choices of `prefix`, then always the first; `trail` is what was chosen, and of how many."""

    def __init__(self, prefix: list[int]) -> None:
        self._prefix = prefix
        self.trail: list[tuple[int, int]] = []

    def choose(self, options: int) -> int:
        """One of 0 … options - 1."""
        place = len(self.trail)
        chosen = self._prefix[place] if place < len(self._prefix) else 0
        self.trail.append((chosen, options))
        return chosen


@dataclass
class Connection:
    """One that the client opened: to whom, and what the agent noted of it."""

    agent: int
    number: int
    stamp: int
    arrived: int
    sent: int = 0


@dataclass
class World:
    """The client, its connections, and what is on its way."""

    oracle: Oracle
    gives_up_max: int
    script: Script = field(default_factory=Script)
    held: list[Callable[[], Result]] = field(default_factory=list)
    connections: int = 0
    gave_up: int = 0
    arrived: int = 0

    def run(self) -> None:
        """All transactions, from the first request to the last."""
        for agent in AGENTS:
            self.script.register(agent)
        self.script.topic(AGENTS[0], "t")
        self.producer = Producer(self.script, AGENTS[0], "x", v2=False)
        self.producer.init()
        self.connection = self.connect()
        for number in range(1, TRANSACTIONS + 1):
            self.request("add")
            self.deliver()
            state = self.script.state.transactions["x"]
            if not state.ongoing or state.number != number:
                raise Broken(f"transaction {number} was ended by nobody: {state}")
            self.request("end")

    def connect(self) -> Connection:
        """A new connection to either agent; its ApiVersions is answered at once."""
        self.connections += 1
        agent = AGENTS[self.oracle.choose(2)] if self.connections > 1 else AGENTS[0]
        return Connection(agent, self.connections, self.script.state.revision, self.arrived)

    def request(self, what: str) -> None:
        """Send until there is an answer."""
        while True:
            self.deliver()
            message = self.message(what)
            fate = self.oracle.choose(3) if self.gave_up < self.gives_up_max else ANSWERED
            if fate == HELD:
                self.held.append(message)
            else:
                result = message()
                if isinstance(result, Refused) and result.code is CLOSE:
                    if self.connection.sent == 1 and self.arrived == self.connection.arrived:
                        raise Broken(f"{what} on a fresh connection was sent away")
                    self.connection = self.connect()
                    continue
                if not isinstance(result, Done):
                    raise Broken(f"{what} was answered with {result}")
                if fate == ANSWERED:
                    return
            self.gave_up += 1
            self.connection = self.connect()

    def message(self, what: str) -> Callable[[], Result]:
        """The request as it goes out now."""
        connection = self.connection
        connection.sent += 1
        made, agent = Fence(connection=connection.number, stamp=connection.stamp), connection.agent

        def arrive() -> Result:
            self.producer.author = agent
            if what == "add":
                return self.producer.add(0, fence=made)
            return self.producer.end(commit=True, fence=made)

        return arrive

    def deliver(self) -> None:
        """Any of what is held, or nothing, arrives now."""
        while self.held:
            chosen = self.oracle.choose(len(self.held) + 1)
            if not chosen:
                return
            self.held.pop(chosen - 1)()
            self.arrived += 1


def explore(gives_up_max: int) -> int:
    """Run every order; how many there are. Raises Broken."""
    prefix: list[int] = []
    runs = 0
    while True:
        oracle = Oracle(prefix)
        World(oracle, gives_up_max).run()
        runs += 1
        trail = oracle.trail
        while trail and trail[-1][0] + 1 == trail[-1][1]:
            trail.pop()
        if not trail:
            return runs
        prefix = [chosen for chosen, _ in trail[:-1]] + [trail[-1][0] + 1]


def test_no_order_of_events_ends_a_transaction_early() -> None:
    assert explore(2) > 500


def test_without_the_fence_some_order_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fence, "refusal", lambda transaction, made, at: None)
    with pytest.raises(Broken, match="ended by nobody"):
        explore(2)


def test_the_fence_as_first_designed_has_a_hole(monkeypatch: pytest.MonkeyPatch) -> None:
    """Noting only the end itself: a second try of EndTxn may sit on a connection younger than the end."""
    note = fence.note_end

    def only_ends(transaction: Transaction, made: Fence | None, at: At) -> None:
        if transaction.number not in noted:
            noted.append(transaction.number)
            note(transaction, made, at)

    noted: list[int] = []
    run = World.run

    def fresh(world: World) -> None:
        noted.clear()
        run(world)

    monkeypatch.setattr(World, "run", fresh)
    monkeypatch.setattr(fence, "note_end", only_ends)
    with pytest.raises(Broken, match="ended by nobody"):
        explore(2)
