"""One Kafka connection without its socket: bytes in, frames out; answers in, ordered buffers out.

The driver reads into `get_buffer()` and says how much came with `received()`. A frame that is whole in what
was read is copied once; a larger one is read straight into a buffer of its own, which grows as its bytes
come in, never by what its size announces. `open()` keeps a place for the answer to a frame, `answer()` fills
it, and answers leave in the order of their requests, as Kafka's protocol asks.

Nothing here waits, logs or knows what a request means.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from struct import Struct

from agent.net.wire.errors import WireError
from agent.net.wire.frame import HEADER_BYTES_MIN, SIZE_BYTES
from agent.net.wire.primitives import Buffer

SCRATCH_BYTES = 64 * 1024
"""Size of the buffer that all connections of a process read small frames into, bytes."""

SCRATCH_BYTES_POOR = 4096
"""How much of it a connection may use while the process's budget is spent, bytes."""

GROWTH_BYTES = 1024 * 1024
"""A frame's own buffer grows by this much at a time, bytes."""

REQUEST_LIMIT = "request_bytes_max"
STRANGER_LIMIT = "sasl.receive_bytes_max before the login"
_ZEROS = memoryview(bytes(GROWTH_BYTES))
_SIZE = Struct(">i")
_HTTP = (b"GET ", b"POST", b"PUT ", b"HEAD", b"DELE", b"OPTI", b"PATC", b"CONN", b"TRAC", b"PRI ")
_TLS_HANDSHAKE = b"\x16\x03"


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of one server and its connections."""

    frame_bytes_max: int = 100 * 1024 * 1024
    """Largest request, bytes (Kafka's socket.request.max.bytes)."""

    process_bytes_max: int = 256 * 1024 * 1024
    """Request bytes held over all connections; one more frame than this lets the first in line finish."""

    requests_in_flight_max: int = 64
    """Requests of one connection being worked on; above it the connection is not read."""

    response_bytes_max: int = 128 * 1024 * 1024
    """Answer bytes that wait for a slow client; above it nothing is read, and no large answer begun."""

    connections_max: int = 10_000
    """Connections at once."""

    idle_s_max: float = 600.0
    """A connection without requests is closed after this, seconds (Kafka's connections.max.idle.ms)."""

    stall_s_max: float = 30.0
    """A connection that stops in the middle of a frame is closed after this, seconds."""

    strangers_max: int = 1_000
    """Connections at once that have not done their TLS handshake or their login; the oldest is cut."""

    login_s_max: float = 10.0
    """How long each of the two may take, seconds."""

    stranger_frame_bytes_max: int = 64 * 1024
    """Largest request before the login, bytes (Kafka's sasl.server.max.receive.size)."""


class Budget:
    """Request bytes that all connections together may hold.

    What does not fit waits in a line and is granted in order. Large frames that are all half read would
    wait for each other for ever, so the first in line may overdraw until its frame is whole, and nobody
    else may until that frame has been worked off. Never held: more than `bytes_max`, one frame, and
    SCRATCH_BYTES_POOR for each connection.
    """

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.used = 0
        self._line: deque[tuple[Account, int]] = deque()
        self._resting: deque[Account] = deque()
        self._debtor: Account | None = None
        self._overdrawing = False

    @property
    def spent(self) -> bool:
        """Whether a frame cannot grow without waiting."""
        return self.used + GROWTH_BYTES > self.bytes_max

    def ask(self, account: Account, size: int) -> None:
        """Take `size` bytes: `account.granted(size)` is called now or when it is the account's turn."""
        if self._overdrawing and account is self._debtor:
            self._line.appendleft((account, size))
        else:
            self._line.append((account, size))
        self._serve()

    def rest(self, account: Account) -> None:
        """Wait until no more than `bytes_max` is held; then `account.granted(0)` is called."""
        self._resting.append(account)
        self._serve()

    def charge(self, account: Account, size: int) -> None:
        """Take `size` bytes that are in memory already."""
        account.held += size
        self.used += size

    def give(self, account: Account, size: int) -> None:
        """Give `size` bytes back."""
        account.held -= size
        self.used -= size
        self._serve()

    def whole(self, account: Account) -> bool:
        """The account's frame is complete. True when it was overdrawn: `paid` must follow."""
        if not self._overdrawing or account is not self._debtor:
            return False
        self._overdrawing = False
        return True

    def paid(self) -> None:
        """The overdrawn frame's bytes have been given back."""
        self._debtor, self._overdrawing = None, False
        self._serve()

    def withdraw(self, account: Account) -> None:
        """The account waits for nothing any more."""
        self._line = deque(entry for entry in self._line if entry[0] is not account)
        self._resting = deque(other for other in self._resting if other is not account)
        self._serve()

    def leave(self, account: Account) -> None:
        """The account's connection is gone. What its requests hold is given back when they end."""
        self.withdraw(account)
        if self._overdrawing and account is self._debtor:
            self.paid()

    def _serve(self) -> None:
        while self._line:
            account, size = self._line[0]
            if self.used + size > self.bytes_max and not self._may_overdraw(account):
                break
            self._line.popleft()
            self.charge(account, size)
            account.granted(size)
        while self._resting and self.used <= self.bytes_max:
            self._resting.popleft().granted(0)

    def _may_overdraw(self, account: Account) -> bool:
        if self._debtor is None:
            self._debtor, self._overdrawing = account, True
        return self._overdrawing and account is self._debtor


class Account:
    """What one connection holds of the budget, bytes, and how it is told of a grant."""

    __slots__ = ("granted", "held")

    def __init__(self, granted: Callable[[int], None]) -> None:
        self.held = 0
        self.granted = granted


class Slot:
    """The place of one answer in the order of its connection's answers."""

    __slots__ = ("buffers", "came", "cut", "done")

    def __init__(self) -> None:
        self.came = 0.0
        """When its request came, by the event loop's clock, where it waited for its turn; else 0."""
        self.done = False
        self.cut = False
        """Whether nothing is answered here: the connection ends with a place before it, or at it."""
        self.buffers: list[Buffer] | None = None


def explain_size(size: int, head: bytes, limit: int, first: bool, setting: str = REQUEST_LIMIT) -> str | None:
    """Why a frame that announces `size` bytes is refused, or None. `head` is what it begins with.
    `setting` is whose `limit` it is.

    On a new connection the size tells other protocols apart: theirs is absurd as a size.
    """
    if HEADER_BYTES_MIN <= size <= limit:
        return None
    if first and head.startswith(_TLS_HANDSHAKE):
        return (
            "TLS was spoken to a listener without it: set security.protocol=PLAINTEXT (SASL_PLAINTEXT for "
            "logins) on the client"
        )
    if first and head.startswith(_HTTP):
        return "HTTP was spoken to a Kafka listener: use the agent's HTTP port"
    if size < HEADER_BYTES_MIN:
        return f"a request of {size} bytes is not Kafka: its header alone takes {HEADER_BYTES_MIN}"
    if first:
        return f"a first request of {size} bytes is beyond {setting} ({limit}), or is not Kafka"
    return f"a request of {size} bytes is beyond {setting} ({limit})"


class Connection:
    """The state of one connection. Feed it with get_buffer/received; see the module's text."""

    def __init__(
        self, limits: Limits, budget: Budget, scratch: memoryview, on_grant: Callable[[], None] = lambda: None
    ) -> None:
        self.failed: WireError | None = None
        """Why nothing more can be read. Frames that came before it are still answered."""
        self.outbox: list[Buffer] = []
        self.outbox_bytes = 0
        self._limits = limits
        self._budget = budget
        self._scratch = scratch
        self._account = Account(self._granted)
        self._on_grant = on_grant
        self._slots: deque[Slot] = deque()
        self._first = True
        self._frame_bytes_max, self._frame_setting = limits.frame_bytes_max, REQUEST_LIMIT
        self._in_flight_max = limits.requests_in_flight_max
        self._rest = b""
        self._frame: bytearray | None = None
        self._filled = 0
        self._size = 0
        self._room = 0
        self._waiting = False
        self._overdrawn: memoryview | None = None
        self._closed = False

    # Bytes in.

    def get_buffer(self) -> memoryview:
        """Where the driver reads into next; never empty. Valid until `received`."""
        if self._frame is None:
            rest = len(self._rest)
            self._scratch[:rest] = self._rest
            size = SCRATCH_BYTES_POOR if self._budget.spent else len(self._scratch)
            return self._scratch[rest:size]
        if self._room > len(self._frame):
            self._grow(self._room - len(self._frame))
        elif self._filled == len(self._frame):
            # The driver reads although it was asked to wait.
            self._budget.charge(self._account, 1)
            self._room += 1
            self._grow(1)
        return memoryview(self._frame)[self._filled :]

    def received(self, count: int) -> list[memoryview]:
        """`count` bytes were read into the buffer. Gives the frames now whole, without their sizes.

        A frame that cannot be accepted sets `failed`; nothing after it is read.
        """
        if self.failed or self._closed:
            return []
        if self._frame is None:
            frames = self._split(self._scratch[: len(self._rest) + count])
        else:
            self._filled += count
            frames = [self._finish()] if self._filled == self._size else []
        if self._frame is not None:
            self._want_room()
        elif self._budget.used > self._budget.bytes_max and not self._waiting:
            self._waiting = True
            self._budget.rest(self._account)
        return frames

    def narrow(self, frame_bytes_max: int) -> None:
        """Take frames of so many bytes at most, one after another: nobody knows yet whose they are."""
        self._frame_bytes_max, self._frame_setting = frame_bytes_max, STRANGER_LIMIT
        self._in_flight_max = 1

    def widen(self) -> None:
        """Take what the limits say."""
        self._frame_bytes_max, self._frame_setting = self._limits.frame_bytes_max, REQUEST_LIMIT
        self._in_flight_max = self._limits.requests_in_flight_max

    @property
    def mid_frame(self) -> bool:
        """Whether part of a frame has come."""
        return self._frame is not None or bool(self._rest)

    @property
    def waiting(self) -> bool:
        """Whether the process's budget is the reason not to read."""
        return self._waiting

    def wants_read(self, unsent: int = 0) -> bool:
        """Whether more should be read now. `unsent`: answer bytes that the driver took and still holds."""
        return not (
            self._waiting or self.failed or len(self._slots) >= self._in_flight_max or self.crowded(unsent)
        )

    def crowded(self, unsent: int = 0) -> bool:
        """Whether a slow client has not taken more than enough answer bytes. `unsent`: see wants_read."""
        return self.outbox_bytes + unsent > self._limits.response_bytes_max

    def _split(self, data: memoryview) -> list[memoryview]:
        frames: list[memoryview] = []
        pos, end = 0, len(data)
        while end - pos >= SIZE_BYTES:
            (size,) = _SIZE.unpack_from(data, pos)
            head = bytes(data[pos : pos + 8])
            reason = explain_size(size, head, self._frame_bytes_max, self._first, self._frame_setting)
            if reason:
                self.failed = WireError(reason)
                return frames
            self._first = False
            pos += SIZE_BYTES
            if end - pos < size:
                self._begin(data[pos:], size)
                return frames
            frames.append(memoryview(bytes(data[pos : pos + size])))
            self._budget.charge(self._account, size)
            pos += size
        self._rest = bytes(data[pos:])
        return frames

    def _begin(self, data: memoryview, size: int) -> None:
        """Give a frame that is not whole yet a buffer of its own."""
        self._rest = b""
        self._frame = bytearray(data)
        self._filled = self._room = len(data)
        self._size = size
        self._budget.charge(self._account, len(data))

    def _finish(self) -> memoryview:
        assert self._frame is not None
        frame, self._frame = memoryview(self._frame), None
        if self._waiting:  # the driver has read on: there is nothing left to wait for
            self._waiting = False
            self._budget.withdraw(self._account)
        if self._budget.whole(self._account):
            self._overdrawn = frame
        return frame

    def _want_room(self) -> None:
        if self._filled == self._room and not self._waiting:
            self._waiting = True
            self._budget.ask(self._account, min(self._size - self._room, GROWTH_BYTES))

    def _granted(self, size: int) -> None:
        self._waiting = False
        # Less than was asked for where the driver has read on: room beyond the frame would take the next one.
        needed = min(size, self._size - self._room)
        self._budget.charge(self._account, needed - size)  # it serves on by itself
        self._room += needed
        self._on_grant()

    def _grow(self, size: int) -> None:
        """Make room that was granted. Not done on grant: the driver may still hold the last view then."""
        assert self._frame is not None
        try:
            self._frame += _ZEROS[:size]
        except BufferError:
            self._frame = self._frame[: self._filled] + _ZEROS[:size]

    # Answers out.

    @property
    def in_flight(self) -> int:
        """Requests without an answer, and answers that wait for the one before them."""
        return len(self._slots)

    def open(self) -> Slot:
        """Keep the place of the next answer."""
        slot = Slot()
        self._slots.append(slot)
        return slot

    def answer(self, slot: Slot, buffers: list[Buffer] | None) -> None:
        """Fill a place; None when the request wants no answer. Moves what may leave now to `outbox`."""
        slot.done = True
        slot.buffers = None if self._closed else buffers
        while self._slots and self._slots[0].done:
            ready = self._slots.popleft().buffers
            if ready:
                self.outbox += ready
                self.outbox_bytes += sum(map(len, ready))

    def cut(self, slot: Slot | None, error: WireError) -> None:
        """Answer nothing from this place on, and read no more. What came before it is still answered."""
        self.failed = self.failed or error
        while slot is not None and slot in self._slots:
            self._slots.pop().cut = True

    def take(self) -> list[Buffer]:
        """Everything that may be sent, in order."""
        buffers, self.outbox, self.outbox_bytes = self.outbox, [], 0
        return buffers

    def hold(self, frame: memoryview) -> None:
        """A request's bytes are in memory once more."""
        self._budget.charge(self._account, len(frame))

    def release(self, frame: memoryview) -> None:
        """A request has been worked off: its bytes are free for others."""
        self._budget.give(self._account, len(frame))
        if frame is self._overdrawn:
            self._overdrawn = None
            self._budget.paid()

    def close(self) -> None:
        """The socket is gone: forget what was half read and what was not sent."""
        if self._closed:
            return
        self._closed = True
        partial, self._frame = self._frame, None
        self.outbox, self.outbox_bytes = [], 0
        self._budget.leave(self._account)
        if partial is not None:
            self._budget.give(self._account, self._room)
