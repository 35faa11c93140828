"""A small Kafka client for one-shot requests, over the agent's own codecs.

Kafka's admin requests carry an explanation with each error; the ready-made clients drop it. Any agent
serves topics, records and configs, so one connection is enough for them. A group is served by one agent only,
and each lists its own: `coordinators.py` finds them.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from agent.cli.command_config import command_config
from agent.cli.failures import Failure, Status, refused, unreachable, usage
from agent.net.wire.api import BY_NAME
from agent.net.wire.errors import WireError
from agent.net.wire.frame import encode_request_header, frame_request, parse_response_header
from agent.net.wire.generated.api_versions import ApiVersionsRequest
from coordination.kafka_codes import Code

CLIENT_ID = "floe-cli"
PORT_MAX = 65_535
CONNECT_S_MAX = 5.0
ANSWER_S_MAX = 30.0
ANSWER_BYTES_MAX = 256 * 1024 * 1024
ONLY_READ = frozenset(
    {"ConsumerGroupDescribe", "DescribeConfigs", "DescribeGroups", "FindCoordinator", "ListGroups"}
    | {"ListOffsets", "Metadata", "OffsetFetch"}
)
"""What may be asked twice: an agent that was paused, or ends, closes its connections without an answer."""


_NO_TLS = " (the listener may speak no TLS)"


class Refusal(Failure):
    """An agent answered with an error code of Kafka's."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(Status.REFUSED, message)
        self.code = code


class Closed(Failure):
    """The agent closed the connection instead of answering."""


class NoConnection(Exception):
    """No connection was made; says why."""


class Session:
    """One connection to one agent; requests one after the other. When it is closed, what only reads is asked
    again over another one, once in a session."""

    def __init__(self, address: str, host: str, port: int) -> None:
        self.address = address
        self._host, self._port = host, port
        self._reopens_left = 1
        self._correlation_id = 0
        self._ranges: dict[int, tuple[int, int]] = {}

    async def connect(self) -> None:
        """Raises NoConnection."""
        self._reader, self._writer = await _connected(self._host, self._port)

    async def negotiate(self) -> None:
        """Learn which versions the agent speaks, and log in where that is configured. Raises Failure."""
        answer = await self.call("ApiVersions", ApiVersionsRequest(), version=0)
        self._ranges = {row.api_key: (row.min_version, row.max_version) for row in answer.api_keys}
        config = command_config()
        if config.mechanism:
            from agent.cli.logging_in import log_in  # most do not need it, and are to be quick

            await log_in(config, self.call, self.address)

    async def call(
        self, name: str, request: object, *, version: int | None = None, version_max: int = 99
    ) -> Any:
        """Send one request by its Kafka name and return its answer. Raises Failure."""
        try:
            return await self._exchange(name, request, version, version_max)
        except Closed:
            if name not in ONLY_READ or not self._reopens_left:
                raise
            self._reopens_left -= 1
            if not await self._reopened():
                raise
        return await self._exchange(name, request, version, version_max)

    async def _reopened(self) -> bool:
        """Whether there is another connection now. Raises Failure."""
        self._writer.close()
        try:
            await self.connect()
        except NoConnection:
            return False
        await self.negotiate()
        return True

    async def _exchange(self, name: str, request: object, version: int | None, version_max: int) -> Any:
        api = BY_NAME[name]
        if version is None:
            low, high = self._ranges.get(api.key, (1, 0))
            version = min(high, api.max, version_max)
            if version < max(low, api.min):
                raise refused(f"the agent at {self.address} does not speak {name}; is it of another version?")
        self._correlation_id += 1
        header = encode_request_header(api, version, self._correlation_id, CLIENT_ID)
        codec = api.codec()
        try:
            async with asyncio.timeout(ANSWER_S_MAX):
                self._writer.write(frame_request(header, codec.encode_request(request, version)))
                await self._writer.drain()
                payload = await self._payload()
            _, body = parse_response_header(api, version, payload)
            return codec.decode_response(payload[body:], version)
        except TimeoutError:
            raise unreachable(
                f"no answer to {name} from {self.address} within {ANSWER_S_MAX:.0f} s"
            ) from None
        except (asyncio.IncompleteReadError, ConnectionError):
            message = f"the agent at {self.address} closed the connection during {name}; see its log"
            raise Closed(Status.UNREACHABLE, message) from None
        except WireError as error:
            raise Failure(Status.FAILED, f"the answer to {name} is not understood: {error}") from None

    async def _payload(self) -> bytes:
        size = int.from_bytes(await self._reader.readexactly(4), "big", signed=True)
        if not 4 <= size <= ANSWER_BYTES_MAX:
            raise Failure(Status.FAILED, f"{self.address} does not speak Kafka (frame of {size} bytes)")
        return await self._reader.readexactly(size)

    async def close(self) -> None:
        """Close the connection."""
        self._writer.close()


@asynccontextmanager
async def session(bootstrap: str) -> AsyncIterator[Session]:
    """A session with the first address of a bootstrap list that answers. Raises Failure."""
    opened = await _first(bootstrap)
    try:
        yield opened
    finally:
        await opened.close()


@asynccontextmanager
async def session_at(host: str, port: int) -> AsyncIterator[Session]:
    """A session with the agent that another one names by this address. Raises NoConnection and Failure."""
    opened = Session(address_of(host, port), host, port)
    await opened.connect()
    try:
        await opened.negotiate()
        yield opened
    finally:
        await opened.close()


def address_of(host: str, port: int) -> str:
    """Host and port as people write them."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


async def _first(bootstrap: str) -> Session:
    """Of an agent that says what it speaks: one that is ending closes the connection instead."""
    problems: list[str] = []
    for _ in range(2):  # the second time for agents that closed it: they may have been paused, not ending
        problems, closed = [], False
        for address in bootstrap.split(","):
            opened = _named(address)
            try:
                await opened.connect()
            except NoConnection as error:
                problems.append(f"{address}: {error}")
                continue
            try:
                await opened.negotiate()
            except Failure as failure:
                await opened.close()
                if failure.status is not Status.UNREACHABLE:
                    raise
                problems.append(f"{address}: {failure}")
                closed |= isinstance(failure, Closed)
            else:
                return opened
        if not closed:
            break
    tried = "; ".join(problems)
    raise unreachable(
        f"no agent is reached ({tried}); start one with `floe dev` or give --bootstrap host:port"
    )


def _named(address: str) -> Session:
    """One address of a bootstrap list, not connected yet. Raises Failure."""
    host, _, text = address.strip().rpartition(":")
    port = int(text) if text.isascii() and text.isdecimal() and len(text) <= len(str(PORT_MAX)) else 0
    if not host or not 1 <= port <= PORT_MAX:
        raise usage(f"--bootstrap {address!r} is not host:port, with a port from 1 to {PORT_MAX}")
    return Session(address, host.strip("[]"), port)


async def _connected(host: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Raises NoConnection."""
    try:
        async with asyncio.timeout(CONNECT_S_MAX):
            return await asyncio.open_connection(host, port, ssl=command_config().tls)
    except TimeoutError:
        raise NoConnection(f"no connection within {CONNECT_S_MAX:.0f} s") from None
    except OSError as error:
        raise NoConnection(_why(error)) from None
    except UnicodeError:  # a label that is empty or too long, before anybody is asked
        raise NoConnection("no name of a host") from None


def _why(error: OSError) -> str:
    """The operating system's own words; the numbers of failed look-ups of names are none of its."""
    if isinstance(error, socket.gaierror):
        return str(error.strerror)
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not believed: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return f"TLS: {error.reason or error}{_NO_TLS if error.reason == 'WRONG_VERSION_NUMBER' else ''}"
    said = os.strerror(error.errno) if error.errno else str(error) or type(error).__name__
    cut = isinstance(error, ConnectionResetError) and command_config().tls is not None
    return f"{said}{_NO_TLS if cut else ''}"


def refusal(code: int, message: str | None, what: str) -> Refusal | None:
    """What `check_code` raises, if anything: of several rows each may be refused by itself."""
    try:
        check_code(code, message, what)
    except Refusal as error:
        return error
    return None


def check_code(code: int, message: str | None, what: str) -> None:
    """Raise Refusal for an error code of Kafka's; `message` is the agent's explanation, if any."""
    if code:
        name = Code(code).name if code in set(Code) else f"error {code}"
        raise Refusal(code, f"{what}: {name}{': ' + message if message else ''}")
