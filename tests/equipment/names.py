"""A name server for one name whose address a test changes, as Kubernetes does with a pod that comes back."""

from __future__ import annotations

import asyncio
import socket
import struct
from typing import Self

A, TTL_S = 1, 0
HEADER = struct.Struct(">HHHHHH")
QUERY_TAIL_BYTES = 4  # type and class behind the name
POINTS_TO_QUESTION = b"\xc0\x0c"


class Names(asyncio.DatagramProtocol):
    """Answers every question for an A record with `address`; other types have no records.

    `async with Names("127.0.0.1") as names: EtcdClient([names.of("etcd.test", 2379)], …)`
    """

    def __init__(self, address: str) -> None:
        self.address = address
        self.asked = 0  # questions for an A record, from the beginning
        self.port = 0
        self._transport: asyncio.DatagramTransport | None = None

    def of(self, name: str, port: int) -> str:
        """The gRPC target that looks `name` up here."""
        return f"dns://127.0.0.1:{self.port}/{name}:{port}"

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        """See asyncio.DatagramProtocol."""
        question = data[HEADER.size : data.index(b"\0", HEADER.size) + 1 + QUERY_TAIL_BYTES]
        (kind,) = struct.unpack(">H", question[-4:-2])
        self.asked += kind == A
        number = HEADER.unpack_from(data)[0]
        answer = HEADER.pack(number, 0x8180, 1, int(kind == A), 0, 0) + question
        if kind == A:
            answer += POINTS_TO_QUESTION + struct.pack(">HHIH", A, 1, TTL_S, 4)
            answer += socket.inet_aton(self.address)
        assert self._transport is not None
        self._transport.sendto(answer, addr)

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        self._transport, _ = await loop.create_datagram_endpoint(lambda: self, ("127.0.0.1", 0))
        self.port = self._transport.get_extra_info("sockname")[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._transport is not None
        self._transport.close()
