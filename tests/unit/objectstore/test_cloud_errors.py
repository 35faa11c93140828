"""What each answer of an S3 server means to the caller. Real servers do not fail on order; this one does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from objectstore.open import open_store
from objectstore.store import (
    CREATE,
    PLAIN,
    Ambiguous,
    ClockSkewed,
    Denied,
    NoBucket,
    NotFound,
    ObjectStore,
    Precondition,
    Replace,
    Retryable,
    StoreError,
)


def answer(status: int, code: str = "", body: bytes | None = None, length: int | None = None) -> bytes:
    content = f"<Error><Code>{code}</Code></Error>".encode() if body is None else body
    size = len(content) if length is None else length
    headers = (
        f'HTTP/1.1 {status} X\r\ncontent-length: {size}\r\netag: "e"\r\n'
        "last-modified: Sat, 21 Nov 2026 09:00:00 GMT\r\nconnection: close\r\n\r\n"
    )
    return headers.encode() + content


class Server:
    """Answers every request with the same bytes; None hangs up without an answer, b"" never answers."""

    def __init__(self) -> None:
        self.answer: bytes | None = None
        self.requests = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            self.requests += 1
            for line in head.lower().split(b"\r\n"):
                if line.startswith(b"content-length:"):
                    await reader.readexactly(int(line.split(b":")[1]))
            if self.answer == b"":
                await reader.read()
            elif self.answer is not None:
                writer.write(self.answer)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    found = Server()
    listening = await asyncio.start_server(found.serve, "127.0.0.1", 0)
    found.port = listening.sockets[0].getsockname()[1]
    yield found
    listening.close()
    await listening.wait_closed()


@pytest.fixture
def store(server: Server) -> ObjectStore:
    return open_store(
        "s3://bucket/prefix",
        endpoint=f"http://127.0.0.1:{server.port}",
        access_key="a",
        secret_key="b",
        allow_http=True,
        request_s_max=0.5,
        retry=None,
    )


READ_AND_WRITE = [
    # the server's answer, what a write is told, what a read is told
    (answer(500, "InternalError"), Ambiguous, Retryable),
    (answer(503, "SlowDown"), Ambiguous, Retryable),
    (answer(503, "", b""), Ambiguous, Retryable),
    (answer(504, "GatewayTimeout"), Ambiguous, Retryable),
    (None, Ambiguous, Retryable),
    (b"", Ambiguous, Retryable),
    (answer(429, "TooManyRequests"), Retryable, Retryable),
    (answer(403, "AccessDenied"), Denied, Denied),
    (answer(401, "Unauthorized"), Denied, Denied),
    (answer(400, "InvalidArgument"), Denied, Denied),
    (answer(404, "NoSuchBucket"), NoBucket, NoBucket),
    (answer(404, "XAdminUserNotFound"), Denied, Denied),
]


@pytest.mark.parametrize(("told", "write", "read"), READ_AND_WRITE)
async def test_the_table(
    server: Server, store: ObjectStore, told: bytes | None, write: type[StoreError], read: type[StoreError]
) -> None:
    server.answer = told
    for mode in (PLAIN, CREATE, Replace("e")):
        with pytest.raises(write):
            await store.put("a", [b"x"], mode)
    with pytest.raises(write):
        await store.delete(["a"])
    with pytest.raises(read):
        await store.get("a")
    with pytest.raises(read):
        await store.get_range("a", 0, 10)
    assert server.requests == 6, "one request per call: retries belong to RetryingStore"


WRITES = [
    (answer(412, "PreconditionFailed"), Precondition),
    (answer(409, "ConditionalRequestConflict"), Retryable),  # its rival may still fail
]


@pytest.mark.parametrize(("told", "expected"), WRITES)
async def test_conditional_puts(
    server: Server, store: ObjectStore, told: bytes, expected: type[StoreError]
) -> None:
    server.answer = told
    for mode in (CREATE, Replace("e")):
        with pytest.raises(expected):
            await store.put("a", [b"x"], mode)


async def test_a_missing_object_is_not_found_and_for_a_replace_a_precondition(
    server: Server, store: ObjectStore
) -> None:
    server.answer = answer(404, "NoSuchKey")
    with pytest.raises(NotFound):
        await store.get("a")
    with pytest.raises(Precondition):
        await store.put("a", [b"x"], Replace("e"))


BROKEN_BODIES: list[tuple[str, Callable[[ObjectStore], object], bytes]] = [
    ("whole", lambda store: store.get("a"), answer(200, body=b"x" * 50, length=100)),
    ("range", lambda store: store.get_range("a", 0, 100), answer(206, body=b"x" * 50, length=100)),
    ("short", lambda store: store.get_range("a", 0, 100), answer(206, body=b"x" * 50)),
]


@pytest.mark.parametrize(("name", "read", "told"), BROKEN_BODIES, ids=[each[0] for each in BROKEN_BODIES])
async def test_a_body_cut_short_is_retryable(
    server: Server, store: ObjectStore, name: str, read: Callable[[ObjectStore], object], told: bytes
) -> None:
    server.answer = told.replace(b"\r\nconnection", b"\r\ncontent-range: bytes 0-99/200\r\nconnection")
    with pytest.raises(Retryable):
        await read(store)


async def test_clocks_that_are_apart_are_told_as_such(server: Server, store: ObjectStore) -> None:
    """Credentials have nothing to do with it."""
    server.answer = answer(403, "RequestTimeTooSkewed")
    for call in (store.put("k", [b"x"]), store.get("k")):
        with pytest.raises(ClockSkewed, match="clock and the store's are apart: synchronise it") as caught:
            await call
        assert "credentials" not in str(caught.value)


async def test_errors_are_one_line_that_names_the_key_and_the_code(
    server: Server, store: ObjectStore
) -> None:
    server.answer = answer(403, "SignatureDoesNotMatch")
    with pytest.raises(Denied) as caught:
        await store.put("some/key", [b"x"])
    told = str(caught.value)
    assert "\n" not in told
    assert told.startswith("some/key: ")
    assert "(SignatureDoesNotMatch): check the store's credentials" in told
    assert len(told) < 400


@pytest.mark.parametrize(
    ("host", "cause"),
    [("127.0.0.1:1", "Connection refused"), ("nowhere.invalid:1", "failed to lookup address")],
)
async def test_why_a_store_cannot_be_reached_is_told_in_one_line(host: str, cause: str) -> None:
    given = {"access_key": "a", "secret_key": "b", "allow_http": True, "retry": None}
    store = open_store("s3://bucket/prefix", endpoint=f"http://{host}", **given)  # type: ignore[arg-type]  # a dict of options
    with pytest.raises(Retryable) as caught:
        await store.put("a", [b"x"], PLAIN)
    assert cause in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("told", "cause"), [(None, "IncompleteMessage"), (b"", "TimedOut")])
async def test_why_there_was_no_answer_is_told(
    server: Server, store: ObjectStore, told: bytes | None, cause: str
) -> None:
    server.answer = told
    with pytest.raises(Retryable) as caught:
        await store.get("a")
    assert str(caught.value).endswith(f": {cause}")
