"""A follower's side of the connection to a relay, and how long it is waited for."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import NamedTuple

from agent.cluster.peers.client import Link
from agent.cluster.peers.wire import ANSWER, PeerAnswered, PeerError, Status, check_answer
from agent.cluster.relay.choice import Choice
from agent.cluster.relay.wire import FRAME_BYTES_MAX, HEAD, WANTS, Item, decode_items, encode_follow
from agent.telemetry.figures import RELAY_LEFT
from objectstore import tasks

FRAMES_MAX = 4  # read ahead


class Left(Exception):
    """The relay is not followed any more; `reason` is one of REASONS."""

    def __init__(self, reason: str, why: str) -> None:
        super().__init__(f"{reason}: {why}")
        self.reason = reason


REASONS = RELAY_LEFT
"""`refused`: it did not let this agent follow; `gone`: the connection ended; `silent`, `behind`: patience is
over; `damaged`: an entry is not as its seal says; `differs`: its rolling hash is another one; `nonsense`: no
frames, or in no order; `moved`: another agent is the zone's relay now."""


class Frame(NamedTuple):
    """What a relay sent: entries, and through which revision that is all."""

    through: int
    items: list[Item]


class RelayStream:
    """An accepted request to follow. One `frame` at a time."""

    def __init__(self, link: Link, choice: Choice) -> None:
        self.choice = choice
        self._reader, self._writer = link.streams
        self._link = link
        self._frames: deque[Frame] = deque()
        self._changed, self._room = asyncio.Event(), asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._reading = tasks.owned(self._read(), "read of the relay")

    @classmethod
    async def open(cls, link: Link, choice: Choice, log: bytes, after: int) -> RelayStream:
        """Ask to follow. Raises PeerError (PeerAnswered: it refuses), OSError, EOFError."""
        request = encode_follow(log, after)
        reader, writer = link.streams
        if writer.is_closing():
            raise ConnectionResetError("the peer went away")
        writer.write(request)
        status = check_answer(await reader.readexactly(ANSWER.size), request)
        if status is not Status.OK:
            raise PeerAnswered(status)
        return cls(link, choice)

    async def frame(self, look_s: float) -> Frame | None:
        """The next one; None when none came for about `look_s`. Raises PeerError, OSError, EOFError.

        One timer wakes who waits, again and again: one for every wait took longer than the entries did.
        """
        if self._timer is None:
            self._look(look_s)
        if not self._frames and not self._reading.done():
            self._changed.clear()
            await self._changed.wait()
        if self._frames:
            frame = self._frames.popleft()
            self._room.set()
            return frame
        if self._reading.done():
            self._reading.result()
        return None

    def want(self, revision: int) -> None:
        """Tell which revision is waited for."""
        if not self._writer.is_closing():
            self._writer.write(WANTS.pack(revision))

    def close(self) -> None:
        """Hang up."""
        if self._reading.done() and not self._reading.cancelled():
            self._reading.exception()  # nobody asks any more
        self._reading.cancel()
        if self._timer is not None:
            self._timer.cancel()
        self._link.close()

    def _look(self, look_s: float) -> None:
        self._changed.set()
        self._timer = asyncio.get_running_loop().call_later(look_s, self._look, look_s)

    async def _read(self) -> None:
        """Ahead of who applies, by FRAMES_MAX. Raises PeerError, OSError, EOFError."""
        try:
            while True:
                size, through = HEAD.unpack(await self._reader.readexactly(HEAD.size))
                size -= HEAD.size - 4
                if not 0 <= size <= FRAME_BYTES_MAX:
                    raise PeerError(f"a frame of {size} bytes")
                body = await self._reader.readexactly(size) if size else b""
                self._frames.append(Frame(through, list(decode_items(body, 0))))
                self._changed.set()
                while len(self._frames) >= FRAMES_MAX:
                    self._room.clear()
                    await self._room.wait()
        finally:
            self._changed.set()


class Patience:
    """How long a relay may say nothing, and be behind what this agent knows of the log. Seconds.

    Time counts while this agent waits for the relay, a look at a time: neither its own work nor a pause of
    its process is the relay's fault.
    """

    def __init__(self, behind_s: float, silent_s: float) -> None:
        self.look_s = min(behind_s, silent_s) / 4
        self._behind_s, self._silent_s = behind_s, silent_s
        self._silence_s = self._late_s = 0.0
        self._target = 0  # what it is behind of

    def heard(self) -> None:
        """A frame came."""
        self._silence_s = 0.0

    def waited(self) -> None:
        """A look long nothing came. Raises Left."""
        self._silence_s += self.look_s
        if self._silence_s >= self._silent_s:
            raise Left("silent", f"it said nothing for {self._silent_s} s")

    def look(self, waited_s: float, through: int, target: int) -> None:
        """So long it was waited for, it is at `through`, and the log at `target`. Raises Left."""
        if through >= self._target:
            self._target, self._late_s = target, 0.0
            return
        self._late_s += min(waited_s, self.look_s)
        if self._late_s >= self._behind_s:
            raise Left(
                "behind", f"it is at revision {through}, and the log has been at {self._target} for longer"
            )
