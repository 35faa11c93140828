"""Figures that take more than a look at the state: rates of this agent, and how far groups are behind."""

from __future__ import annotations

import asyncio
from array import array
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from heapq import nlargest
from typing import TYPE_CHECKING, Final, NamedTuple

from objectstore.tasks import start
from objectstore.turns import Turns, in_turns

if TYPE_CHECKING:
    from prometheus_client import Counter

    from agent.http.parts import Parts
    from coordination.state.group_types import Group
    from coordination.state.state import State

RATE_S: Final = 30.0
"""Over about which time a rate is taken; shorter while nobody has looked for so long."""
SAMPLES_MAX: Final = 64
APART_S: Final = 1.0
"""Samples are at least so far apart."""
LAG_KEPT_S: Final = 10.0
"""How long what was found of all groups is shown again."""
POSITIONS_PER_TURN: Final = 1_000
"""Positions before others may go on: about a millisecond."""
POSITIONS_MAX: Final = 1_000_000
"""Positions that one look at all groups takes in; groups behind that are not told of."""


class Rates:
    """Per second, of what this agent counts, between looks."""

    def __init__(self, parts: Parts) -> None:
        metrics = parts.metrics
        self._now: Callable[[], float] = parts.clock.monotonic
        self._counters: Mapping[str, Counter] = {
            "records in": metrics.produce_records,
            "bytes in": metrics.produce_bytes,
            "bytes out": metrics.fetch_bytes,
        }
        self._samples: deque[tuple[float, list[float]]] = deque(maxlen=SAMPLES_MAX)

    def look(self) -> dict[str, float | None]:
        """By name; None where nobody looked before."""
        now, counts = self._now(), [_count(each) for each in self._counters.values()]
        samples = self._samples
        if not samples or now - samples[-1][0] >= APART_S:
            samples.append((now, counts))
        while len(samples) > 2 and now - samples[1][0] >= RATE_S:
            samples.popleft()
        then, before = samples[0]
        if now - then < APART_S:
            return dict.fromkeys(self._counters)
        moved = (count - old for count, old in zip(counts, before, strict=True))
        return {name: each / (now - then) for name, each in zip(self._counters, moved, strict=True)}


class Lag(NamedTuple):
    """A group's records between its positions and what is committed; partitions with a position."""

    records: int
    partitions: int


class Lags:
    """Of all groups; one look at a time, whoever asks, shown again for LAG_KEPT_S."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._known: dict[str, Lag] = {}
        self._at = -LAG_KEPT_S
        self._looking: asyncio.Task[None] | None = None

    async def most(self, may: Callable[[str], bool], sees: Sees, count: int) -> list[tuple[str, Lag]]:
        """The groups that are furthest behind, of those that may be seen, in topics that may be seen."""
        if self._parts.clock.monotonic() - self._at >= LAG_KEPT_S or not self._known:
            if self._looking is None or self._looking.done():
                self._looking = start(self._look(), "console-lags")
            await asyncio.shield(self._looking)
        best = await in_turns(_most(list(self._known.items()), may, count))
        found = []
        for name, _ in best:
            group = self._parts.replica.state.groups.get(name)
            if group is not None:
                lag = await in_turns(lag_of(self._parts.replica.state, group, sees))
                found.append((name, lag))
        return [each for each in found if each[1].records]

    async def _look(self) -> None:
        self._known = await in_turns(_of_all(self._parts.replica.state))
        self._at = self._parts.clock.monotonic()


Sees = Callable[[str], bool]
"""Whether a topic may be described by whoever asks."""


def lag_of(state: State, group: Group, sees: Sees = lambda _: True) -> Turns[Lag]:
    """Of one group, over the partitions that are there, of topics that may be seen."""
    records = count = 0
    for handle, offset in _positions(group):
        if handle is None:
            yield
            continue
        partition = state.partitions[handle] if handle < len(state.partitions) else None
        if partition is not None and sees(partition.topic.name):
            records += max(partition.high_watermark - max(offset, partition.log_start), 0)
            count += 1
    return Lag(records, count)


def _positions(group: Group) -> Iterator[tuple[int | None, int]]:
    """Handles with offsets as of now; a None after each few."""
    handles: array[int] = group.offsets.handles[:]
    offsets: array[int] = group.offsets.offsets[:]
    for number, handle in enumerate(handles, 1):
        yield handle, offsets[number - 1]
        if number % POSITIONS_PER_TURN == 0:
            yield None, 0


def _of_all(state: State) -> Turns[dict[str, Lag]]:
    found: dict[str, Lag] = {}
    looked_at = since = 0
    for name in list(state.groups):
        group = state.groups.get(name)
        if group is None or looked_at + len(group.offsets) > POSITIONS_MAX:
            continue
        looked_at += len(group.offsets)
        since += len(group.offsets) + 1
        found[name] = yield from lag_of(state, group)
        if since >= POSITIONS_PER_TURN:
            since = 0
            yield
    return found


def _most(
    found: list[tuple[str, Lag]], may: Callable[[str], bool], count: int
) -> Turns[list[tuple[str, Lag]]]:
    best: list[tuple[str, Lag]] = []
    for begin in range(0, len(found), 250):
        some = [each for each in found[begin : begin + 250] if each[1].records and may(each[0])]
        best = nlargest(count, [*best, *some], key=lambda each: (each[1].records, each[0]))
        yield
    return best


def _count(counter: Counter) -> float:
    return float(next(iter(counter.collect())).samples[0].value)
