"""One Fetch between its session and its answer: which partitions it is about, and which its client is told.

Four kinds, as in Kafka's FetchManager: without a session, one that begins a session with all its partitions,
one that goes on with a session, and one whose session is not as the client thinks, which is refused whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from agent.kafka.fetch.sessions import (
    FIRST_EPOCH,
    LAST_EPOCH,
    NO_SESSION,
    Row,
    Session,
    Sessions,
    after,
    rows_of,
)
from agent.kafka.fetch.waiters import Standing
from agent.net.wire.generated.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from coordination.kafka_codes import Code
from coordination.state.types import Partition

Told = Sequence[tuple[Row, PartitionData]]
"""What is to be said of each partition, in the order of the answer."""


class Exchange:
    """A Fetch that names all its partitions and wants no session."""

    session_id = NO_SESSION
    """What an answer says that tells of nothing."""
    standing: Standing | None = None

    def __init__(self, rows: list[Row]) -> None:
        self._rows = rows

    @property
    def quiet(self) -> int:
        """Partitions beside those of `due`, which have nothing to tell."""
        return 0

    def every(self) -> Iterable[Row]:
        """All partitions that it is about."""
        return self._rows

    def due(self) -> list[Row]:
        """Those that may have something to tell by now, in the order in which they are served."""
        return self._rows

    def place(self, row: Row, handle: int) -> None:
        """Where a partition is by now; NOWHERE: it is not."""
        row.handle = handle

    def rouse(self) -> None:
        """All its partitions may have something to tell."""

    def close(self, told: Told) -> FetchResponse:
        """The answer."""
        return self.dismiss(told)

    def dismiss(self, told: Told) -> FetchResponse:
        """The answer of an agent that sends its clients away: no session begins here any more."""
        return FetchResponse(responses=grouped(told))


class Beginning(Exchange):
    """One that begins a session, if there is room for it."""

    def __init__(self, rows: list[Row], sessions: Sessions, principal: str, by_id: bool) -> None:
        super().__init__(rows)
        self._sessions, self._principal, self._by_id = sessions, principal, by_id

    def close(self, told: Told) -> FetchResponse:
        for row, data in told:
            row.changes(data)
        session = self._sessions.create(self._principal, self._by_id, [row for row, _ in told])
        number = NO_SESSION if session is None else session.id
        return FetchResponse(session_id=number, responses=grouped(told))


class Incremental(Exchange):
    """One that goes on with a session; `epoch` is its own."""

    def __init__(self, session: Session, epoch: int) -> None:
        super().__init__([])
        self.session = session
        self._epoch = epoch
        self.session_id = session.id
        self.standing = session.watch

    @property
    def quiet(self) -> int:
        return self.session.quiet

    def every(self) -> Iterable[Row]:
        """All of the session."""
        return self.session.rows.values()

    def due(self) -> list[Row]:
        """The session's loud rows."""
        return self.session.due()

    def place(self, row: Row, handle: int) -> None:
        """As the session watches it."""
        self.session.place(row, handle)

    def rouse(self) -> None:
        """All rows are loud."""
        self.session.rouse()

    def close(self, told: Told) -> FetchResponse:
        session = self.session
        if session.epoch != after(self._epoch):  # the next request came meanwhile, by another connection
            return FetchResponse(error_code=Code.INVALID_FETCH_SESSION_EPOCH, session_id=session.id)
        news = [(row, data) for row, data in told if session.tell(row, data)]
        return FetchResponse(session_id=session.id, responses=grouped(news))

    def dismiss(self, told: Told) -> FetchResponse:
        """The session stays until its client ends it or it is stale."""
        return self.close(told)


def opened(
    sessions: Sessions,
    request: FetchRequest,
    by_id: bool,
    principal: str,
    partitions: Sequence[Partition | None],
) -> Exchange | Code:
    """The exchange that a request begins, or why there is none. `partitions`: the state's, by handle."""
    session = sessions.get(request.session_id, principal)
    if request.session_epoch in (FIRST_EPOCH, LAST_EPOCH):
        if session is not None:
            sessions.remove(session)
        rows = rows_of(request.topics)
        if request.session_epoch == LAST_EPOCH:
            return Exchange(rows)
        return Beginning(rows, sessions, principal, by_id)
    if session is None:
        return Code.FETCH_SESSION_ID_NOT_FOUND
    if session.epoch != request.session_epoch:
        return Code.INVALID_FETCH_SESSION_EPOCH
    if session.by_id != by_id:
        return Code.FETCH_SESSION_TOPIC_ID_ERROR
    return _gone_on(sessions, session, request, partitions)


def _gone_on(
    sessions: Sessions, session: Session, request: FetchRequest, partitions: Sequence[Partition | None]
) -> Exchange | Code:
    """The exchange of a request that fits its session."""
    if not sessions.admits(session, request.topics, request.forgotten_topics_data):
        sessions.drop(session)
        return Code.FETCH_SESSION_ID_NOT_FOUND  # its next request names everything, and gets no session
    session.update(request.topics, request.forgotten_topics_data)
    if not session.rows:
        sessions.remove(session)
        return Exchange(rows_of(request.topics))
    session.epoch = after(session.epoch)
    session.read_as(request.isolation_level)
    sessions.touch(session)
    session.look(partitions, session.used)
    return Incremental(session, request.session_epoch)


def grouped(told: Told) -> list[FetchableTopicResponse]:
    """As an answer has it: neighbours of one topic together. A topic may come more than once, as in Kafka."""
    found: list[FetchableTopicResponse] = []
    name, topic_id = None, b""
    for row, data in told:
        if row.topic != name or row.topic_id != topic_id:
            name, topic_id = row.topic, row.topic_id
            found.append(FetchableTopicResponse(name, topic_id, []))
        found[-1].partitions.append(data)
    return found
