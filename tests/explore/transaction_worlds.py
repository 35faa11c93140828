"""What a world of transactions holds: clients, connections, requests on their way; and its exact key."""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple

from agent.kafka.transactions.stamps import COUNTED
from coordination.state.transaction_types import LastEnd, Source

Pair = tuple[int, int]


class Link(NamedTuple):
    """A connection: to which agent, which one, and what it proves (agent/kafka/transactions/stamps.py).

    `stamp`: what the agent had applied when it was opened; None: the agent was not asked for ApiVersions. Of
    a message's link it is the one that it had when the message was read: as it was sent, at the latest.
    """

    agent: int
    number: int
    stamp: int | None


class Message(NamedTuple):
    """A request on its way. `number`: of the client's requests; `what`: kind, argument, transaction."""

    client: int
    number: int
    link: Link
    what: tuple[str, int, int]
    pair: Pair
    sequence: int


class Told(NamedTuple):
    """What a client knows of a transaction. `asked`: the ends it asked for; `outcome` as answered."""

    acked: tuple[int, ...] = ()
    asked: tuple[int, ...] = ()
    outcome: str = ""


class Client(NamedTuple):
    """A producer. `waiting`: the number of the request without an answer; 0: none. `offsets_link`: of its
    TxnOffsetCommit, when these have one of their own."""

    pair: Pair
    link: Link
    offsets_link: Link | None
    sequences: tuple[int, ...]
    told: tuple[Told, ...]
    stage: int = 0
    number: int = 0
    waiting: int = 0
    links: int = 1
    spoiled: bool = False  # a Produce was given up: v1 needs another epoch
    aborting: bool = False  # a TxnOffsetCommit was given up or refused
    recovering: bool = False
    timed_out: bool = False  # was told so: its next request may be too

    @property
    def transaction(self) -> int:
        """The one at work."""
        return len(self.told) - 1


class Chances(NamedTuple):
    """How often each misfortune may still happen."""

    messages: int = 0  # late, unanswered or twice
    timeouts: int = 0  # a transaction's time is over
    aborts: int = 0  # a client aborts because a Produce or a TxnOffsetCommit is not answered
    reconnects: int = 0  # the connection of TxnOffsetCommit is opened anew
    lags: int = 0  # a connection is opened to an agent that has applied nothing: it proves nothing
    stays: int = 0  # what was given up is sent again by the same connection, behind itself


class World(NamedTuple):
    """Everything."""

    head: int
    clients: tuple[Client, ...]
    flying: tuple[Message, ...]
    proposals: tuple[tuple[int, int], ...]  # timeouts on their way: (client, transaction's number)
    chances: Chances

    def with_client(self, number: int, client: Client) -> World:
        """The same with one client changed."""
        return self._replace(clients=(*self.clients[:number], client, *self.clients[number + 1 :]))

    def spend(self, what: str) -> World:
        """The same with one misfortune less to come."""
        return self._replace(chances=self.chances._replace(**{what: getattr(self.chances, what) - 1}))


def link_of(client: Client, kind: str) -> Link:
    """By which of its connections a request of this kind goes."""
    own = client.offsets_link
    return own if own is not None and kind == "offsets" else client.link


def stamp_of(client: Client, link: Link) -> int | None:
    """The stamp that one of its connections has by now; of one that it left, what is known of that."""
    mine = (client.link, client.offsets_link)
    return next((each.stamp for each in mine if each and each.number == link.number), link.stamp)


def restamped(link: Link, number: int, stamp: int | None) -> Link:
    """The connection, with another stamp if it is the one of that number."""
    return link._replace(stamp=stamp) if link.number == number else link


def ranked(client: Client, own: list[Message], last: LastEnd | None, source: Source | None) -> Hashable:
    """What the fence compares, each by its rank among what it is compared with."""
    seen = (last, source)
    mine = [each for each in (client.link, client.offsets_link) if each is not None]
    all_links = [*mine, *(each.link for each in own)]
    links = sorted({*(each.number for each in all_links), *(e.connection for e in seen if e is not None)})
    known = [each.stamp for each in all_links if each.stamp is not None]
    stamps = sorted({*known, *(e.revision for e in seen if e is not None)})
    asks = len(known) == len(all_links)

    def of_stamp(stamp: int | None) -> int:
        if stamp is None:
            return -1
        return stamps.index(stamp) if asks or stamp != COUNTED else -2

    def of_link(link: Link) -> tuple[int, int, int]:
        return link.agent, links.index(link.number), of_stamp(link.stamp)

    flying = [
        (each.number == client.waiting, each.what, each.pair, each.sequence, of_link(each.link))
        for each in own
    ]
    of_state = [
        () if e is None else (e.incarnation, links.index(e.connection), stamps.index(e.revision))
        for e in seen
    ]
    proven = source is not None and source.proven
    return tuple(map(of_link, mine)), tuple(sorted(flying)), *of_state, proven


def waits(client: Client, own: list[Message]) -> int:
    if not client.waiting:
        return 0
    return 1 if any(each.number == client.waiting for each in own) else 2
