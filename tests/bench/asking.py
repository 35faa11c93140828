"""HTTP over a connection that stays open, with next to no work of the client's own."""

from __future__ import annotations

import asyncio


class Client:
    """One connection that stays open."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def open(cls, port: int) -> Client:
        """Connect to an agent of this machine."""
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    async def ask(self, request: bytes) -> bytes:
        """The body of an answer, which must be a 200."""
        head, body = await self.answer(request)
        assert head.startswith(b"HTTP/1.1 200"), head + body
        return body

    async def answer(self, request: bytes) -> tuple[bytes, bytes]:
        """Head and body of an answer, whatever it says."""
        self._writer.write(request)
        head = await self._reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        return head, await self._reader.readexactly(length)

    def close(self) -> None:
        """Hang up."""
        self._writer.close()


def get(path: str) -> bytes:
    """A GET as bytes."""
    return f"GET {path} HTTP/1.1\r\nHost: bench\r\nAccept: application/json\r\n\r\n".encode()
