"""Writing to the log: registers incarnations and keeps one append in flight that carries what is ready."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from coordination.clock import Clock
from coordination.commands import Command, RegisterAgent, SetFeatureLevel, command
from coordination.log import Chain, Fenced, Full, Log, Unavailable
from coordination.replica.errors import RegistrationRefused, Superseded
from coordination.replica.follower import Follower
from coordination.replica.options import ReplicaOptions
from coordination.replica.proposals import Batch, Proposals, Results, payload
from coordination.state import Applied, State
from coordination.steps import reach
from objectstore.episodes import Episodes, loop_time, through

INCARNATION_BITS = 63
_T = TypeVar("_T")
_logger = logging.getLogger("floe.coordination.replica")


class Author:
    """Writes this agent's entries to the log. `incarnation` is 0 while none counts: nothing is written."""

    def __init__(
        self, log: Log, clock: Clock, options: ReplicaOptions, follower: Follower, proposals: Proposals
    ) -> None:
        self.registration: RegisterAgent | None = None
        self.node_id = -1
        self.last_append = 0.0  # loop time of the last append's beginning
        self.registered = asyncio.Event()
        self.said = 0  # the revision at which this agent told the others its rolling hash last
        self.stopping = False  # set before the last entry: no new incarnation follows it
        self._log = log
        self._clock = clock
        self._options = options
        self._follower = follower
        self._proposals = proposals
        self._chain: Chain | None = None
        self._own: list[int] = []  # incarnations of this process that may count in the state
        self._registering: tuple[int, Results] | None = None
        self._fenced = False
        self._sequence = 0
        self._asks = False
        self._work = asyncio.Event()
        self._unregistered = Episodes(
            through(_logger),
            loop_time,
            begins="this agent cannot register",
            ends="the log takes registrations",
        )

    @property
    def incarnation(self) -> int:
        """The current incarnation, once its registration was applied; 0 before and in between."""
        return self._proposals.incarnation

    def ask(self) -> None:
        """Have the next entry ask the others whether they have the same state."""
        self._asks = True

    def wake(self) -> None:
        """There is something to do."""
        self._work.set()

    async def run(self) -> None:
        """Write for ever. Raises LogRegressed, RegistrationRefused, Superseded: this agent must stop."""
        while True:
            if self._chain is None or self._fenced:
                await self._begin_incarnation()
            await self._work.wait()
            self._work.clear()
            if self._fenced or self._chain is None:
                continue
            # The registration travels alone: the rest waits until the incarnation counts.
            alone = 1 if self._registering is not None and self._sequence == 0 else None
            if self._registering is not None and alone is None:
                continue
            batch = self._proposals.take(self._chain.incarnation, self._sequence + 1, alone)
            if batch is not None:
                await self._append(self._chain, batch)
                if self._proposals.queued:
                    self._work.set()

    def applied(self, applied: Applied) -> None:
        """Look at every applied entry: answer proposals, notice the end of the own incarnation."""
        self._proposals.settle(applied)
        if self._chain is None:
            return
        if self._chain.incarnation in applied.fenced:
            self._lost(
                f"incarnation {self._chain.incarnation:016x} was fenced at revision {applied.revision}"
            )
        elif self._registering is not None:
            self._look_at_registration(*self._registering)

    def reloaded(self, state: State) -> None:
        """A snapshot replaced the state: look at it as `applied` would have looked at what it skipped."""
        self._proposals.reloaded(state)
        if self._registering is not None:
            self._look_at_registration(*self._registering)
        elif self._chain is not None and not state.is_live(self._chain.incarnation):
            self._lost(f"incarnation {self._chain.incarnation:016x} is fenced in the snapshot")

    async def close(self) -> None:
        """Give the incarnation up."""
        self._proposals.incarnation = 0
        if self._chain is not None:
            await self._chain.close()
            self._chain = None

    def _lost(self, reason: str) -> None:
        self._proposals.incarnation = 0
        self.registered.clear()
        if self.stopping:
            return
        _logger.warning("%s; registering as a new incarnation", reason)
        self._fenced = True
        self._work.set()

    async def _begin_incarnation(self) -> None:
        if self._chain is not None:
            await self._chain.close()
            await self._stop_if_superseded()
            self._chain = None
        if self.registration is None:
            raise RegistrationRefused("start() was not given what to register")
        info = self.registration.SerializeToString()
        self._chain = await self._retry(lambda: self._register(info))
        self._own.append(self._chain.incarnation)
        self._follower.own = {*self._own}
        self._fenced = False
        self._sequence = 0
        future = self._proposals.put_first(self._first_commands(self.registration))
        self._registering = (self._chain.incarnation, future)
        self._work.set()

    def _first_commands(self, registration: RegisterAgent) -> list[Command]:
        """The registration. With its first agent a cluster begins at the newest level, in the same entry."""
        state, newest = self._follower.state, registration.feature_max
        first = [command(registration)]
        if not state.incarnations and newest > state.feature_level:
            first.append(command(SetFeatureLevel(level=newest)))
        return first

    async def _stop_if_superseded(self) -> None:
        """Raise Superseded when another process has this agent's name, as far as the log goes now.

        An older run of this process may still count: its lease was lost, and the next one's too before it
        had registered.
        """
        name = self.registration.name if self.registration is not None else ""
        target = await self._retry(self._log.current)
        self._follower.knows(target)
        await self._follower.wait(target)
        incarnations = self._follower.state.incarnations
        self._own = [number for number in self._own if number in incarnations]
        for other in incarnations.values():
            if other.live and other.name == name and other.incarnation not in self._own:
                raise Superseded(
                    f"another process registered as {name!r} (incarnation {other.incarnation:016x}): agent "
                    "names must be unique; this one stops"
                )

    async def _register(self, info: bytes) -> Chain | None:
        number = self._clock.random_bits(INCARNATION_BITS) or 1
        try:
            return await self._log.register(number, info, self._options.ttl_s)
        except Fenced:
            return None  # the number was used before

    async def _retry(self, attempt: Callable[[], Awaitable[_T | None]]) -> _T:
        """The first answer that is not None, trying while the log is unavailable."""
        while True:
            try:
                answer = await attempt()
                if answer is not None:
                    self._unregistered.over("")
                    return answer
            except Unavailable as error:
                self._follower.last_error = f"registering: {error}"
                self._unregistered.met("", error=str(error))
                await asyncio.sleep(self._options.retry_s * (0.5 + self._clock.random()))

    def _look_at_registration(self, incarnation: int, future: Results) -> None:
        """Begin to write once this incarnation is in the state: by its applied entry, or in a snapshot."""
        known = self._follower.state.incarnations.get(incarnation)
        if known is None:
            if future.done() and future.exception() is None:
                result = future.result()[0]
                raise RegistrationRefused(f"the cluster does not take this agent: {result}")
            return
        self._registering = None
        self._proposals.superseded(incarnation)
        if not known.live:
            self._lost(f"incarnation {incarnation:016x} was fenced as soon as it registered")
            return
        self.node_id = known.node_id
        self._proposals.incarnation = incarnation
        self.registered.set()
        self._work.set()

    async def _append(self, chain: Chain, batch: Batch) -> None:
        self._sequence += 1
        self.last_append = asyncio.get_running_loop().time()
        self.said = self._follower.through
        content = payload(
            batch,
            self._clock.now_ms(),
            self.said,
            self._follower.state.digest,
            asks=self._asks or self._sequence == 1,
        )
        self._asks = False
        reach("append/send")
        for proposal in batch.proposals:
            proposal.stamp(self.last_append)
            if proposal.step:
                reach(proposal.step)
        try:
            revision = await self._append_when_there_is_room(chain, content)
        except Full as full:
            self._sequence -= 1  # there is no such entry: the next one takes its place
            self._proposals.refused(batch, full)
            return
        except Fenced as fenced:
            if not fenced.maybe_appended:
                self._proposals.fail(batch, Unavailable(f"{fenced}; nothing was written"))
            # Else it stays parked until its outcome is known: applied, fenced by the next registration, or,
            # when its incarnation never counted, superseded by that registration.
            self._registering = None
            self._lost(str(fenced))
            return
        reach("append/answered")
        answered = asyncio.get_running_loop().time()
        for proposal in batch.proposals:
            proposal.stamp(answered)
        self._follower.knows(revision)

    async def _append_when_there_is_room(self, chain: Chain, content: bytes) -> int:
        """Append; a registration waits while the log is full. Raises Full for anything else, and Fenced."""
        while True:
            try:
                return await chain.append(content)
            except Full as full:
                self._follower.last_error = str(full)
                if self._registering is None:
                    raise
            await asyncio.sleep(self._options.retry_s)
