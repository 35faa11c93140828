"""How large a message a client may announce in its TLS handshake: OpenSSL makes room when it is announced.

A hello of 128 KiB may be announced in nine bytes, by anybody. Clients' have some hundred bytes, those with a
key of a post-quantum kind two thousand. Only hellos are looked at, the first and the one after a
HelloRetryRequest: what else a client may say in the clear, OpenSSL asks for first.
"""

from __future__ import annotations

from typing import Final

HELLO_BYTES_MAX: Final = 16 * 1024
"""Of a client's hello, bytes."""
_HANDSHAKE: Final = 0x16
_CLIENT_HELLO, _CLIENT_KEY_EXCHANGE = 0x01, 0x10
_RECORD_BYTES, _MESSAGE_BYTES = 5, 4


class Announced:
    """Of one connection: fed with what comes, until the handshake is done (RFC 8446, sections 4 and 5.1)."""

    def __init__(self) -> None:
        self.too_large = 0
        """Bytes of the hello that was refused."""
        self._record_head, self._head = bytearray(), bytearray()
        self._record_left = self._message_left = 0
        self._handshake = False
        self._over = False

    def feed(self, read: memoryview) -> bool:
        """False for a hello that is too large; nothing of this piece is then for OpenSSL."""
        while len(read) and not (self._over or self.too_large):
            if not self._record_left:
                read = self._begin_record(read)
            elif self._handshake:
                part = read[: self._record_left]
                self._messages(part)
                self._record_left -= len(part)
                read = read[len(part) :]
            else:
                skipped = min(self._record_left, len(read))
                self._record_left -= skipped
                read = read[skipped:]
        return not self.too_large

    def _begin_record(self, read: memoryview) -> memoryview:
        """A record's header, or some of it; what comes behind."""
        read = self._take(read, self._record_head, _RECORD_BYTES)
        if len(self._record_head) == _RECORD_BYTES:
            self._handshake = self._record_head[0] == _HANDSHAKE
            self._record_left = int.from_bytes(self._record_head[3:], "big")
            self._record_head.clear()
        return read

    def _messages(self, part: memoryview) -> None:
        """Pieces of the messages that records carry; they may begin and end anywhere."""
        while len(part) and not (self._over or self.too_large):
            if self._message_left:
                skipped = min(self._message_left, len(part))
                self._message_left -= skipped
                part = part[skipped:]
                continue
            part = self._take(part, self._head, _MESSAGE_BYTES)
            if len(self._head) == _MESSAGE_BYTES:
                kind, self._message_left = self._head[0], int.from_bytes(self._head[1:], "big")
                self._head.clear()
                if kind == _CLIENT_HELLO and self._message_left > HELLO_BYTES_MAX:
                    self.too_large = self._message_left
                # In TLS 1.2 what comes behind it is encrypted; in 1.3 there is none, and OpenSSL refuses it.
                self._over = kind == _CLIENT_KEY_EXCHANGE

    def _take(self, read: memoryview, head: bytearray, wanted: int) -> memoryview:
        """Fill up a header; what comes behind."""
        more = wanted - len(head)
        head += read[:more]
        return read[more:]
