"""Fetch sessions: what a client asks for again and again, kept here so that it names only changes (KIP-227).

A session has a row per partition: what is asked of it, and what its client was told last. Rows that may have
something to tell are *loud*: new or asked for anew, touched by the log since, with records left, or in error.
The others are at their ends and told so; nothing is planned for them until the log touches them. `turn` is
the order in which partitions are served: who got records goes behind all others, so that no partition starves
where an answer has not room for all.

A session belongs to a principal, not to a connection; to everybody else there is none of that number. No
room is made for one as in Kafka's FetchSessionCache: whoever was not heard of for a while goes first, then a
smaller one that is not new any more.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from agent.kafka.fetch.waiters import Standing, Waiters
from agent.net.wire.generated.fetch import FetchPartition, FetchTopic, ForgottenTopic, PartitionData
from coordination.state.types import Partition

NO_SESSION = 0
FIRST_EPOCH, LAST_EPOCH = 0, -1  # begin a session; have none from here on
EPOCH_MAX = ID_MAX = (1 << 31) - 1
NOWHERE = -1  # the handle of a partition that is not in the state
NO_REPLICA = -1
READ_COMMITTED = 1  # an isolation level
LOOK_S = 1.0
"""So often all rows are compared with the state, seconds: nothing waits longer for a missed touch."""

Key = tuple[str | bytes, int]
"""A partition as its session names it: the topic's name or id, and the index."""


def after(epoch: int) -> int:
    """The epoch of the next request."""
    if epoch < 0:
        return LAST_EPOCH
    return 1 if epoch == EPOCH_MAX else epoch + 1


@dataclass(slots=True, eq=False)
class Row:
    """One partition: what is asked for, where it is, and what was told of it last (offsets; -1: nothing)."""

    topic: str
    topic_id: bytes
    index: int
    offset: int = 0
    bytes_max: int = 0
    leader_epoch: int = -1
    turn: int = 0
    handle: int = NOWHERE
    high_watermark: int = -1
    last_stable: int = -1
    log_start: int = -1

    def ask(self, wanted: FetchPartition) -> None:
        """What is asked from here on."""
        self.offset, self.bytes_max = wanted.fetch_offset, wanted.partition_max_bytes
        self.leader_epoch = wanted.current_leader_epoch

    def changes(self, told: PartitionData) -> bool:
        """Note what is told; whether the client does not know it yet, as Kafka's CachedPartition decides.

        The last stable offset counts too: here it moves without the high watermark where a log start passes
        a transaction. After an error the partition is told again whatever it is.
        """
        news = (
            bool(told.records)
            or self.high_watermark != told.high_watermark
            or self.log_start != told.log_start_offset
            or self.last_stable != told.last_stable_offset
            or told.preferred_read_replica != NO_REPLICA
            or told.error_code != 0
        )
        self.high_watermark = -1 if told.error_code else told.high_watermark
        self.log_start, self.last_stable = told.log_start_offset, told.last_stable_offset
        return news


def rows_of(topics: Iterable[FetchTopic]) -> list[Row]:
    """A row for each partition of a request, in its order."""
    found: list[Row] = []
    for topic in topics:
        name, topic_id = topic.topic, topic.topic_id
        for each in topic.partitions:
            epoch = each.current_leader_epoch
            found.append(
                Row(name, topic_id, each.partition, each.fetch_offset, each.partition_max_bytes, epoch)
            )
    return found


class Session:
    """One client's. `epoch`: of the next request. Times are seconds of the monotonic clock."""

    def __init__(
        self, number: int, principal: str, by_id: bool, rows: Iterable[Row], waiters: Waiters, now: float
    ) -> None:
        self.id, self.principal, self.by_id = number, principal, by_id
        self.epoch = after(FIRST_EPOCH)
        self.created = self.used = self.looked = now
        self.size = 0
        """Rows that the cache counts for it."""
        self.read_committed = False
        """As the newest request asks."""
        self.rows: dict[Key, Row] = {}
        self.watch = Standing(waiters)
        self._by_handle: dict[int, Row] = {}
        self._turn = 0
        self._closed = False
        for row in rows:
            self.rows[self._key(row.topic, row.topic_id, row.index)] = row
        self._loud: dict[Row, None] = {}
        for row in self.rows.values():
            self._served(row)
            self._loud[row] = None
            if row.handle != NOWHERE:
                self._by_handle[row.handle] = row
                self.watch.add(row.handle)

    @property
    def quiet(self) -> int:
        """Partitions that have nothing to tell as far as is known; they are waited for."""
        return len(self.rows) - len(self._loud)

    @property
    def idle(self) -> bool:
        """Whether no row has anything to tell as far as is known."""
        return not self._loud and not self.watch.touched

    def news(self, topics: Iterable[FetchTopic], forgotten: Iterable[ForgottenTopic]) -> int:
        """How many rows a request would add, less those that it takes away, at most."""
        key, rows = self._key, self.rows
        added = {
            key(topic.topic, topic.topic_id, each.partition) for topic in topics for each in topic.partitions
        }
        gone = sum(
            key(topic.topic, topic.topic_id, index) in rows
            for topic in forgotten
            for index in set(topic.partitions)
        )
        return sum(each not in rows for each in added) - gone

    def update(self, topics: Iterable[FetchTopic], forgotten: Iterable[ForgottenTopic]) -> None:
        """What a request adds, asks anew and forgets; in this order, as Kafka does."""
        for topic in topics:
            name, topic_id = topic.topic, topic.topic_id
            for each in topic.partitions:
                key = self._key(name, topic_id, each.partition)
                row = self.rows.get(key)
                if row is None:
                    row = self.rows[key] = Row(name, topic_id, each.partition)
                    self._served(row)
                row.ask(each)
                self._loud[row] = None
        for gone in forgotten:
            for index in gone.partitions:
                row = self.rows.pop(self._key(gone.topic, gone.topic_id, index), None)
                if row is not None:
                    self._loud.pop(row, None)
                    self.place(row, NOWHERE)

    def due(self) -> list[Row]:
        """The loud rows by now, in the order in which they are served."""
        for handle in self.watch.take():
            row = self._by_handle.get(handle)
            if row is not None:
                self._loud[row] = None
        return sorted(self._loud, key=_turn)

    def place(self, row: Row, handle: int) -> None:
        """Where its partition is by now; NOWHERE: there is none.

        A poll that is overtaken by the session's next request, or by its end, may still ask for a row that
        is gone: that is not watched.
        """
        if row.handle == handle:
            return
        if self._by_handle.get(row.handle) is row:
            del self._by_handle[row.handle]
            self.watch.remove(row.handle)
        row.handle = handle
        kept = not self._closed and self.rows.get(self._key(row.topic, row.topic_id, row.index)) is row
        if handle != NOWHERE and kept:
            self._by_handle[handle] = row
            self.watch.add(handle)

    def tell(self, row: Row, told: PartitionData) -> bool:
        """Whether the answer has it; the row is loud from here on unless nothing is left to tell."""
        news = row.changes(told)
        if told.records:
            self._served(row)
        end = told.last_stable_offset if self.read_committed else told.high_watermark
        if told.error_code or told.preferred_read_replica != NO_REPLICA or told.records or row.offset < end:
            self._loud[row] = None
        else:
            self._loud.pop(row, None)
        return news

    def read_as(self, isolation_level: int) -> None:
        """Whether only committed records are read from here on."""
        read_committed = isolation_level == READ_COMMITTED
        if read_committed != self.read_committed:
            self.read_committed = read_committed
            self.rouse()

    def rouse(self) -> None:
        """All rows are loud."""
        self._loud = dict.fromkeys(self.rows.values())

    def lost_places(self) -> None:
        """The state was replaced: where partitions are is to be found anew."""
        for row in self.rows.values():
            self.place(row, NOWHERE)
        self.rouse()

    def look(self, partitions: Sequence[Partition | None], now: float) -> None:
        """Compare every row with the state, unless that was done a moment ago."""
        if now - self.looked < LOOK_S:
            return
        self.looked = now
        for handle, row in self._by_handle.items():
            partition = partitions[handle]
            if (
                partition is None
                or partition.high_watermark != row.high_watermark
                or partition.log_start != row.log_start
                or (partition.transactions is not None and partition.last_stable != row.last_stable)
            ):
                self._loud[row] = None

    def close(self) -> None:
        """Nothing is watched any more."""
        self._closed = True
        for handle in self._by_handle:
            self.watch.remove(handle)
        self._by_handle.clear()

    def _served(self, row: Row) -> None:
        self._turn += 1
        row.turn = self._turn

    def _key(self, topic: str, topic_id: bytes, index: int) -> Key:
        return (topic_id if self.by_id else topic), index


def _turn(row: Row) -> int:
    return row.turn


@dataclass(frozen=True, slots=True)
class SessionLimits:
    """How many sessions and rows an agent keeps, and after how long unused (seconds) a session is stale."""

    sessions_max: int
    partitions_max: int
    stale_s: float


@dataclass(slots=True, eq=False)
class Sessions:
    """One agent's. `random_bits`: where numbers of sessions come from, which nobody shall guess."""

    limits: SessionLimits
    waiters: Waiters
    now: Callable[[], float]
    random_bits: Callable[[int], int]
    evicted: Callable[[], None] = lambda: None
    refused: Callable[[], None] = lambda: None
    """They are told of a session that was taken away, and of a client that got none."""
    partitions: int = 0
    """Rows of all sessions."""
    _looked: tuple[float, int] = (float("-inf"), 0)
    """When nobody was found who could be displaced, and by a session of how many rows."""
    _by_id: OrderedDict[int, Session] = field(default_factory=OrderedDict)
    """Those that were not heard of the longest first."""

    @property
    def count(self) -> int:
        """Sessions kept."""
        return len(self._by_id)

    def get(self, number: int, principal: str) -> Session | None:
        """This principal's session of the number."""
        session = self._by_id.get(number)
        return session if session is not None and session.principal == principal else None

    def remove(self, session: Session) -> None:
        """Forget it."""
        if self._by_id.pop(session.id, None) is session:
            self.partitions -= session.size
            session.close()

    def drop(self, session: Session) -> None:
        """Forget it for lack of room: its client goes on without one."""
        self.remove(session)
        self.refused()

    def create(self, principal: str, by_id: bool, rows: Sequence[Row]) -> Session | None:
        """A session of these rows; None where there is no room for it."""
        if not self._make_room(len(rows)):
            self.refused()
            return None
        number = NO_SESSION
        while number == NO_SESSION or number in self._by_id:
            number = self.random_bits(31)
        session = Session(number, principal, by_id, rows, self.waiters, self.now())
        self._by_id[number] = session
        self.touch(session)
        return session

    def touch(self, session: Session) -> None:
        """It was heard of, and has its rows as they are now."""
        session.used = self.now()
        self._by_id.move_to_end(session.id)
        self.partitions += len(session.rows) - session.size
        session.size = len(session.rows)

    def admits(
        self, session: Session, topics: Sequence[FetchTopic], forgotten: Sequence[ForgottenTopic]
    ) -> bool:
        """Whether there is room for what a request adds to a session; only stale ones make some."""
        if self.partitions + sum(len(each.partitions) for each in topics) <= self.limits.partitions_max:
            return True
        rows = session.news(topics, forgotten)
        self._by_id.move_to_end(session.id)
        while self.partitions + rows > self.limits.partitions_max:
            oldest = next(iter(self._by_id.values()))
            if oldest is session or not self._is_stale(oldest):
                return False
            self._evict(oldest)
        return True

    def reloaded(self) -> None:
        """The state was replaced."""
        for session in self._by_id.values():
            session.lost_places()

    def _make_room(self, size: int) -> bool:
        limits = self.limits
        if size > limits.partitions_max:
            return False
        while self.count >= limits.sessions_max or self.partitions + size > limits.partitions_max:
            victim = self._victim(size)
            if victim is None:
                return False
            self._evict(victim)
        return True

    def _victim(self, size: int) -> Session | None:
        """Whom a session of so many rows may displace."""
        if not self._by_id:
            return None
        oldest = next(iter(self._by_id.values()))
        if self._is_stale(oldest):
            return oldest
        now, stale_s = self.now(), self.limits.stale_s
        if now - self._looked[0] < LOOK_S and size <= self._looked[1]:
            return None
        settled = (each for each in self._by_id.values() if now - each.created > stale_s)
        smallest = min(settled, key=_size, default=None)
        if smallest is not None and smallest.size < size:
            return smallest
        self._looked = (now, size)
        return None

    def _is_stale(self, session: Session) -> bool:
        return self.now() - session.used > self.limits.stale_s

    def _evict(self, session: Session) -> None:
        self.remove(session)
        self.evicted()


def _size(session: Session) -> int:
    return session.size
