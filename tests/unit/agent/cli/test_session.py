"""What the command line says of servers that are not agents, or stop being one in the middle."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.unit.agent.cli.conftest import Dev, fails, floe, inside

HUGE = (1 << 30).to_bytes(4, "big")


@pytest.fixture
def server() -> Iterator[Callable[[bytes], str]]:
    """`server(answer)` listens and, to each who comes, reads a little, sends `answer` and closes; gives its
    address."""
    opened: list[tuple[socket.socket, threading.Thread]] = []

    def start(answer: bytes) -> str:
        listening = socket.create_server(("127.0.0.1", 0))

        def serve() -> None:
            while True:
                try:
                    connection, _ = listening.accept()
                except OSError:
                    return  # the test is over
                with connection:
                    connection.recv(4096)
                    connection.sendall(answer)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        opened.append((listening, thread))
        return f"127.0.0.1:{listening.getsockname()[1]}"

    yield start
    for listening, thread in opened:
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()
        thread.join(10)


@pytest.mark.parametrize(
    ("answer", "status", "part"),
    [
        (b"", 4, "closed the connection during ApiVersions"),
        (b"\x00\x00", 4, "closed the connection during ApiVersions"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", 1, "does not speak Kafka"),
        (HUGE, 1, "does not speak Kafka"),
        (
            b"\x00\x00\x00\x08\x00\x00\x00\x01\x00\x00\x7f\xff",
            1,
            "ApiVersions is not understood",
        ),
    ],
)
def test_a_server_that_is_no_agent_is_told(
    server: Callable[[bytes], str], answer: bytes, status: int, part: str
) -> None:
    got, line = fails("topic", "list", "--bootstrap", server(answer))
    assert (got, part in line) == (status, True), line


def test_an_agent_that_is_ending_is_passed_over(server: Callable[[bytes], str]) -> None:
    """It takes the connection still and closes it: the next address of the list is asked."""
    ending, other = server(b""), server(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    assert fails("topic", "list", "--bootstrap", f"{ending},{other}")[0] == 1
    status, line = fails("topic", "list", "--bootstrap", f"{server(b'')},{server(b'')}")
    assert (status, line.count("closed the connection during ApiVersions")) == (4, 2)


@pytest.mark.parametrize(
    ("answer", "status", "part"),
    [
        (b"", 4, "no agent answers"),
        (b"\x15\x03\x03\x00\x02\x02\x46", 4, "no agent answers"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n<p/>", 1, "is it an agent of Floe?"),
        (b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", 5, "answered 404"),
        (b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n", 4, "answered 503"),
    ],
)
def test_an_http_server_that_is_no_agent_is_told(
    server: Callable[[bytes], str], answer: bytes, status: int, part: str
) -> None:
    got, line = fails("status", "--http", f"http://{server(answer)}")
    assert (got, part in line) == (status, True), line


def test_the_next_address_of_a_bootstrap_list_is_tried(server: Callable[[bytes], str]) -> None:
    last = server(b"")
    _, line = fails("topic", "list", "--bootstrap", f"127.0.0.1:1,{last}")
    assert last in line


@pytest.mark.parametrize(
    ("address", "why"),
    [("127.0.0.1:1", "Connection refused"), ("nowhere.invalid:1", "Name or service not known")],
)
def test_why_no_agent_is_reached_is_told(address: str, why: str) -> None:
    """In the operating system's words."""
    for command in (("topic", "list"), ("consume", "t"), ("produce", "t"), ("group", "list")):
        status, line = fails(*command, "--bootstrap", address)
        assert (status, f"{address}: {why}" in line) == (4, True), line
    status, line = fails("status", "--http", f"http://{address}")
    assert (status, why in line) == (4, True), line


def test_tls_to_who_speaks_none_is_told(server: Callable[[bytes], str], tmp_path: Path) -> None:
    """Such a listener closes the connection, for which asyncio has no words, or answers in the clear."""
    (config := tmp_path / "properties").write_text("security.protocol=SSL\n")
    for answer, why in (
        (b"", "ConnectionResetError"),
        (b"HTTP/1.1 400\r\n\r\n", "TLS: WRONG_VERSION_NUMBER"),
    ):
        address = server(answer)
        ran = floe("topic", "list", "--bootstrap", address, FLOE_COMMAND_CONFIG=str(config))
        assert f"{address}: {why} (the listener may speak no TLS)" in ran.err, ran
        assert ran.status == 4


class Cutting:
    """Stands before an agent and cuts the connections of these numbers, each at its `frame`th request."""

    def __init__(self, to: str, cut: set[int], frame: int) -> None:
        self.cut, self.frame, self.came = cut, frame, 0
        self._to = to.rpartition(":")
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listening.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                self.came += 1
                with (
                    client,
                    socket.create_connection((self._to[0], int(self._to[2]))) as agent,
                    suppress(OSError),
                ):
                    self._pass(client, agent, self.frame if self.came in self.cut else 0)

    def _pass(self, client: socket.socket, agent: socket.socket, cut_at: int) -> None:
        number = 0
        while asked := _frame(client):
            number += 1
            if number == cut_at:
                return
            agent.sendall(asked)
            client.sendall(_frame(agent))

    def close(self) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()


def _frame(of: socket.socket) -> bytes:
    size = of.recv(4, socket.MSG_WAITALL)
    return size + of.recv(int.from_bytes(size, "big"), socket.MSG_WAITALL) if len(size) == 4 else b""


@pytest.mark.parametrize(
    ("cut", "frame", "status", "came"),
    [
        (set(), 0, 0, 1),
        ({1}, 1, 0, 2),  # before it said what it speaks
        ({1}, 2, 0, 2),  # in the midst of what only reads
        ({1, 2}, 2, 4, 2),  # once is all
        ({1, 2}, 1, 4, 2),
    ],
)
def test_what_only_reads_is_asked_again_when_an_agent_was_paused(
    dev: Dev, cut: set[int], frame: int, status: int, came: int
) -> None:
    between = Cutting(dev.bootstrap, cut, frame)
    ran = inside("topic", "list", "--bootstrap", between.address)
    between.close()
    assert (ran.status, between.came) == (status, came), ran
    assert ("closed the connection during" in ran.err) == (status == 4)


def test_what_changes_something_is_asked_once(dev: Dev) -> None:
    """Whether it was done is not known."""
    between = Cutting(dev.bootstrap, {1}, 2)
    ran = inside("topic", "create", "once", "--bootstrap", between.address)
    between.close()
    assert (ran.status, between.came) == (4, 1), ran
    assert "closed the connection during CreateTopics" in ran.err
