"""Every order in which a small etcd can answer a follower, and what can happen to the log meanwhile.

Schedules are played from the beginning, one step longer each time; one that leads to a place where another
has been goes no further. At the end of each, everything is well again and the follower must arrive.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import suppress
from dataclasses import replace

import pytest

from coordination.clock import ManualClock
from coordination.etcd import follower as product
from coordination.etcd.follower import Follower, FollowOptions, Head
from coordination.log import Entries, EntryName, LogRegressed, Trimmed
from tests.sim.loop import VirtualLoop
from tests.unit.coordination.scripted_etcd import KEYS, Budget, ScriptedEtcd

OPTIONS = FollowOptions(progress_s=0.5, silent_s=2.0)
ARRIVES_S_MAX = 10.0
SCOPES = {
    "appends": Budget(appends=2, others=1, misfortunes=1),
    "trims": Budget(appends=1, trims=1, misfortunes=1),
    "compactions": Budget(appends=1, others=1, compactions=1, misfortunes=1),
    "restores": Budget(appends=2, others=1, restores=1),
    "restores behind a snapshot": Budget(appends=2, others=1, restores=1),
}
"""Not restores and trims together: a log that was restored, and then trimmed exactly through where the reader
stands, might have had what the reader knows it by, and nobody can tell.
"""
LOADED = "restores behind a snapshot"
"""Where the reader has loaded a snapshot and read nothing yet, and the backup is older than that."""


class Reader:
    """Who follows: applies what it is given, loads a snapshot where the log is trimmed."""

    def __init__(self, etcd: ScriptedEtcd) -> None:
        self._etcd = etcd
        self.head = Head()
        self.applied: list[tuple[int, int]] = []
        self.last: EntryName | None = None
        self.through = 0
        self.regressed = False
        self.follower: Follower | None = None
        self.following: AsyncGenerator[Entries, None] | None = None

    async def live(self) -> None:
        """Until the log went back."""
        while not self.regressed:
            self.follower = Follower(self._etcd, KEYS, self.head, ManualClock(), OPTIONS)  # type: ignore[arg-type]  # what it asks of a client
            try:
                self.following = self.follower.follow(self.through, self.last)
                async for batch in self.following:
                    self._apply(batch)
            except Trimmed as trimmed:
                self._load_snapshot(trimmed.through)
            except LogRegressed:
                assert self._etcd.restored, "etcd never went back"
                self.regressed = True

    def _load_snapshot(self, through: int) -> None:
        assert self.through < through <= self._etcd.marker, "nothing was missing"
        self.begin_at(through)

    def begin_at(self, through: int) -> None:
        """With the snapshot of this revision."""
        self.through = through
        self.applied = [each for each in self._etcd.history if each[0] <= through]
        self._name_last()

    def _apply(self, batch: Entries) -> None:
        assert self.through < batch.through <= self._etcd.revision
        self.through = batch.through
        self.applied += [(entry.revision, entry.incarnation) for entry in batch.entries]
        self._name_last()
        right = [each for each in self._etcd.history if each[0] <= self.through]
        assert self.applied == right, f"applied {self.applied} through {self.through}, the log has {right}"

    def _name_last(self) -> None:
        """By author and number, as its state knows it."""
        if self.applied:
            revision, author = self.applied[-1]
            self.last = EntryName(revision, author, [each[1] for each in self.applied].count(author))


class Played:
    """One schedule."""

    def __init__(self, budget: Budget, *, loaded: bool = False) -> None:
        self.etcd = ScriptedEtcd(replace(budget))
        self.reader = Reader(self.etcd)
        if loaded:
            self.etcd.backup = (1, ())
            self.reader.begin_at(self.etcd.revision)
        self.next: list[str] = []

    async def play(self, schedule: tuple[str, ...], places: set[object]) -> None:
        """Its steps; where nobody has been before what may follow, and the end, when everything is well."""
        reading = asyncio.ensure_future(self.reader.live())
        try:
            await self._settled(reading)
            for step in schedule:
                quiet_s = self.etcd.take(step)
                if quiet_s:
                    await asyncio.sleep(quiet_s)
                await self._settled(reading)
            place = self._where()
            if place not in places:
                places.add(place)
                self.next = [] if reading.done() else self.etcd.steps()
                await self._arrives(reading)
        finally:
            reading.cancel()
            with suppress(asyncio.CancelledError):
                await reading

    async def _settled(self, reading: asyncio.Future[None]) -> None:
        """Until the follower has asked for something and waits, or has come to an end."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(0)
            if loop._ready:  # type: ignore[attr-defined]  # asyncio has it
                continue
            if reading.done():
                reading.result()
                return
            if self.etcd.asked is not None or self.etcd.call is not None:
                return
            await asyncio.sleep(0.01)  # it backs off

    async def _arrives(self, reading: asyncio.Future[None]) -> None:
        etcd, loop = self.etcd, asyncio.get_running_loop()
        etcd.budget = Budget()
        while etcd.trimming:
            etcd.take(etcd.trimming)
        etcd.revision += 1
        self.reader.head.seen(etcd.revision, awaited=True)
        deadline = loop.time() + ARRIVES_S_MAX
        while not reading.done() and not (etcd.watched and self.reader.through == etcd.revision):
            assert loop.time() < deadline, f"stuck at {self.reader.through} of {etcd.revision}"
            steps = [step for step in etcd.steps() if step not in ("fragment", "too far behind")]
            if "progress" in steps and etcd.call is not None and not etcd.call.progress_wanted:
                steps.remove("progress")  # nobody asked
            if steps:
                etcd.take(steps[0])
            await asyncio.sleep(0.05)
        if reading.done():
            reading.result()

    def _where(self) -> object:
        etcd, reader, follower = self.etcd, self.reader, self.reader.follower
        assert follower is not None
        call, asked = etcd.call, etcd.asked
        return (
            etcd.revision, tuple(etcd.history), frozenset(etcd.present), etcd.marker, etcd.compacted,
            etcd.trimming, etcd.restored, repr(etcd.budget), reader.through, reader.regressed,
            reader.head.revision, tuple(reader.applied), follower._last, follower._base, follower._gone,
            asked and asked.request.SerializeToString(),
            call and (call.start, call.sent, call.created, call.fragmented),
            self._gap(),
        )  # fmt: skip

    def _gap(self) -> bool:
        """Whether the follower will read the gap next: the one thing that it keeps to itself."""
        frame = self.reader.following.ag_frame if self.reader.following is not None else None
        return frame is not None and bool(frame.f_locals["gap"])


def played(
    budget: Budget, schedule: tuple[str, ...], places: set[object], *, loaded: bool = False
) -> list[str]:
    """A schedule in virtual time, and what may follow. Raises AssertionError with the schedule."""
    loop, play = VirtualLoop(1), Played(budget, loaded=loaded)
    try:
        loop.run_until_complete(play.play(schedule, places))
    except AssertionError as error:
        raise AssertionError(f"{error}; after {', '.join(schedule)}") from error
    finally:
        loop.put_away()
    return play.next


def explore(budget: Budget, *, loaded: bool = False) -> int:
    """Every schedule, shortest first; how many places there are."""
    places: set[object] = set()
    queue: deque[tuple[str, ...]] = deque([()])
    while queue:
        schedule = queue.popleft()
        queue.extend((*schedule, step) for step in played(budget, schedule, places, loaded=loaded))
    return len(places)


@pytest.mark.parametrize("name", SCOPES)
def test_each_entry_once_in_order_none_skipped_never_stuck(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(product, "PAGE_ENTRIES_FIRST", 1)
    assert explore(SCOPES[name], loaded=name == LOADED) > 100
