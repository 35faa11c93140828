"""TLS between a socket's transport and the protocol of a connection: it is a protocol to the one, a transport
to the other.

The event loops have TLS of their own. This one lets us say what a client spoke instead, cut handshakes that
do not end, take another context for the next connection, and hold what a client does not read as plain bytes,
which are counted, instead of as a second copy. At most HELD_BYTES are encrypted ahead of the socket.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, Final, cast

from agent.net.announced import HELLO_BYTES_MAX, Announced
from agent.net.principals import NoPrincipal
from agent.net.strangers import Strangers
from agent.net.tls import Tls
from agent.net.wire.primitives import Buffer

HELD_BYTES: Final = 256 * 1024
"""Encrypted at once, bytes."""
RECORD_BYTES: Final = 16 * 1024
"""The largest TLS record, bytes. No more is encrypted before it is taken from OpenSSL: its buffers keep the
memory of the most that they ever held, half a megabyte for each connection with pieces of 64 and 256 KiB."""
FED_BYTES: Final = 12 * 1024
"""What OpenSSL is given at once to decrypt, bytes, for the same reason."""
WAITING_BYTES_MAX: Final = 32 * 1024
"""Of a handshake that waits for its turn, bytes: beyond it the socket is not read."""
NOTHING: Final = memoryview(b"")
TLS_HANDSHAKE: Final = 0x16
WANTED: Final = "plain bytes came to a listener that speaks TLS: set security.protocol to {} on the client"
HTTP: Final = (b"GET ", b"POST", b"PUT ", b"HEAD", b"DELE", b"OPTI")


class Encrypted(asyncio.BufferedProtocol):
    """One connection. `app` hears of it once the handshake is done: `connection_made(self)`."""

    def __init__(
        self,
        tls: Tls,
        scratch: memoryview,
        strangers: Strangers,
        app: Callable[[], asyncio.BufferedProtocol],
        refused: Callable[[Encrypted, str], None],
        speaks: str,
        gone: Callable[[], None] | None = None,
    ) -> None:
        """`scratch`: shared with others of TLS, not with the app, and used up at once. `refused` hears why a
        handshake came to nothing. `speaks`: what clients have to set. `gone` hears of the end."""
        self._gone = gone
        self._tls, self._scratch, self._strangers = tls, scratch, strangers
        self._make_app, self._refused, self._speaks = app, refused, speaks
        self._app: asyncio.BufferedProtocol | None = None
        self._raw: asyncio.Transport | None = None
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.context = tls.context
        """What it shakes hands by."""
        self._ssl = tls.context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._announced = Announced()
        self._begun = self._closing = self._eof = self._paused = self._ended = False
        self._queued = self._full = False
        self._writable = True
        self._plain: deque[memoryview] = deque()
        self._plain_bytes = 0
        self._loop = asyncio.get_running_loop()
        self.principal = ""
        """By the client's certificate; empty when it showed none."""

    # A protocol to the socket.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._raw = cast(asyncio.Transport, transport)
        self._strangers.enter(self, self._loop.time(), self._fail)

    def get_buffer(self, sizehint: int) -> memoryview:
        # A BIO keeps room for the most that it ever held: little, of whoever is not known.
        return self._scratch if self._app is not None else self._scratch[:RECORD_BYTES]

    def buffer_updated(self, nbytes: int) -> None:
        if self._ended:
            return
        read = self._scratch[:nbytes]
        if not self._begun:
            self._begun = True
            if read[0] != TLS_HANDSHAKE:
                self._fail(self.not_tls(bytes(read[:4])))
                return
        if self._app is None and not self._announced.feed(read):
            size = self._announced.too_large
            self._fail(f"a TLS hello of {size} bytes was announced: at most {HELLO_BYTES_MAX} are taken")
            return
        if self._app is not None:
            self._read(read)
            return
        self._incoming.write(read)
        if not self._queued:
            self._queued = True
            self._strangers.step(self._take_step)
        if self._queued and not self._full and self._incoming.pending > WAITING_BYTES_MAX:
            self._full = True
            assert self._raw is not None
            self._raw.pause_reading()

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        self._writable = False
        if self._app is not None:
            self._app.pause_writing()

    def resume_writing(self) -> None:
        self._writable = True
        self._pump()
        if self._writable and self._app is not None:
            self._app.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._ended = True
        if self._gone is not None:
            self._gone()
        self._strangers.leave(self)
        if self._app is not None:
            self._app.connection_lost(exc)
        elif exc is None and not self._closing and self._begun:
            self._refused(self, "the client went away in the middle of the TLS handshake")
        self._plain.clear()
        self._plain_bytes = 0
        self._raw = None

    def _take_step(self) -> None:
        """Its turn among those who shake hands."""
        self._queued = False
        raw = self._raw
        if self._ended or raw is None:
            return
        if self._full and not raw.is_closing():
            self._full = False
            raw.resume_reading()
        self._shake_hands()
        if self._app is not None and not self._ended:
            self._read()

    def not_tls(self, first: bytes) -> str:
        """What to tell of a client that begins so."""
        return "HTTP was spoken to a Kafka listener" if first in HTTP else WANTED.format(self._speaks)

    def _shake_hands(self) -> None:
        try:
            self._ssl.do_handshake()
        except ssl.SSLWantReadError:
            self._flush()
            return
        except ssl.SSLError as error:
            self._flush()  # the alert
            self._fail(_told(error))
            return
        certificate = self._ssl.getpeercert()
        try:
            self.principal = self._tls.namer(certificate) if certificate else ""
        except NoPrincipal as error:
            self._fail(str(error))
            return
        self._flush()
        self._strangers.leave(self)
        self._app = self._make_app()
        self._app.connection_made(self)  # type: ignore[arg-type]  # it has what is used of a transport

    def _fail(self, reason: str) -> None:
        """The handshake comes to nothing."""
        self._closing = self._ended = True
        self._strangers.leave(self)
        if self._raw is not None:
            self._refused(self, reason)
            self._raw.close()

    def _read(self, came: memoryview = NOTHING) -> None:
        """Decrypt what has come into the app's buffers, until there is no more or the app pauses."""
        app = self._app
        assert app is not None
        while not (self._paused or self._ended):
            count, came, over = self._decrypt(app.get_buffer(-1), came)
            if count:
                app.buffer_updated(count)
            if over:
                self._ended = True
                self.close()
            elif not count:
                break
        if came:
            self._incoming.write(came)  # for when the app goes on
        self._flush()

    def _decrypt(self, buffer: Any, came: memoryview) -> tuple[int, memoryview, bool]:
        """Fill a buffer of the app's, by several records, as telling it of each costs more than decrypting.

        Gives its bytes, what OpenSSL was not given yet, and whether that was all: the client's close_notify,
        or bytes that nobody who knows the key wrote.
        """
        filled, view = 0, memoryview(buffer)
        while filled < len(view):
            if came and not self._incoming.pending:
                self._incoming.write(came[:FED_BYTES])
                came = came[FED_BYTES:]
            rest: Any = view[filled:]
            try:
                count: Any = self._ssl.read(len(rest), rest)  # typeshed thinks of reads without a buffer
            except ssl.SSLWantReadError:
                if not came:
                    break
                self._incoming.write(came[:FED_BYTES])
                came = came[FED_BYTES:]
                continue
            except ssl.SSLError:
                count = 0
            if not count:
                return filled, came, True
            filled += int(count)
        return filled, came, False

    # A transport to the app.

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Of the socket; `principal` is by the certificate."""
        if name == "principal":
            return self.principal
        return default if self._raw is None else self._raw.get_extra_info(name, default)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Of the socket's own buffer; what is not encrypted yet waits beside it."""
        if self._raw is not None:
            self._raw.set_write_buffer_limits(high, low)

    def get_write_buffer_size(self) -> int:
        """Bytes that the client has not taken."""
        return self._plain_bytes + (0 if self._raw is None else self._raw.get_write_buffer_size())

    def writelines(self, buffers: Iterable[Buffer]) -> None:
        """Encrypt and send, as the socket takes it."""
        for buffer in buffers:
            if len(buffer):
                self._plain.append(memoryview(buffer).cast("B"))
                self._plain_bytes += len(buffer)
        self._pump()
        if self._plain and self._writable and self._app is not None:
            self._app.pause_writing()

    def pause_reading(self) -> None:
        """No more comes to the app."""
        self._paused = True
        if self._raw is not None and not self._raw.is_closing():
            self._raw.pause_reading()

    def resume_reading(self) -> None:
        """What has come already comes first, after the app has returned."""
        if not self._paused:
            return
        self._paused = False
        if self._raw is not None and not self._raw.is_closing():
            self._raw.resume_reading()
            self._loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        if self._raw is not None and not self._ended:
            self._read()

    def is_closing(self) -> bool:
        """Whether nothing more is sent."""
        return self._closing or self._raw is None or self._raw.is_closing()

    def can_write_eof(self) -> bool:
        """It says so within TLS."""
        return True

    def write_eof(self) -> None:
        """Nothing more comes from here, when all is sent."""
        self._eof = True
        self._pump()

    def close(self) -> None:
        """When all is sent."""
        self._closing = True
        self._pump()

    def abort(self) -> None:
        """At once."""
        self._closing = True
        if self._raw is not None:
            self._raw.abort()

    def _pump(self) -> None:
        """Encrypt what the socket will take."""
        raw = self._raw
        if raw is None or raw.is_closing():
            return
        while self._plain and self._writable:
            self._encrypt(raw)
        if self._plain or not (self._closing or self._eof):
            return
        with suppress(ssl.SSLError):
            self._ssl.unwrap()  # writes close_notify, and then waits for the client's: we do not
        self._flush()
        self._eof = False
        if self._closing:
            raw.close()

    def _encrypt(self, raw: asyncio.Transport) -> None:
        """Some of what waits, record by record."""
        done, records = 0, list[bytes]()
        while self._plain and done < HELD_BYTES:
            piece = self._piece()
            self._ssl.write(piece)
            records.append(self._outgoing.read())
            done += len(piece)
        self._plain_bytes -= done
        raw.writelines(records)

    def _piece(self) -> memoryview:
        """What goes into one record: of a large buffer as much, small ones together."""
        first = self._plain.popleft()
        if len(first) > RECORD_BYTES:
            self._plain.appendleft(first[RECORD_BYTES:])
            return first[:RECORD_BYTES]
        parts, size = [first], len(first)
        while self._plain and size + len(self._plain[0]) <= RECORD_BYTES:
            parts.append(self._plain.popleft())
            size += len(parts[-1])
        return first if len(parts) == 1 else memoryview(b"".join(parts))

    def _flush(self) -> None:
        raw = self._raw
        if self._outgoing.pending and raw is not None and not raw.is_closing():
            raw.write(self._outgoing.read())


def _told(error: ssl.SSLError) -> str:
    """Why a handshake failed, in the words of whoever looks for it."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the client's certificate is refused: {error.verify_message}"
    told = {
        "PEER_DID_NOT_RETURN_A_CERTIFICATE": "the client shows no certificate: tls_client_auth requires one",
        "UNSUPPORTED_PROTOCOL": "the client's TLS version is not one of tls_protocols",
        "NO_SHARED_CIPHER": "the client knows none of the ciphers",
        "TLSV1_ALERT_UNKNOWN_CA": "the client does not trust the authority of this listener's certificate",
        "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "the client refuses this listener's certificate",
        "SSLV3_ALERT_BAD_CERTIFICATE": "the client refuses this listener's certificate",
    }
    reason = getattr(error, "reason", None) or ""  # not every SSLError of Python 3.11 has one
    return f"TLS handshake: {told.get(reason, reason or 'not TLS')}"
