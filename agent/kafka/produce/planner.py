"""When to flush the produce buffer. Pure: values and times in, a decision out.

A flush is one PUT and one place in the log, so it should carry as much as possible without making
anyone wait for bytes that will not come. The buffer is flushed when

* it is full (`buffer_bytes_max` or `batches_max`),
* its oldest byte has lingered: as long as flushes usually take, but at least `linger_s` and at most three
  times that; while a flush is under way as long as they usually take, twice as long for each further one, or
* nothing more can arrive: every producing connection has used up its window (it has as many requests
  unanswered as it ever keeps) or has been quiet for a while: `quiet_s`, or twice as long as connections take
  at present from an answer to their next request. This reason waits while an earlier flush is under way,
  because that flush's answers are what opens the windows again.

Under full load a chunk thus holds what came while the one before it was written, however slow the store is.
PUTs cost money: a token bucket (`puts_per_s`, `puts_burst`) delays every reason but a drain.
Times are seconds of one monotonic clock (the event loop's).
"""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass
from enum import Enum


class Reason(Enum):
    """Why a flush is due."""

    FULL = "full"
    LINGER = "linger"
    IDLE = "idle"
    DRAIN = "drain"


FORGET_S = 1.0
"""A connection with nothing unanswered is forgotten after this, seconds: it may be closed."""

LINGER_GROWTH = 2
"""How many times longer the oldest byte lingers for each flush under way beyond the first: the store is busy,
and one larger chunk costs less than another one beside it."""

LINGERS_MAX = 3
"""How many times `linger_s` the oldest byte waits at most where no flush is under way."""

LINGER_PER_AGENT_S, LINGER_OF_AGENTS_S_MAX = 0.002, 0.015
"""How long the oldest byte lingers at least for each agent of the cluster, and for all of them: everyone
follows each flush's entry, so that of many agents each writes fewer."""

UNKNOWN_LINGERS = 4
"""What a flush is taken to last before any has ended, in lingers."""

DURATIONS_MAX = 33
"""Newest flushes whose median is what one usually takes."""

TURNAROUND_WEIGHT = 0.1
"""Share of the newest sample in the moving average of what connections take from an answer to a request."""


@dataclass(frozen=True, slots=True)
class FlushLimits:
    """The planner's limits. Bytes, seconds and counts."""

    buffer_bytes_max: int = 4 << 20
    batches_max: int = 8192
    linger_s: float = 0.1
    quiet_s: float = 0.002
    in_flight_max: int = 4
    puts_per_s: float = 400.0
    puts_burst: float = 100.0


@dataclass(frozen=True, slots=True)
class Decision:
    """Flush now for `reason`, or look again at `wake_at` (None: when something happens)."""

    reason: Reason | None
    wake_at: float | None = None


_WAIT = Decision(None)


@dataclass(slots=True)
class _Connection:
    """What is known of one producing connection: requests unanswered, and the most it keeps so."""

    unanswered: int = 0
    window: int = 1
    answered_at: float | None = None  # when an answer opened its full window


def lingers_s(linger_s: float, usual_s: float, agents: int) -> float:
    """How long the oldest byte waits for company where no flush is under way, seconds.

    `usual_s`: what flushes usually take. Beside a quick store a longer wait would be most of what a record
    waits for, beside a slow one it is little, and saves PUTs.
    """
    of_agents = min(agents * LINGER_PER_AGENT_S, LINGER_OF_AGENTS_S_MAX)
    return min(LINGERS_MAX * linger_s, max(linger_s, usual_s, of_agents))


class FlushPlanner:
    """Counts what arrives and what is answered, and says when a flush is due."""

    def __init__(self, limits: FlushLimits) -> None:
        self.limits = limits
        self.buffered_bytes = 0
        self.buffered_batches = 0
        self.in_flight = 0
        self.draining = False
        self.agents = 1
        """Of the cluster, this one among them."""
        self._oldest: float | None = None
        self._turnaround = 0.0
        self._durations: deque[float] = deque(maxlen=DURATIONS_MAX)
        self.usual_s = limits.linger_s * UNKNOWN_LINGERS
        """What a flush usually takes, from its PUT's beginning to its answers."""
        self._tokens = limits.puts_burst
        self._tokens_at: float | None = None
        self._connections: dict[int, _Connection] = {}
        """Those with requests unanswered, and those that answers went to lately."""
        # Connections that could send another request, by when they last moved: oldest first.
        self._open: OrderedDict[int, float] = OrderedDict()

    def arrived(self, connection: int, size: int, batches: int, now: float) -> None:
        """A request with `batches` batches of `size` bytes entered the buffer."""
        known = self._connections.get(connection)
        if known is None:
            known = self._connections[connection] = _Connection()
        if known.answered_at is not None:
            taken, known.answered_at = now - known.answered_at, None
            if taken <= self._longest_s:  # else it was idle, and nobody waits that long anyway
                self._turnaround += (taken - self._turnaround) * TURNAROUND_WEIGHT
        known.unanswered += 1
        if known.unanswered > known.window:
            known.window = known.unanswered
        if known.unanswered < known.window:
            self._moved(connection, now)
        else:
            self._open.pop(connection, None)
        self.buffered_bytes += size
        self.buffered_batches += batches
        if self._oldest is None:
            self._oldest = now

    def answered(self, connection: int, now: float) -> None:
        """One of the connection's requests was answered: its window has room again."""
        known = self._connections[connection]
        if known.unanswered == known.window > 1:
            known.answered_at = now
        known.unanswered -= 1
        self._moved(connection, now)

    def flushed(self, size: int, batches: int, now: float, oldest: float | None) -> None:
        """A flush of `size` bytes began; `oldest` is when the first byte still buffered arrived."""
        self._refill(now)
        self._tokens -= 1
        self.buffered_bytes -= size
        self.buffered_batches -= batches
        self.in_flight += 1
        self._oldest = oldest

    def dropped(self, size: int, batches: int) -> None:
        """Everything buffered, `size` bytes, was given up without a flush."""
        self.buffered_bytes -= size
        self.buffered_batches -= batches
        self._oldest = None

    def completed(self, took_s: float | None = None) -> None:
        """A flush ended: its answers are decided, `took_s` after it began; None: it was given up."""
        self.in_flight -= 1
        if took_s is not None:
            self._durations.append(took_s)
            self.usual_s = sorted(self._durations)[len(self._durations) // 2]

    def hedged(self, puts: int) -> None:
        """A flush took so many PUTs more than its one; they come out of the budget of the next."""
        self._tokens -= puts

    @property
    def _longest_s(self) -> float:
        return LINGERS_MAX * self.limits.linger_s

    @property
    def waits(self) -> bool:
        """Whether what arrives brings no flush sooner: one is under way, and the buffer is not full."""
        return self.in_flight > 0 and not self.draining and not self._full

    @property
    def _full(self) -> bool:
        limits = self.limits
        return self.buffered_bytes >= limits.buffer_bytes_max or self.buffered_batches >= limits.batches_max

    def decide(self, now: float) -> Decision:
        """Whether a flush is due at `now`, and if not, when to ask again."""
        if self._oldest is None or self.in_flight >= self.limits.in_flight_max:
            return _WAIT
        if self.draining:
            return Decision(Reason.DRAIN)
        reason, wake_at = self._due(now, self._oldest)
        if reason is None:
            return Decision(None, wake_at)
        self._refill(now)
        if self._tokens < 1:
            return Decision(None, now + (1 - self._tokens) / self.limits.puts_per_s)
        return Decision(reason)

    def _due(self, now: float, oldest: float) -> tuple[Reason | None, float | None]:
        if self._full:
            return Reason.FULL, None
        linger = lingers_s(self.limits.linger_s, self.usual_s, self.agents)
        if self.in_flight:
            linger = max(linger, self.usual_s) * LINGER_GROWTH ** (self.in_flight - 1)
        linger_end = oldest + linger
        if now >= linger_end:
            return Reason.LINGER, None
        if self.in_flight:
            return None, linger_end
        quiet_end = self._quiet_end(now)
        if quiet_end is None:
            return Reason.IDLE, None
        return None, min(linger_end, quiet_end)

    def _quiet_end(self, now: float) -> float | None:
        """When the last connection that may still send will count as quiet; None when none may."""
        if not self._open:
            return None
        quiet = max(self.limits.quiet_s, min(2 * self._turnaround, self._longest_s))
        end = next(reversed(self._open.values())) + quiet
        if now < end:
            return end
        self._turnaround /= 2  # waiting that long was in vain
        while self._open:
            self._close(self._open.popitem()[0])
        return None

    def _moved(self, connection: int, now: float) -> None:
        """Note when an open connection moved; forget those that have not for long."""
        self._open[connection] = now
        self._open.move_to_end(connection)
        while now - next(iter(self._open.values())) > FORGET_S:
            self._close(self._open.popitem(last=False)[0])

    def _close(self, connection: int) -> None:
        """A connection sends nothing more for now: do not wait for it.

        The number of requests that it has under way now is taken as the most that it ever has. One with
        nothing under way is forgotten.
        """
        known = self._connections[connection]
        if known.unanswered:
            known.window = known.unanswered
            known.answered_at = None
        else:
            del self._connections[connection]

    def _refill(self, now: float) -> None:
        if self._tokens_at is not None:
            grown = self._tokens + (now - self._tokens_at) * self.limits.puts_per_s
            self._tokens = min(self.limits.puts_burst, grown)
        self._tokens_at = now
