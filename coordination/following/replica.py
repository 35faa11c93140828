"""A replica that follows a bucket: all that handlers look at, nothing that they could change.

It registers nowhere: the cluster whose bucket this is does not know of it. Fresh is what the archive has;
so a read barrier is passed at once, and how far that is behind the cluster is told (`behind_s`, `lag`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import cast

from coordination.clock import Clock
from coordination.commands import Command, RegisterAgent
from coordination.following.archived import READ_ONLY, ArchivedLog
from coordination.following.shown import ShownState
from coordination.log import Log, LogRegressed, Unavailable
from coordination.replica import Replica, ReplicaFailed, ReplicaOptions
from coordination.replica.author import INCARNATION_BITS
from coordination.replica.follower import Follower
from coordination.replica.proposals import Line, Results
from coordination.state import State
from coordination.state.types import Broker, Endpoint, Incarnation
from objectstore.store import ObjectStore

_logger = logging.getLogger("floe.coordination.following")
NODE_ID = 1  # where none is configured
CAUGHT_UP_S = 0.1  # between two looks whether it is


class BucketFollower(Follower):
    """Goes on with the state that it has where the bucket has no better one."""

    async def load(self) -> None:
        while True:
            try:
                return await super().load()
            except (LogRegressed, ReplicaFailed) as error:
                self.last_error = f"loading a snapshot: {error}"
                _logger.warning("no newer snapshot can be loaded: %s", error)
            await asyncio.sleep(self._options.retry_s)


class FollowingReplica(Replica):
    """Lives in one event loop. `archive` is what `log` wraps."""

    follower_type = BucketFollower

    def __init__(
        self,
        log: Log,
        store: ObjectStore,
        clock: Clock,
        options: ReplicaOptions,
        archive: ArchivedLog,
    ) -> None:
        super().__init__(log, store, clock, options)
        self.archive = archive
        self._number = clock.random_bits(INCARNATION_BITS) or 1
        self._serves = False
        self._own: tuple[Broker, Incarnation] | None = None
        self._shown: tuple[State, ShownState] | None = None

    # What others look at.

    @property
    def state(self) -> State:
        """See Replica; the only broker in it is this process, once it serves."""
        state = self._follower.state
        if self._own is None:
            return state
        if self._shown is None or self._shown[0] is not state:
            self._shown = state, ShownState(state, *self._own)
        return cast(State, self._shown[1])

    @property
    def incarnation(self) -> int:
        """This process's number, which is in no log; 0 before it serves."""
        return self._number if self._serves else 0

    @property
    def node_id(self) -> int:
        """The broker id that clients see; -1 before it serves."""
        return -1 if self._own is None else self._own[0].node_id

    @property
    def ready(self) -> bool:
        """It has a state that the cluster had, and has not failed."""
        return self._serves and not self.failed.done()

    @property
    def lag(self) -> int:
        """Revisions that the bucket is known to have and that are not applied."""
        return max(0, self.archive.end - self.revision) if self._serves else 0

    @property
    def behind_s(self) -> float:
        """How long ago the newest applied entry was written, by the cluster's own clock; an upper bound.

        A cluster in which nothing happens archives nothing, so it grows until something does.
        """
        clock_ms = self._follower.state.clock_ms
        return max(0.0, (self._clock.now_ms() - clock_ms) / 1000) if clock_ms else 0.0

    def status(self) -> dict[str, object]:
        """See Replica; and what it follows."""
        archive = self.archive
        return super().status() | {
            "follows": archive.log,
            "behind_seconds": round(self.behind_s, 1),
            "bucket_through": archive.end,
            "newest_piece_ms": archive.newest_piece_ms,
            "problem": archive.problem,
        }

    # Life.

    async def start(self, register: RegisterAgent) -> None:
        """Load a snapshot and apply what is archived; `register` says where clients reach this process.

        Returns once all is applied that was archived when it began, or something is in the way of more.
        Waits while the bucket is away or has no cluster's state. Raises StateError, ReplicaFailed.
        """
        await self._follower.load()
        self._run(self._follower.run())
        await self._look()
        while not self._follower.state.incarnations or (
            self.revision < self.archive.end and not self.archive.problem
        ):
            if self.failed.done():
                self.failed.result()
            await asyncio.sleep(CAUGHT_UP_S)
        self._own = _own(register, self._number)
        self._serves = True

    async def _look(self) -> None:
        """Until the bucket has said how far its log goes."""
        while True:
            try:
                await self._log.current()
                return
            except Unavailable as error:
                self._follower.last_error = str(error)
                await asyncio.sleep(self.options.retry_s)

    # What it does not do.

    def submit(
        self,
        commands: Sequence[Command],
        *,
        incarnation: int | None = None,
        line: Line | None = None,
        stamps: list[float] | None = None,
    ) -> Results:
        """Fails with Unavailable: certainly without effect."""
        future: Results = self._loop.create_future()
        future.set_exception(Unavailable(READ_ONLY))
        future.exception()  # who submits may not look
        return future

    async def barrier(self) -> int:
        """What the archive gave is all there is to wait for. Raises Unavailable before it serves."""
        if not self.ready:
            raise Unavailable("this replica has not read the bucket's log yet")
        return self.revision

    def check_awake(self) -> bool:
        """A pause cost it nothing: it holds no lease, and what it serves was true."""
        return True


def _own(register: RegisterAgent, number: int) -> tuple[Broker, Incarnation]:
    """This process, as the cluster would know it."""
    node_id = register.node_id if register.node_id >= 0 else NODE_ID
    listeners = tuple(Endpoint(each.name, each.host, each.port) for each in register.listeners)
    broker = Broker(
        node_id, register.name, number, listeners, register.zone, register.http_address, register.version
    )
    levels = register.feature_min, register.feature_max
    return broker, Incarnation(number, register.name, node_id, 0, 0, 0, 0, 0, *levels)
