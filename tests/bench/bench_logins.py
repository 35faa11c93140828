"""Logins: how many a second of a core, and how long the event loop's other work waits meanwhile.

A client comes, logs in and goes, one after the other; the agent's CPU is from /proc, all that a connection
takes included. *Waits* is the longest stretch of CPU time between two turns of a timer in the agent's loop
(tests/bench/watched.py). *At once*: all have connected, then all send their ClientHello at the same moment,
as clients do whose agent was restarted; each then logs in.
"""

from __future__ import annotations

import selectors
import socket
import ssl
import tempfile
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

from agent.config.model import embedded_values
from tests.bench.doors import Caller, Doors, Scram, login_bearer
from tests.bench.figure import ROUNDS, Figure, interleaved
from tests.bench.load import cpu_seconds
from tests.bench.watched import WatchedAgent

LOGINS, AT_ONCE, WARM = 1_000, 1_000, 50
SETTLE_S = 1.2
WAIT_MS_GOAL = 5.0
SCRAM, BEARER = "SCRAM-SHA-256 (4,096 iterations)", "OAUTHBEARER (RS256)"
Login = Callable[[Caller], None]


class Rig:
    """An agent, and what was measured of it."""

    def __init__(self, doors: Doors, agent: WatchedAgent) -> None:
        self.doors, self.agent = doors, agent
        self.waits: dict[str, float] = {}

    def logins(self, name: str, protocol: str, login: Login) -> float:
        """Logins per second of the agent's CPU."""
        time.sleep(SETTLE_S)
        begun, cpu = time.monotonic(), cpu_seconds(self.agent.pid)
        for _ in range(LOGINS):
            caller = self.doors.call(protocol)
            login(caller)
            caller.close()
        took = cpu_seconds(self.agent.pid) - cpu
        self._note(name, begun)
        return LOGINS / took

    def at_once(self, name: str, login: Login) -> float:
        """Handshakes per second of the agent's CPU, of clients who all begin at the same moment."""
        waiting = [_Coming(self.doors) for _ in range(AT_ONCE)]
        time.sleep(SETTLE_S)
        begun, cpu = time.monotonic(), cpu_seconds(self.agent.pid)
        with selectors.DefaultSelector() as selector:
            for each in waiting:
                each.hello()
                selector.register(each.plain, selectors.EVENT_READ, each)
            left = len(waiting)
            while left:
                for key, _ in selector.select():
                    if key.data.goes_on():
                        selector.unregister(key.fileobj)
                        left -= 1
        took = cpu_seconds(self.agent.pid) - cpu
        for each in waiting:
            login(each.caller)
        self._note(name, begun)
        for each in waiting:
            each.caller.close()
        return AT_ONCE / took

    def _note(self, name: str, begun: float) -> None:
        late = self.agent.late(begun, time.monotonic())
        self.waits[name] = max(self.waits.get(name, 0.0), late.cpu_ms)


class _Wire:
    """A socket's face of what is encrypted by hand."""

    def __init__(
        self, plain: socket.socket, tls: ssl.SSLObject, came: ssl.MemoryBIO, goes: ssl.MemoryBIO
    ) -> None:
        self._plain, self._tls, self._came, self._goes = plain, tls, came, goes

    def sendall(self, content: bytes) -> None:
        self._tls.write(content)
        self._plain.sendall(self._goes.read())

    def recv(self, size: int) -> bytes:
        while True:
            try:
                return self._tls.read(size)
            except ssl.SSLWantReadError:
                self._came.write(self._plain.recv(65536))

    def close(self) -> None:
        self._plain.close()


class _Coming:
    """A client that is connected, and has its ClientHello ready."""

    def __init__(self, doors: Doors) -> None:
        self.plain = socket.create_connection(("127.0.0.1", doors.ports["SASL_SSL"]), timeout=60)
        self._came, self._goes = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = doors.trusting.wrap_bio(self._came, self._goes, server_hostname="localhost")
        self._shake()
        self.caller = Caller(_Wire(self.plain, self._tls, self._came, self._goes))

    def hello(self) -> None:
        """Begin."""
        self.plain.sendall(self._goes.read())

    def goes_on(self) -> bool:
        """Something came; whether the handshake is done."""
        self._came.write(self.plain.recv(65536))
        done = self._shake()
        if self._goes.pending:
            self.plain.sendall(self._goes.read())
        return done

    def _shake(self) -> bool:
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        return True


def measured(rig: Rig) -> Iterable[Figure]:
    """By mechanism, without and with TLS, in turns; then all at once."""
    scram = Scram()
    bearer = partial(login_bearer, token=rig.doors.issuer.token())
    kinds: list[tuple[str, str, Login, float | None]] = [
        (SCRAM, "SASL_PLAINTEXT", scram.login, 300.0),
        (SCRAM, "SASL_SSL", scram.login, 300.0),
        (BEARER, "SASL_PLAINTEXT", bearer, 1_500.0),
        (BEARER, "SASL_SSL", bearer, None),
    ]
    for _, protocol, login, _ in kinds:
        for _ in range(WARM):
            caller = rig.doors.call(protocol)
            login(caller)
            caller.close()
    names = [f"logins, {mechanism}, {protocol}" for mechanism, protocol, _, _ in kinds]
    turns = [
        partial(rig.logins, name, protocol, login)
        for name, (_, protocol, login, _) in zip(names, kinds, strict=True)
    ]
    for name, (*_, goal), speed in zip(names, kinds, interleaved(turns, ROUNDS), strict=True):
        yield Figure(name, speed, "logins/s/core", goal=goal)
        yield Figure(f"{name}: the loop waits", rig.waits[name], "ms", goal=WAIT_MS_GOAL, better="less")
    name = f"TLS handshakes, {AT_ONCE:,} clients at once"
    (speed,) = interleaved([partial(rig.at_once, name, scram.login)], ROUNDS)
    yield Figure(name, speed, "handshakes/s/core")
    yield Figure(f"{name}: the loop waits", rig.waits[name], "ms", goal=WAIT_MS_GOAL, better="less")


def figures() -> Iterable[Figure]:
    """One agent on SQLite and a local folder."""
    with tempfile.TemporaryDirectory() as folder:
        doors = Doors(Path(folder))
        base = embedded_values(Path(folder) / "data", kafka_port=0, http_port=0)
        settings = doors.settings | {section: base[section] for section in ("log", "store")}
        settings["limits"] = {"login_ms_max": 300_000}  # the last of a thousand waits for all others' logins
        with WatchedAgent("agent", settings) as agent:
            yield from measured(Rig(doors, agent))
