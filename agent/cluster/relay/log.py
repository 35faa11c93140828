"""The log of an agent that follows another agent of its zone instead of etcd (decision 0022, docs/zones.md).

Following begins with etcd, always. While the zone has a relay that takes this agent, entries come from that;
whatever is odd about them, or about it, and this agent is back at etcd. Appends, barriers, members, trimming
are etcd's in any case. What a relay says is believed so far:

* an entry is applied where its seal is right and the rolling hash before it is this agent's own;
* that there is nothing else through a revision, only up to where etcd said itself that the log is, and only
  while this agent has the newest entry of which etcd told it: a barrier waits for no less than without;
* regularly, and whenever a relay is left, etcd is asked whether it has the last entry exactly so. It is the
  only one that nothing has confirmed yet: the next one's hash confirms it too.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Protocol

from agent.cluster.peers.client import Link
from agent.cluster.peers.standing import REST_S_MAX, Standings
from agent.cluster.peers.wire import PeerError
from agent.cluster.relay.choice import Choice
from agent.cluster.relay.ring import Ring
from agent.cluster.relay.stream import Frame, Left, Patience, RelayStream
from agent.cluster.relay.wire import Item, encode_item, name_of
from agent.telemetry.logs import logger
from coordination.log import (
    Chain,
    Entries,
    EntryName,
    Log,
    LogEntry,
    LogRegressed,
    Statement,
    Unavailable,
    Witness,
)
from coordination.log_around import LogAround
from coordination.state.state import State
from objectstore import tasks

_log = logger("relay")

ATTACH_S = 2.0  # for a connection and the relay's answer, seconds
SHOWN_S = REST_S_MAX  # a relay that is followed for so long is well, whatever it was before, seconds
RETRY_S = 0.5  # between two tries to ask etcd about the last entry of a relay, seconds


class WitnessedLog(Log, Witness, Protocol):
    """A log that can be asked whether what somebody else says of it is true."""


@dataclass(frozen=True, slots=True)
class Zone:
    """What an agent knows of its zone: whom to follow, its own state, how to reach a peer."""

    choose: Callable[[], Choice | None]
    state: Callable[[], State]
    connect: Callable[[str], Awaitable[Link]]


@dataclass(frozen=True, slots=True)
class RelayOptions:
    """Seconds and bytes; see agent/config (section `relay`)."""

    behind_s: float = 0.5
    silent_s: float = 2.0
    check_s: float = 1.0
    buffer_bytes_max: int = 16 << 20


@dataclass(slots=True)
class _Place:
    """How far the log was given to whoever follows."""

    through: int
    last: EntryName | None

    def entry(self, entry: LogEntry) -> Entries:
        self.through = entry.revision
        self.last = EntryName(entry.revision, entry.incarnation, entry.sequence)
        return Entries((entry,), entry.revision)

    def pass_by(self, batch: Entries) -> None:
        if batch.entries:
            self.entry(batch.entries[-1])
        self.through = batch.through


class _RelayedChain:
    """Notes where this agent's own entries stand."""

    def __init__(self, chain: Chain, note: Callable[[int, int], None]) -> None:
        self._chain = chain
        self._note = note

    @property
    def incarnation(self) -> int:
        return self._chain.incarnation

    async def append(self, payload: bytes) -> int:
        revision = await self._chain.append(payload)
        self._note(revision, revision)
        return revision

    async def close(self) -> None:
        await self._chain.close()


class RelayedLog(LogAround[WitnessedLog]):
    """Implements coordination.log.Log over etcd's. Without `join` it is that log."""

    def __init__(self, log: WitnessedLog, options: RelayOptions) -> None:
        self.ring = Ring(options.buffer_bytes_max)
        self.left: Counter[str] = Counter()  # relays, by the reason
        self.by_relay = 0  # entries that came from one
        self.stream: RelayStream | None = None  # of the relay that is followed now
        self.name = b""
        super().__init__(log)
        self._options = options
        self._zone: Zone | None = None
        self._standings = Standings(asyncio.get_running_loop().time)
        self._attaching: tuple[str, asyncio.Task[RelayStream]] | None = None  # to which address
        self._attached: RelayStream | None = None
        self._target = 0  # a revision that the log has, as it said itself
        self._newest = 0  # that of the newest entry of which it told
        self._unproven: LogEntry | None = None
        self._untrue: LogRegressed | None = None

    def join(self, zone: Zone) -> None:
        """From now on there may be a relay."""
        self._zone = zone

    def ask_progress(self) -> None:
        """A follower of this agent waits for a revision."""
        self._log.ask_progress()

    # The log's own.

    async def identity(self) -> str:
        identity = await self._log.identity()
        self.name = name_of(identity)
        return identity

    async def register(self, incarnation: int, info: bytes, ttl_s: float) -> Chain:
        return _RelayedChain(await self._log.register(incarnation, info, ttl_s), self._note)

    async def current(self) -> int:
        """The log's revision, and where a relay may be followed the newest entry's, for what it will say."""
        if self._zone is None or self._zone.choose() is None:
            return await self._log.current()
        return (await self._testify()).revision

    # Following.

    async def follow(self, after: int, last: EntryName | None = None) -> AsyncGenerator[Entries, None]:
        """See coordination.log.Log.follow."""
        place = _Place(after, last)
        while True:
            await self._prove()
            async with aclosing(self._first_hand(place)) as batches:
                async for batch in batches:
                    yield batch
            async with aclosing(self._second_hand(place)) as batches:
                async for batch in batches:
                    yield batch

    async def _first_hand(self, place: _Place) -> AsyncGenerator[Entries, None]:
        """From etcd, for this zone's followers too; ends when a relay has taken this agent."""
        self._let_go()
        try:
            async with _closing(self._log.follow(place.through, place.last)) as batches:
                async for batch in batches:
                    choice = self._choice()
                    for each in self._told(batch, choice, place):
                        yield each
                    if choice is not None and self._is_attached(choice, place):
                        return
        finally:
            self.ring.end()
            self._give_up_attaching()

    def _told(self, batch: Entries, choice: Choice | None, place: _Place) -> Iterator[Entries]:
        """A batch of etcd's; where others may follow entry by entry, each kept with the hash before it."""
        if choice is None or self._zone is None:
            self.ring.end()
            place.pass_by(batch)
            yield batch
            return
        if not self.ring.open:
            self.ring.begin(place.through)
        for entry in batch.entries:
            self.ring.add(entry.revision, encode_item(entry, self._zone.state().digest))
            yield place.entry(entry)
        self.ring.reach(batch.through)
        if batch.through > place.through:
            place.through = batch.through
            yield Entries((), batch.through)

    async def _second_hand(self, place: _Place) -> AsyncGenerator[Entries, None]:
        """From the relay, until there is a reason to leave it."""
        stream, self._attached = self._attached, None
        assert stream is not None, "nobody attached"
        assert self._zone is not None, "who attaches has joined"
        self.stream, joined, address = stream, place.through, stream.choice.address
        patience = Patience(self._options.behind_s, self._options.silent_s)
        checking = tasks.kept(self._check, "check of the relay")
        shown = asyncio.get_running_loop().call_later(SHOWN_S, self._standings.well, address)
        _log.info("this agent follows another one", peer=address, revision=place.through)
        try:
            if self._target > place.through:
                stream.want(self._target)
            while True:
                frame = await self._frame(stream, patience, place)
                for item in frame.items:
                    if item.entry.revision > joined:
                        self._verify(item, place, self._zone.state())
                        yield place.entry(item.entry)
                through = min(frame.through, self._target)
                if through > place.through and self._zone.state().revision >= self._newest:
                    place.through = through
                    yield Entries((), through)
        except Left as left:
            self._leave(stream, left)
        except LogRegressed as error:
            self._standings.failed(address, error)
            raise
        except (GeneratorExit, asyncio.CancelledError):  # the replica's own patience is over, or it stops
            if self._target > place.through:
                self._leave(stream, Left("behind", f"revision {self._target} is overdue"))
            raise
        finally:
            checking.cancel()
            shown.cancel()
            self.stream = None
            self._standings.gave_up(address)  # where nothing else was told, this says nothing about the relay
            stream.close()

    def _let_go(self) -> None:
        """Hang up on a relay that took this agent when nobody followed any more."""
        stream, self._attached = self._attached, None
        if stream is not None:
            self._standings.gave_up(stream.choice.address)
            stream.close()

    async def _frame(self, stream: RelayStream, patience: Patience, place: _Place) -> Frame:
        """What the relay says next. Raises Left; LogRegressed when what it said was not so."""
        now = asyncio.get_running_loop().time
        while True:
            if self._untrue is not None:
                raise self._untrue
            if self._choice() != stream.choice:
                raise Left("moved", "another agent is the zone's relay")
            begun = now()
            try:
                frame = await stream.frame(patience.look_s)
            except PeerError as error:
                raise Left("nonsense", str(error)) from None
            except (OSError, EOFError) as error:
                raise Left("gone", repr(error)) from None
            patience.look(now() - begun, place.through, self._target)
            if frame is not None:
                patience.heard()
                return frame
            patience.waited()

    def _verify(self, item: Item, place: _Place, state: State) -> None:
        """An entry that is to be applied next. Raises Left."""
        entry = item.entry
        if not item.whole:
            raise Left("damaged", f"the entry of revision {entry.revision} is not as its seal says")
        if entry.revision <= place.through:
            raise Left("nonsense", f"an entry of revision {entry.revision} after {place.through}")
        if item.before != state.digest:
            raise Left(
                "differs",
                f"before revision {entry.revision} its rolling hash is {item.before.hex()}, and "
                f"{state.hash} here, at {state.revision}",
            )
        self._unproven = entry
        self.by_relay += 1

    def _choice(self) -> Choice | None:
        return None if self._zone is None else self._zone.choose()

    def _leave(self, stream: RelayStream, left: Left) -> None:
        self.left[left.reason] += 1
        address = stream.choice.address
        if left.reason == "moved":
            _log.info("this agent leaves its relay", peer=address, reason=str(left))
        else:
            self._standings.failed(address, left)
            _log.warning("this agent follows etcd again", peer=address, reason=str(left))

    # Being taken by a relay.

    def _is_attached(self, choice: Choice, place: _Place) -> bool:
        """Begin, or go on, to ask the relay; True once it has taken this agent.

        That does not show that it is well: it may be behind again a moment later (`_second_hand`).
        """
        if self._attaching is None:
            address = choice.address
            if address and self._standings.may_ask(address):
                self._attaching = (
                    address,
                    tasks.owned(self._attach(choice, place.through), "attach to a relay"),
                )
            return False
        address, task = self._attaching
        if not task.done():
            return False
        self._attaching = None
        try:
            self._attached = task.result()
        except (PeerError, OSError, EOFError, TimeoutError) as error:
            self.left["refused"] += 1
            self._standings.failed(address, error)
            return False
        return True

    async def _attach(self, choice: Choice, after: int) -> RelayStream:
        assert self._zone is not None, "who attaches has joined"
        async with asyncio.timeout(ATTACH_S):
            link = await self._zone.connect(choice.address)
            try:
                return await RelayStream.open(link, choice, self.name, after)
            except BaseException:
                link.close()
                raise

    def _give_up_attaching(self) -> None:
        attaching, self._attaching = self._attaching, None
        if attaching is not None:
            address, task = attaching
            self._standings.gave_up(address)
            task.cancel()
            task.add_done_callback(_hang_up)

    # What etcd says itself.

    def _note(self, revision: int, newest: int) -> None:
        self._newest = max(self._newest, newest)
        if revision > self._target:
            self._target = revision
            if self.stream is not None:
                self.stream.want(revision)

    async def _testify(self, entry: LogEntry | None = None) -> Statement:
        found = await self._log.testify(entry)
        self._note(found.revision, found.newest)
        return found

    async def _check(self) -> None:
        """Regularly ask etcd how far the log is, and about the last entry of the relay."""
        while True:
            await asyncio.sleep(self._options.check_s)
            with suppress(Unavailable):
                await self._confirm()

    async def _confirm(self) -> None:
        entry = self._unproven
        try:
            found = await self._testify(entry)
        except LogRegressed as error:
            self._untrue = error
            return
        if entry is not None and not found.holds:
            self._untrue = LogRegressed(
                f"the relay gave an entry of revision {entry.revision} that etcd does not have so: this "
                "agent's state is not the cluster's"
            )
        elif self._unproven is entry:
            self._unproven = None

    async def _prove(self) -> None:
        """Return once etcd has confirmed what the relay gave last. Raises LogRegressed."""
        while self._unproven is not None and self._untrue is None:
            try:
                await self._confirm()
            except Unavailable:
                await asyncio.sleep(RETRY_S)
        if self._untrue is not None:
            raise self._untrue


def _hang_up(task: asyncio.Task[RelayStream]) -> None:
    if not task.cancelled() and task.exception() is None:
        task.result().close()


@asynccontextmanager
async def _closing(batches: AsyncIterator[Entries]) -> AsyncIterator[AsyncIterator[Entries]]:
    """Close what is followed together with who follows it."""
    try:
        yield batches
    finally:
        close = getattr(batches, "aclose", None)
        if close is not None:
            await close()
