"""A poll that found nothing is asked again, and finds nothing again: what idle consumers do all day.

The second one's bytes are the first one's, but for the correlation id and a session's epoch. Where nothing
that its answer depends on has changed, it is neither decoded nor planned and has no task: it waits by one
timer for all (fetch/deadlines.py) and gets the first one's answer. Anything else, when it comes, while it
waits, or when its time is over, has it dispatched as any other request, with the time that is left to it. So
nothing is decided here that the handler (agent/kafka/handlers/k01_fetch.py) does not decide.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from agent.kafka.context import Client, Context, Services
from agent.kafka.fetch.deadlines import Deadlines
from agent.kafka.fetch.driver import Fetched
from agent.kafka.fetch.exchange import Exchange, Incremental
from agent.kafka.fetch.redirect import stays, suits
from agent.kafka.fetch.sessions import LAST_EPOCH, Session, after
from agent.kafka.order import FETCH, Kind
from agent.net.listening import ConnectionInfo, Place
from agent.net.wire.frame import RequestHeader
from agent.net.wire.generated.fetch import FetchRequest, FetchResponse
from agent.net.wire.primitives import Buffer
from coordination.kafka_codes import Code
from coordination.state.state import State
from coordination.state.types import Partition

ROWS_MAX: Final = 64
"""Partitions of a request without a session that is remembered: each is looked at for each poll."""
REQUEST_BYTES_MAX: Final = 8_192
"""Of a request that is remembered, one for each connection."""
SESSION_SINCE: Final = 7  # version of the request
PREFERRED_REPLICA_SINCE: Final = 11
NO_REPLICA_SINCE: Final = 15  # its replica id is a tagged field from this version on
EPOCH_AT, EPOCH_AT_SHORTER = 21, 17  # where a body has the session's epoch, before and since
EPOCH_BYTES: Final = 4
CORRELATION_AT, CORRELATION_END = 4, 8


class End(NamedTuple):
    """A partition at whose end a poll waits, and what its client was told of it: offsets."""

    partition: Partition
    high_watermark: int
    last_stable: int
    log_start: int


class Nothing(NamedTuple):
    """What the answer of a poll depended on that found nothing, and how long it waited at most, seconds.

    `zone`: which its client counts to where that decides who serves it; None: anybody does.
    """

    state: State
    acls: int
    zone: str | None
    rack: str
    wait_s: float
    session: Session | None
    ends: tuple[End, ...]

    def still(self, services: Services, client: Client) -> bool:
        """Whether it would be answered so at the end of its time: nothing has changed."""
        state = self.state
        if state is not services.replica.state or state.quotas.entities or state.acls.revision != self.acls:
            return False
        if not services.fetch.parks or not self._served_here(services, client):
            return False
        if self.session is not None:
            return self.session.idle
        partitions = state.partitions
        for end in self.ends:
            partition = end.partition
            if (
                partitions[partition.handle] is not partition
                or partition.high_watermark != end.high_watermark
                or partition.log_start != end.log_start
                or partition.last_stable != end.last_stable
            ):
                return False
        return True

    def _served_here(self, services: Services, client: Client) -> bool:
        return self.zone is None or serves(services, client, self.zone, self.rack)


def serves(services: Services, client: Client, zone: str, rack: str) -> bool:
    """Whether this agent is the one that a client of the zone reads from, whatever the partition.

    One that Metadata does not have any more serves until the others know (`_leave` in agent/app.py), and
    sends nobody meanwhile; what it tells them then is `_dismissed`'s (agent/kafka/handlers/k01_fetch.py).
    """
    own = services.replica.state.brokers.get(services.replica.node_id)
    return own is None or suits(own, services.hints.known(zone)) or stays(own, rack, client.software)


def nothing(
    ctx: Context,
    request: FetchRequest,
    version: int,
    exchange: Exchange,
    fetched: Sequence[Fetched],
    response: FetchResponse,
) -> Nothing | None:
    """What an answer depended on that tells of no record, no news and no error; None: it is not such a one,
    or is not remembered."""
    zone = (request.rack_id or ctx.zone) if version >= PREFERRED_REPLICA_SINCE else None
    if request.max_wait_ms <= 0 or request.min_bytes <= 0 or ctx.charge is not None:
        return None
    session, ends = None, tuple[End, ...]()
    if isinstance(exchange, Incremental):
        session = exchange.session
        if request.topics or request.forgotten_topics_data or response.responses or not session.idle:
            return None
    elif request.session_epoch == LAST_EPOCH and 0 < len(fetched) <= ROWS_MAX:
        found = [_end(each) for each in fetched]
        ends = tuple(end for end in found if end is not None)
        if len(ends) < len(found):
            return None
    else:
        return None
    if zone is not None and not serves(ctx.services, ctx.client, zone, request.rack_id):
        return None
    state, wait_s = ctx.state, ctx.services.fetch.waits_s(request.max_wait_ms / 1000)
    return Nothing(state, state.acls.revision, zone, request.rack_id, wait_s, session, ends)


def _end(each: Fetched) -> End | None:
    """Where the client has everything of a partition."""
    planned = each.planned
    partition = planned.wanted.partition
    more = each.records or planned.slices or planned.full or planned.merged or planned.gap or planned.failed
    if more or planned.code is not Code.NONE or not isinstance(partition, Partition):
        return None
    return End(partition, planned.high_watermark, planned.last_stable, planned.log_start)


class Repeat:
    """The newest poll of a connection, which found nothing, and the next one of the kind while it waits."""

    __slots__ = (
        "_answer", "_asked", "_client", "_correlation_id", "_epoch", "_epoch_at", "_frame", "_handles",
        "_place", "_repeats", "_tick", "_woken",
    )  # fmt: skip

    def __init__(
        self,
        repeats: Repeats,
        client: Client,
        asked: Nothing,
        header: RequestHeader,
        frame: bytes,
        answer: bytes,
    ) -> None:
        self._repeats, self._client, self._asked = repeats, client, asked
        self._frame, self._answer = frame, answer
        self._epoch_at = 0
        if header.api_version >= SESSION_SINCE:
            at = EPOCH_AT_SHORTER if header.api_version >= NO_REPLICA_SINCE else EPOCH_AT
            self._epoch_at = header.body + at
        self._handles = tuple(dict.fromkeys(end.partition.handle for end in asked.ends))
        self._place: Place | None = None
        self._correlation_id, self._epoch, self._tick = b"", 0, 0
        self._woken = False

    def same(self, frame: bytes) -> bool:
        """Whether a request asks the same, and is the next of its session where it has one."""
        known, end = self._frame, CORRELATION_END
        if len(frame) != len(known) or frame[:CORRELATION_AT] != known[:CORRELATION_AT]:
            return False
        session, at = self._asked.session, self._epoch_at
        if session is None:
            return frame[end:] == known[end:]
        following = at + EPOCH_BYTES
        epoch = int.from_bytes(frame[at:following], "big", signed=True)
        return (
            epoch == session.epoch
            and frame[end:at] == known[end:at]
            and frame[following:] == known[following:]
        )

    def park(self, frame: bytes, place: Place) -> bool:
        """Whether the request waits from now on, in its turn."""
        repeats, asked, session = self._repeats, self._asked, self._asked.session
        if session is not None and not repeats.goes_on(session, self._client):
            return False
        if not asked.still(repeats.services, self._client) or not self._client.turns.at_once(Kind.POLL):
            return False
        waiters = repeats.services.fetch.waiters
        if session is None:
            waiters.enter(self, self._handles)
        else:
            self._epoch, session.epoch = session.epoch, after(session.epoch)
            repeats.services.sessions.touch(session)
            waiters.enter_by(session.watch, self)
        self._correlation_id, self._place, self._woken = frame[CORRELATION_AT:CORRELATION_END], place, False
        self._tick = repeats.deadlines.add(self, repeats.loop.time() + asked.wait_s)
        return True

    def set(self) -> None:
        """There may be something."""
        if not self._woken:
            self._woken = True
            self._repeats.loop.call_soon(self._serve)

    def due(self) -> None:
        """Its time is over."""
        place, asked, session = self._place, self._asked, self._asked.session
        if place is None or self._woken:
            return
        overtaken = session is not None and session.epoch != after(self._epoch)
        if overtaken or not asked.still(self._repeats.services, self._client):
            self._serve()
            return
        self._leave()
        self._client.turns.end()
        place.answer(self._answer)

    def cancel(self) -> None:
        """Its connection is gone."""
        if self._place is not None:
            self._leave()
            self._client.turns.end()

    def _serve(self) -> None:
        """Have it dispatched as any other request, in the turn that it has."""
        place, session, at = self._place, self._asked.session, self._epoch_at
        if place is None:  # its connection is gone
            return
        self._leave()
        frame = self._frame[:CORRELATION_AT] + self._correlation_id + self._frame[CORRELATION_END:]
        if session is not None:
            if session.epoch == after(self._epoch):  # the handler counts it
                session.epoch = self._epoch
            epoch = self._epoch.to_bytes(EPOCH_BYTES, "big", signed=True)
            frame = frame[:at] + epoch + frame[at + EPOCH_BYTES :]
        place.serve(frame)

    def _leave(self) -> None:
        repeats, session = self._repeats, self._asked.session
        self._place = None
        repeats.deadlines.remove(self, self._tick)
        if session is None:
            repeats.services.fetch.waiters.leave(self, self._handles)
        else:
            repeats.services.fetch.waiters.leave_by(session.watch, self)


class Repeats:
    """Of one agent. `awake`: whether what a client sent was sent since the newest pause of this process."""

    def __init__(self, services: Services, awake: Callable[[Client], bool]) -> None:
        self.services = services
        self.loop = asyncio.get_running_loop()
        self.deadlines = Deadlines(self.loop)
        self.on = True
        """Whether there are any: not where each request is traced."""
        self._awake = awake

    def remember(
        self, ctx: Context, header: RequestHeader, frame: memoryview, answer: Sequence[Buffer]
    ) -> None:
        """Keep what a Fetch was answered, if it was nothing; forget what was kept before."""
        found, client = ctx.nothing, ctx.client
        if not isinstance(found, Nothing) or not self.on or not 0 < len(frame) <= REQUEST_BYTES_MAX:
            client.repeat = None
            return
        client.repeat = Repeat(self, client, found, header, bytes(frame), b"".join(answer))

    def again(
        self, connection: ConnectionInfo, client: Client, frame: memoryview, place: Place
    ) -> Repeat | None:
        """The poll that the frame is, waiting from now on; None: it is to be dispatched."""
        known = client.repeat
        if not isinstance(known, Repeat) or not self._awake(client):
            return None
        data = bytes(frame)
        if not known.same(data) or connection.room() is not None:
            return None
        if client.login is not None and client.login.refusal(FETCH):
            return None
        return known if known.park(data, place) else None

    def goes_on(self, session: Session, client: Client) -> bool:
        """Whether the session is there, for this client, and has nothing to tell after a look."""
        services = self.services
        sessions, state = services.sessions, services.replica.state
        if sessions.get(session.id, client.principal) is not session or not sessions.admits(session, (), ()):
            return False
        session.look(state.partitions, sessions.now())
        return session.idle
