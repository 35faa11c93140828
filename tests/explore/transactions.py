"""Transactions: clients of v1 and v2 that send, give up, send again elsewhere; what was held arrives later.

One log; a request that arrives is applied at once, by the agent that it arrives at. Whatever agents, etcd and
the network do to it before, it is late, answered to nobody, delivered twice or never; all that is here. What
the client then does is what real ones do: the same request again on a new connection to either agent, or,
having waited for a Produce long enough, an abort (in v1 followed by InitProducerId, KIP-360).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator
from typing import cast

from agent.kafka.transactions.stamps import COUNTED, comes_again, stamp_after
from coordination.kafka_codes import Code
from coordination.state import ChunkCommitted, Done, Refused, State
from coordination.state.data import FEATURE_LEVEL_MAX
from coordination.state.fence import CLOSE
from tests.explore.check_transactions import Checker
from tests.explore.history import History, Numbers
from tests.explore.search import Said, Step
from tests.explore.speakers import Speaks
from tests.explore.transaction_language import AGENTS, GROUP, Requests
from tests.explore.transaction_worlds import (
    Chances,
    Client,
    Link,
    Message,
    Pair,
    Told,
    World,
    link_of,
    ranked,
    restamped,
    stamp_of,
    waits,
)

RECOVERABLE = (
    Code.TRANSACTION_ABORTABLE,
    Code.INVALID_PRODUCER_ID_MAPPING,
    Code.INVALID_PRODUCER_EPOCH,
)  # what a client may be told after a timeout, and nothing else
FENCED = ("add", "offsets", "end")
STAMPED = ("stamped though read", "stamped though counted")  # what stands behind gets the stamp as well


class Transactions:
    """The model. `broken`: a negative control of tests.explore.controls."""

    def __init__(
        self,
        speaks: tuple[Speaks, ...],
        chances: Chances,
        broken: str = "",
        *,
        tolerant: bool = False,
        reduced: bool = True,
    ) -> None:
        """`tolerant`: an error that a client should not have got is no finding: what comes of it may be.
        `reduced`: leave out orders that make no difference, and take worlds for one by meaning."""
        self.speaks = speaks
        self.reduced = reduced
        self.chances = chances
        self.broken = broken
        self.stories: Counter[str] = Counter()
        self.numbers = Numbers()
        self.history = History(Requests(speaks), self.numbers)
        self.checker = Checker(self.history, speaks, tolerant=tolerant)

    def start(self) -> World:
        """Agents and topic are there; every client has its pair and a connection to the first agent."""
        head = 0
        for place in range(len(AGENTS)):
            head = self._apply(head, place, ("register", place, ()))
        if self.history[head].state.feature_level < FEATURE_LEVEL_MAX:
            head = self._apply(head, 0, ("level", FEATURE_LEVEL_MAX, ()))
        head = self._apply(head, 0, ("topic", 2, ()))
        clients = []
        for number in range(len(self.speaks)):
            head = self._apply(head, 0, ("init", number, (-1, -1)))
            given = self._result(head)
            assert isinstance(given, Done), given
            pair = _pair(given)
            link = Link(0, 1, self.history[head].depth if self.speaks[number].asks else None)
            apart = self.speaks[number].apart
            own = None if apart < 0 else Link(apart, 2, link.stamp)
            clients.append(Client(pair, link, own, (0, 0), (Told(),), links=2))
        return World(head, tuple(clients), (), (), self.chances)

    def _apply(self, head: int, agent: int, item: tuple[str, int, Hashable]) -> int:
        author = AGENTS[agent]
        known = self.history[head].state.incarnations.get(author)
        return self.history.extend(head, (author, 1 + (known.sequence if known else 0), (item,)))

    def _result(self, head: int) -> Done | Refused | ChunkCommitted:
        applied = self.history[head].applied
        assert applied is not None, "nothing was applied"
        (result,) = applied.results
        assert isinstance(result, Done | Refused | ChunkCommitted)
        return result

    def findings(self, world: World) -> list[str]:
        """See check_transactions.py."""
        return self.checker.findings(world)

    # -- keys ------------------------------------------------------------------------------------------

    def key(self, world: World) -> Hashable:
        """Exact but for what is only compared: stamps, connections and counts stand by their rank. Not
        `reduced`: the whole log, entry by entry, and everything that clients remember."""
        if not self.reduced:
            return world
        number, node = self.numbers, self.history[world.head]
        clients = []
        for at, client in enumerate(world.clients):
            own = [each for each in world.flying if each.client == at]
            clients.append(number(self._client_key(at, client, own, node.state)))
        return (node.essence, *clients, number((world.proposals, world.chances)))

    def _client_key(self, at: int, client: Client, own: list[Message], state: State) -> Hashable:
        plain = client._replace(
            link=Link(client.link.agent, 0, 0), offsets_link=None, number=0, links=0,
            waiting=waits(client, own),
        )  # fmt: skip
        if not self.speaks[at].v2:
            known = state.transactions[f"x{at}"]
            return plain, ranked(client, own, known.last_end, known.groups.get(GROUP))
        flying = [
            (each.number == client.waiting, each.what, each.pair, each.sequence, each.link.agent)
            for each in own
        ]
        return plain, tuple(sorted(flying))

    # -- steps -----------------------------------------------------------------------------------------

    def steps(self, world: World) -> Iterator[Step]:
        """Clients that have something to say say it at once: nobody else hears it before it arrives."""
        for number, client in enumerate(world.clients):
            if not client.waiting and client.transaction < len(self.speaks[number].transactions):
                yield self._send(world, number)
                writes = self.speaks[number].writes_well and self._what(number, client)[0] == "send"
                if self.reduced or writes:
                    return
        for at, message in enumerate(world.flying):
            if message.what[0] == "send" and self.speaks[message.client].writes_well:
                yield next(self._arrive(world, at))
                return
        for number, client in enumerate(world.clients):
            if client.waiting:
                yield from self._give_up(world, number)
                yield from self._reconnect(world, number)
        for at in range(len(world.flying)):
            yield from self._arrive(world, at)
        yield from self._timeouts(world)

    def _what(self, number: int, client: Client) -> tuple[str, int, int]:
        if client.recovering:
            return "init", 0, client.transaction
        kind, argument = self.speaks[number].transactions[client.transaction][client.stage]
        aborts = kind == "end" and (client.spoiled or client.aborting)
        return kind, (0 if aborts else argument), client.transaction

    def _send(self, world: World, number: int) -> Step:
        """The client's request as it goes out now."""
        client = world.clients[number]
        what = self._what(number, client)
        kind, argument, _ = what
        sequence = client.sequences[argument] if kind == "send" else 0
        link = link_of(client, kind)
        message = Message(number, client.number + 1, link, what, client.pair, sequence)
        told = client.told[-1]
        if kind == "end" and argument not in told.asked:
            told = told._replace(asked=(*told.asked, argument))
        after = client._replace(number=message.number, waiting=message.number, told=(*client.told[:-1], told))
        sent = world.with_client(number, after)
        said = ("client {} sends {}", number, named(message))
        return said, sent._replace(flying=tuple(sorted((*world.flying, message))))

    def _give_up(self, world: World, number: int) -> Iterator[Step]:
        """No answer: the same again by another connection, or an abort. What was sent stays on its way."""
        client = world.clients[number]
        held = any(each.client == number and each.number == client.waiting for each in world.flying)
        if held and not world.chances.messages:
            return
        after = world.spend("messages") if held else world
        kind, argument, _ = self._what(number, client)
        for agent in range(len(AGENTS)):
            said = ("client {} gives {} up, connects to {}", number, f"{kind} {argument}", "ab"[agent])
            yield from self._connected(after, number, kind, agent, said)
        if world.chances.stays:
            stays = ("client {} gives {} up, and stays on its connection", number, f"{kind} {argument}")
            yield stays, after.spend("stays").with_client(number, client._replace(waiting=0))
        if kind in ("send", "offsets") and world.chances.aborts:
            last = len(self.speaks[number].transactions[client.transaction]) - 1
            gives_up = ("client {} waits no longer for {} and aborts", number, f"{kind} {argument}")
            aborting = client._replace(stage=last, spoiled=kind == "send", aborting=kind == "offsets")
            yield from self._connected(
                after.spend("aborts").with_client(number, aborting), number, kind, client.link.agent, gives_up
            )

    def _reconnect(self, world: World, number: int) -> Iterator[Step]:
        """The connection of TxnOffsetCommit was idle and is opened anew, by either agent."""
        client = world.clients[number]
        if not world.chances.reconnects or client.offsets_link is None:
            return
        kind, _, _ = self._what(number, client)
        if kind != "offsets":
            for agent in range(len(AGENTS)):
                said = ("client {} connects to {} for its positions", number, "ab"[agent])
                yield from self._connected(
                    world.spend("reconnects"), number, "offsets", agent, said, client.waiting
                )

    def _connected(
        self, world: World, number: int, kind: str, agent: int, said: Said, waiting: int = 0
    ) -> Iterator[Step]:
        """The connection by which requests of this kind go is another one from here on."""
        client = world.clients[number]
        for lags in (False, True)[: 1 + bool(world.chances.lags)]:
            stamp = 0 if lags else self.history[world.head].depth if self.speaks[number].asks else None
            link = Link(agent, client.links + 1, stamp)
            after = client._replace(waiting=waiting, links=link.number)
            if kind == "offsets" and client.offsets_link is not None:
                after = after._replace(offsets_link=link)
            else:
                after = after._replace(link=link)
            yield said, (world.spend("lags") if lags else world).with_client(number, after)

    def _arrive(self, world: World, at: int) -> Iterator[Step]:
        """A request arrives and is applied. Its answer arrives, or does not."""
        message = world.flying[at]
        if not self.speaks[message.client].asks and any(_in_front(each, message) for each in world.flying):
            return
        gone = world._replace(flying=(*world.flying[:at], *world.flying[at + 1 :]))
        client = world.clients[message.client]
        head = self._apply(world.head, message.link.agent, self._item(message))
        done, result = self._stamped(gone._replace(head=head), message, self._result(head))
        said = ("{} applies {}{}", "ab"[message.link.agent], named(message), "")
        if client.waiting != message.number:
            self._tell_late(world, message, result)
            yield (
                ("{} applies {}{}", "ab"[message.link.agent], named(message), ", which nobody waits for"),
                done,
            )
        else:
            for after in self._answered(done, message, result):
                yield said, after
            if world.chances.messages:
                yield ("{} applies {}{}", *said[1:3], "; its answer is lost"), done.spend("messages")
        # No network delivers a request twice by one connection, and the fence of v1 counts on that.
        comes_again = self.speaks[message.client].v2 or message.what[0] == "send"
        if world.chances.messages and comes_again:
            for again in self._answered(
                done._replace(flying=world.flying).spend("messages"), message, result
            ):
                yield ("{} applies {}{}", *said[1:3], ", and it will come again"), again

    def _item(self, message: Message) -> tuple[str, int, Hashable]:
        link = message.link
        fence = (link.number, link.stamp or 0)
        return message.what[0], message.client, (message.what, message.pair, message.sequence, fence)

    def _stamped(
        self, world: World, message: Message, result: Done | Refused | ChunkCommitted
    ) -> tuple[World, Done | Refused | ChunkCommitted]:
        """What the agent makes of the connection and of the fence's refusal (agent/kafka/transactions)."""
        refused = isinstance(result, Refused) and result.code is CLOSE
        if self.speaks[message.client].v2 or message.what[0] not in FENCED:
            return world, result
        link, client = message.link, world.clients[message.client]
        now = stamp_of(client, link)
        if now == COUNTED and self.broken == "stamped though counted":
            link, now = link._replace(stamp=None), None
        if refused and not comes_again(link.stamp, now):
            left = tuple(each for each in world.flying if not _same_link(each, message))
            return world._replace(flying=left), result
        if not (refused or isinstance(result, Done)):
            return world, result
        stamp = stamp_after(now, not refused, self.history[world.head].depth)
        own = client.offsets_link and restamped(client.offsets_link, link.number, stamp)
        known = client._replace(link=restamped(client.link, link.number, stamp), offsets_link=own)
        flying = world.flying
        if stamp == COUNTED or self.broken in STAMPED:  # else what was read by then has what it had
            flying = tuple(
                each._replace(link=restamped(each.link, link.number, stamp))
                if _same_link(each, message)
                else each
                for each in flying
            )
        if refused:
            self.stories["what proves nothing is to come again"] += 1
            result = Refused(Code.COORDINATOR_LOAD_IN_PROGRESS, "the connection proves nothing yet")
        return world._replace(flying=flying).with_client(message.client, known), result

    def _answered(
        self, world: World, message: Message, result: Done | Refused | ChunkCommitted
    ) -> Iterator[World]:
        """What the client makes of the answer, if it still waits for it."""
        client = world.clients[message.client]
        if client.waiting != message.number:
            yield world
            return
        code = Code.NONE
        if isinstance(result, Refused):
            code = Code(result.code)
        elif isinstance(result, ChunkCommitted):
            code = Code(result.errors[0])
        answered = client._replace(waiting=0)
        faults = self._faults(world)
        if code is CLOSE and faults:
            self.stories["a connection is closed by the fence"] += 1
            agent, said = message.link.agent, ("closed",)
            for _, after in self._connected(world, message.client, message.what[0], agent, said):
                yield after
        elif faults and code is Code.TRANSACTION_ABORTABLE and message.what[0] == "offsets":
            self.stories["a transaction can only be aborted"] += 1
            last = len(self.speaks[message.client].transactions[client.transaction]) - 1
            yield world.with_client(message.client, answered._replace(stage=last, aborting=True))
        elif code is Code.COORDINATOR_LOAD_IN_PROGRESS:
            yield world.with_client(message.client, answered)  # the same again
        elif code:
            yield world.with_client(message.client, self._failed(message, answered, code))
        else:
            yield world.with_client(message.client, self._went_well(message, answered, result))

    def _faults(self, world: World) -> bool:
        """Whether anything has happened for which the fence may close a connection."""
        left, given = world.chances, self.chances
        return (left.messages, left.aborts, left.lags) != (given.messages, given.aborts, given.lags)

    def _went_well(self, message: Message, client: Client, result: object) -> Client:
        kind, argument, _ = message.what
        told = client.told[-1]
        if kind == "send":
            sequences = tuple(s + (place == argument) for place, s in enumerate(client.sequences))
            told = told._replace(acked=(*told.acked, argument))
            return client._replace(
                stage=client.stage + 1, sequences=sequences, told=(*client.told[:-1], told)
            )
        if kind == "end":
            assert isinstance(result, Done)
            told = told._replace(outcome="committed" if argument else "aborted")
            return self._next(message.client, client, told, result)
        if kind == "init":
            assert isinstance(result, Done)
            return client._replace(pair=_pair(result), sequences=(0, 0), recovering=False)
        return client._replace(stage=client.stage + 1)

    def _next(self, number: int, client: Client, told: Told, result: Done) -> Client:
        """The next transaction; in v2 with the pair that the end answered with."""
        done = client._replace(told=(*client.told[:-1], told, Told()), stage=0, spoiled=False, aborting=False)
        if self.speaks[number].v2:
            return done._replace(pair=_pair(result), sequences=(0, 0))
        return done._replace(recovering=client.spoiled)

    def _failed(self, message: Message, client: Client, code: Code) -> Client:
        """After a timeout the client asks for its pair anew and goes on with its next transaction."""
        told = client.told[-1]
        allowed = self.chances.timeouts and code in RECOVERABLE
        outcome = "failed" if allowed else f"was told {code.name} for {named(message)}"
        if message.what[0] == "init" or not allowed:
            outcome = f"was told {code.name} for {named(message)}"
        return client._replace(
            told=(*client.told[:-1], told._replace(outcome=outcome), Told()),
            stage=0,
            recovering=True,
            spoiled=False,
            aborting=False,
        )

    def _timeouts(self, world: World) -> Iterator[Step]:
        """An agent proposes to abort what takes too long, by its number; the proposal may be late as well."""
        for at, (number, transaction) in enumerate(world.proposals):
            left = (*world.proposals[:at], *world.proposals[at + 1 :])
            known = self.history[world.head].state.transactions[f"x{number}"]
            meant = known.number if self.broken == "timeout without number" else transaction
            head = self._apply(world.head, 1, ("abort", number, meant))
            ended = isinstance(self._result(head), Done)
            assert not ended or known.number == transaction, (
                f"the timeout of transaction {transaction} ended transaction {known.number}"
            )
            yield (
                ("transaction {} of client {} times out", transaction, number),
                world._replace(head=head, proposals=left),
            )
        if world.chances.timeouts:
            for number in range(len(world.clients)):
                known = self.history[world.head].state.transactions[f"x{number}"]
                if known.ongoing:
                    proposed = (*world.proposals, (number, known.number))
                    said = ("b proposes to abort transaction {} of client {}", known.number, number)
                    yield said, world.spend("timeouts")._replace(proposals=proposed)

    def _tell_late(self, world: World, message: Message, result: object) -> None:
        known = self.history[world.head].state.transactions[f"x{message.client}"]
        if (
            message.what[0] == "end"
            and known.ongoing
            and message.what[2] < world.clients[message.client].transaction
        ):
            self.stories["a late EndTxn arrives in the next transaction"] += 1
            if isinstance(result, Refused) and result.code is CLOSE:
                self.stories["the fence sends a late EndTxn away"] += 1


def _same_link(one: Message, other: Message) -> bool:
    return one.client == other.client and one.link.number == other.link.number


def _in_front(one: Message, other: Message) -> bool:
    """Whether one connection carries both, this one first. Produce may come twice, and is left out."""
    fenced = one.what[0] in FENCED and other.what[0] in FENCED
    return fenced and _same_link(one, other) and one.number < other.number


def _pair(given: Done) -> Pair:
    """The producer's id and epoch that a command was answered with."""
    producer_id, epoch = cast(Pair, given.value)
    return producer_id, epoch


def named(message: Message) -> str:
    """For people."""
    kind, argument, transaction = message.what
    said = {
        "end": ("abort", "commit")[argument] if kind == "end" else "",
        "offsets": f"positions {argument} of {GROUP}",
    }
    what = said.get(kind, f"{kind} {argument}")
    return f"{what} of transaction {transaction} (request {message.number} of client {message.client})"
