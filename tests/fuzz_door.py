"""Whatever strangers say at the door: `python -m tests.fuzz_door --seconds N [--seed S]`.

Logins by each mechanism, each of whose messages may be broken; TLS handshakes of a real client, broken, cut
and doubled. Nobody may be let in who did not show what a user shows, nothing but a refusal may come out, and
that says no more.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import hashlib
import hmac
import random
import ssl
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agent.config import Config
from agent.kafka.login import scram
from agent.kafka.login.errors import LoginFailed
from agent.kafka.login.logins import Logins
from agent.net.encrypted import Encrypted
from agent.net.principals import namer
from agent.net.strangers import Strangers
from agent.net.tls import Tls, TlsFiles
from agent.telemetry.metrics import Metrics
from coordination.clock import SystemClock
from coordination.state.state import State
from tests.equipment.certificates import Authority
from tests.fuzz_wire import broken

USER, PASSWORD = "root", "the-password-of-root"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
SETTINGS = {"log": {"url": "memory:"}, "store": {"url": "memory:"}, "tables": {"enabled": False}}
KEPT_OF, GOOD_OF = 0.3, 0.4
"""How often a message is left as it is, and how often the password is the right one."""
SCRATCH_BYTES = 64 * 1024
STRANGERS = 8


def logins_of() -> Logins:
    """Of an agent with one user, and each mechanism."""
    listener = {"name": "L", "protocol": "SASL_PLAINTEXT", "sasl_mechanisms": ",".join(MECHANISMS)}
    sasl = {"admin_user": USER, "admin_password": PASSWORD}
    tree = {**SETTINGS, "listeners": [listener], "sasl": sasl}
    state = State()
    return Logins(Config.model_validate(tree), SystemClock(), lambda: state, Metrics())


def maybe_broken(rng: random.Random, message: bytes) -> bytes:
    """The message, more often than not with something wrong."""
    return message if rng.random() < KEPT_OF else broken(rng, message)


async def log_in(rng: random.Random, logins: Logins) -> str:
    """One login; what came of it. Raises AssertionError when somebody is let in who should not be."""
    login = logins.of("L")
    assert login is not None
    mechanism = rng.choice(MECHANISMS)
    password = (
        PASSWORD if rng.random() < GOOD_OF else rng.choice(("", "guess", PASSWORD[:-1], PASSWORD.upper()))
    )
    assert not login.handshake(mechanism)
    try:
        if mechanism == "PLAIN":
            sound = await _plain(rng, login, password)
        else:
            sound = await _scram(rng, login, mechanism, password)
    except LoginFailed as error:
        for told in (error.told(mechanism, again=False), str(error)):
            assert PASSWORD not in told, told
        assert not login.principal, "refused, and let in"
        return "refused"
    assert login.principal == USER, login.principal
    assert sound, "let in without the password"
    return "let in"


async def _plain(rng: random.Random, login: Any, password: str) -> bool:
    message = maybe_broken(rng, f"\0{USER}\0{password}".encode())
    await login.authenticate(message)
    return message.split(b"\0")[1:] == [USER.encode(), PASSWORD.encode()]


async def _scram(rng: random.Random, login: Any, mechanism: str, password: str) -> bool:
    digest = scram.DIGESTS[scram.MECHANISMS[mechanism]]
    bare = maybe_broken(rng, f"n={USER},r=clients-nonce".encode())
    first = await login.authenticate(b"n,," + bare)
    fields = dict(each.split("=", 1) for each in first.decode().split(","))
    salted = scram.salted(digest, password, base64.b64decode(fields["s"]), int(fields["i"]))
    client_key = hmac.digest(salted, b"Client Key", digest)
    unproven = f"c=biws,r={fields['r']}".encode()
    signature = hmac.digest(
        hashlib.new(digest, client_key).digest(), b",".join((bare, first, unproven)), digest
    )
    proof = base64.b64encode(bytes(a ^ b for a, b in zip(client_key, signature, strict=True)))
    await login.authenticate(maybe_broken(rng, unproven + b",p=" + proof))
    return password == PASSWORD


@dataclass
class Wire:
    """A socket's transport that goes nowhere."""

    sent: bytearray = field(default_factory=bytearray)
    closed: bool = False

    def write(self, data: bytes) -> None:
        self.sent += data

    def writelines(self, parts: Sequence[bytes]) -> None:
        self.sent += b"".join(parts)

    def close(self) -> None:
        self.closed = True

    abort = close

    def is_closing(self) -> bool:
        return self.closed

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default

    def get_write_buffer_size(self) -> int:
        return 0


class AtOnce(Strangers):
    """There is nobody else whose turn it could be, and no loop that goes on between two flights."""

    def step(self, do: Callable[[], object]) -> None:
        """Now."""
        do()


class Door:
    """A TLS listener, and how strangers shake hands with it."""

    def __init__(self, folder: Path) -> None:
        self._authority = Authority(folder / "authority")
        pair = self._authority.pair("server")
        files = TlsFiles("L", str(pair.cert), str(pair.key))
        self._tls = Tls(files, namer("DEFAULT", "subject", "L"))
        self._scratch = memoryview(bytearray(SCRATCH_BYTES))
        self._strangers = AtOnce(STRANGERS, 10.0)

    def shake_hands(self, rng: random.Random) -> str:
        """A real client's handshake, each of whose flights may be broken; what came of it."""
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        client = self._authority.client().wrap_bio(incoming, outgoing, server_hostname="localhost")
        wire, refusals, apps = Wire(), list[str](), list[Any]()

        def app() -> Any:
            apps.append(Quiet())
            return apps[-1]

        server = Encrypted(
            self._tls, self._scratch, self._strangers, app, lambda _, why: refusals.append(why), "SSL"
        )
        server.connection_made(wire)  # type: ignore[arg-type]  # it has what is used of a transport
        whole = rng.random() < KEPT_OF
        done = False
        for _ in range(4):
            try:
                client.do_handshake()
                done = True
            except ssl.SSLWantReadError:
                pass
            except ssl.SSLError:
                break
            said = outgoing.read()
            _feed(server, said if whole else maybe_broken(rng, said))
            incoming.write(bytes(wire.sent))
            wire.sent.clear()
            if wire.closed or done:
                break
        server.connection_lost(None)
        assert len(self._strangers) == 0, "it is gone, and counted all the same"
        assert not (apps and refusals), "refused, and let in"
        assert not whole or apps, f"a sound handshake was refused: {refusals}"
        return "shook hands" if apps else "refused" if refusals else "unfinished"


class Quiet(asyncio.BufferedProtocol):
    """What stands behind the handshake; it reads and says nothing."""

    def __init__(self) -> None:
        self._room = memoryview(bytearray(SCRATCH_BYTES))

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._room


def _feed(server: Encrypted, said: bytes) -> None:
    while said:
        room = server.get_buffer(-1)
        part, said = said[: len(room)], said[len(room) :]
        room[: len(part)] = part
        server.buffer_updated(len(part))


async def attack(rng: random.Random, seconds: float, rounds: int = 1 << 60) -> Counter[str]:
    """For so long, or so many rounds; what came of them."""
    counts, end = Counter[str](), time.monotonic() + seconds
    logins = logins_of()
    with tempfile.TemporaryDirectory() as folder:
        door = Door(Path(folder))
        for _ in range(rounds):
            if time.monotonic() > end:
                break
            counts[f"login {await log_in(rng, logins)}"] += 1
            counts[f"handshake {door.shake_hands(rng)}"] += 1
    return counts


def main() -> int:
    """Run until the time is over; gives the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=None, help="default: from the clock; printed")
    options = parser.parse_args()
    seed = time.time_ns() if options.seed is None else options.seed
    print(f"seed {seed}")
    counts = asyncio.run(attack(random.Random(seed), options.seconds))
    print(" ".join(f"{name}: {count}" for name, count in sorted(counts.items())))
    return 0


if __name__ == "__main__":
    sys.exit(main())
