"""The order of effects on one connection: a request sees all that came before it there.

Kafka reads a connection's next request only when the last one is answered, long polls included. Clients
count on it, so requests take turns here too. What overlaps: Produces with one another, and commits of
positions with one another. Each waits for the log, and their handlers keep their order. Answers leave in the
order of requests anyway, so a turn costs a request its own time of work, never the wait for those before it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from enum import Enum
from typing import Any, Final

from agent.net.wire.errors import WireError


class Kind(Enum):
    """What an API is to the requests around it on its connection."""

    READ = "tells something; worth nothing once nobody listens"
    POLL = "waits for others, as long as the client or its group says; worth nothing once nobody listens"
    WRITE = "changes something, or keeps something alive"
    PRODUCE = "changes something; overlaps with its own kind, which the handler admits in order"
    COMMIT = "as PRODUCE, for a group's positions"


OVERLAPPING: Final = (Kind.PRODUCE, Kind.COMMIT)
DROPPED: Final = (Kind.READ, Kind.POLL)
"""What is not begun any more when its connection is gone."""

METADATA: Final = 3
FETCH: Final = 1

KINDS: Final[dict[int, Kind]] = {
    0: Kind.PRODUCE,
    1: Kind.POLL,  # Fetch
    2: Kind.READ,  # ListOffsets
    3: Kind.WRITE,  # Metadata may create topics
    8: Kind.COMMIT,  # OffsetCommit
    9: Kind.READ,  # OffsetFetch
    10: Kind.READ,  # FindCoordinator
    11: Kind.POLL,  # JoinGroup
    12: Kind.WRITE,  # Heartbeat
    13: Kind.WRITE,  # LeaveGroup
    14: Kind.POLL,  # SyncGroup
    15: Kind.READ,  # DescribeGroups
    16: Kind.READ,  # ListGroups
    17: Kind.WRITE,  # SaslHandshake
    18: Kind.READ,  # ApiVersions
    19: Kind.WRITE,  # CreateTopics
    20: Kind.WRITE,  # DeleteTopics
    21: Kind.WRITE,  # DeleteRecords
    22: Kind.WRITE,  # InitProducerId
    23: Kind.READ,  # OffsetForLeaderEpoch
    24: Kind.WRITE,  # AddPartitionsToTxn
    25: Kind.WRITE,  # AddOffsetsToTxn
    26: Kind.WRITE,  # EndTxn
    27: Kind.WRITE,  # WriteTxnMarkers
    28: Kind.WRITE,  # TxnOffsetCommit
    29: Kind.READ,  # DescribeAcls
    30: Kind.WRITE,  # CreateAcls
    31: Kind.WRITE,  # DeleteAcls
    32: Kind.READ,  # DescribeConfigs
    33: Kind.WRITE,  # AlterConfigs
    34: Kind.WRITE,  # AlterReplicaLogDirs
    35: Kind.READ,  # DescribeLogDirs
    36: Kind.WRITE,  # SaslAuthenticate
    37: Kind.WRITE,  # CreatePartitions
    38: Kind.WRITE,  # CreateDelegationToken
    39: Kind.WRITE,  # RenewDelegationToken
    40: Kind.WRITE,  # ExpireDelegationToken
    41: Kind.READ,  # DescribeDelegationToken
    42: Kind.WRITE,  # DeleteGroups
    43: Kind.WRITE,  # ElectLeaders
    44: Kind.WRITE,  # IncrementalAlterConfigs
    45: Kind.WRITE,  # AlterPartitionReassignments
    46: Kind.READ,  # ListPartitionReassignments
    47: Kind.WRITE,  # OffsetDelete
    48: Kind.READ,  # DescribeClientQuotas
    49: Kind.WRITE,  # AlterClientQuotas
    50: Kind.READ,  # DescribeUserScramCredentials
    51: Kind.WRITE,  # AlterUserScramCredentials
    55: Kind.READ,  # DescribeQuorum
    57: Kind.WRITE,  # UpdateFeatures
    60: Kind.READ,  # DescribeCluster
    61: Kind.READ,  # DescribeProducers
    65: Kind.READ,  # DescribeTransactions
    66: Kind.READ,  # ListTransactions
    68: Kind.WRITE,  # ConsumerGroupHeartbeat
    69: Kind.READ,  # ConsumerGroupDescribe
    74: Kind.READ,  # ListConfigResources
    75: Kind.READ,  # DescribeTopicPartitions
}
"""Every API that has a handler; tests/unit/agent/kafka/test_order.py misses one that does not stand here."""

LARGE: Final = frozenset({METADATA, *(key for key, kind in KINDS.items() if kind in DROPPED)})
"""What is not begun while the connection's client leaves its answers unread: it would have more of them."""

ENDED: Final = frozenset({FETCH, *(key for key, kind in KINDS.items() if kind is Kind.READ)})
"""What ends with its connection; other polls end their own way, and writes go on."""

UNHEARD: Final = "the connection ended before this request's turn"


class Unheard(WireError):
    """The connection ended before this request's turn: nothing of it happened."""


class Turns:
    """Who works on one connection, and who waits. A request takes its turn, works, and ends it."""

    def __init__(self) -> None:
        self._kind = Kind.READ
        self._running = 0
        self._waiting: deque[tuple[Kind, asyncio.Future[None]]] = deque()
        self._failed = self._closed = False

    @property
    def closed(self) -> bool:
        """Whether the connection is gone."""
        return self._closed

    @property
    def waiting(self) -> int:
        """Requests whose turn has not come."""
        return len(self._waiting)

    def at_once(self, kind: Kind) -> bool:
        """Begin if nothing stands before it; whoever gets False has to `wait`."""
        if self._waiting or not self._may_begin(kind) or self._refuses(kind):
            return False
        self._begin(kind)
        return True

    async def wait(self, kind: Kind) -> None:
        """Begin when everything before it has ended. Raises Unheard when the connection ends first."""
        if self._refuses(kind):
            raise Unheard(UNHEARD)
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = (kind, future)
        self._waiting.append(entry)
        self._wake()
        try:
            await future
            if self._failed:  # after it was told to begin, and before it did
                raise Unheard(UNHEARD)
        except BaseException:
            if entry in self._waiting:
                self._waiting.remove(entry)
            self._wake()
            raise
        # Only now does it leave the line: whoever came while it was being woken must not pass it.
        self._waiting.popleft()
        self._begin(kind)
        self._wake()

    def end(self) -> None:
        """One that began has ended, with all its effects."""
        self._running -= 1
        self._wake()

    def hold(self, effect: asyncio.Future[Any]) -> None:
        """Whoever has the turn is answered before its effect is there: what comes next waits for that too."""
        self._running += 1
        effect.add_done_callback(lambda _: self.end())

    def fail(self) -> None:
        """The connection ends because of one of its requests: what waits behind it is not begun."""
        self._failed = True
        self._drop()

    def close(self) -> None:
        """The connection is gone. Writes that came whole go on, unless they would wait for a poll's end."""
        self._closed = True
        self._drop()

    def _refuses(self, kind: Kind) -> bool:
        if self._failed:
            return True
        behind_poll = self._running > 0 and self._kind is Kind.POLL
        return self._closed and (kind in DROPPED or behind_poll)

    def _drop(self) -> None:
        """Tell those in line whose turn shall not come; of one that was told to begin, see `wait`."""
        for entry in list(self._waiting):
            kind, future = entry
            if not future.done() and self._refuses(kind):
                self._waiting.remove(entry)
                future.set_exception(Unheard(UNHEARD))
        self._wake()

    def _may_begin(self, kind: Kind) -> bool:
        return not self._running or (kind is self._kind and kind in OVERLAPPING)

    def _begin(self, kind: Kind) -> None:
        self._kind = kind
        self._running += 1

    def _wake(self) -> None:
        """Tell the first in line when it may begin."""
        if self._waiting:
            kind, future = self._waiting[0]
            if not future.done() and self._may_begin(kind):
                future.set_result(None)
