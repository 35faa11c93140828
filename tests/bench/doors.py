"""An agent with a listener of each of Kafka's protocols, and raw clients that come in by them.

The clients cost next to nothing of their own: blocking sockets, and a password that is hashed once.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import socket
import struct
from base64 import b64decode, b64encode
from pathlib import Path
from typing import Any, Protocol

from agent.config.users import line_of
from agent.net.wire.generated import sasl_authenticate as sa
from agent.net.wire.generated import sasl_handshake as sh
from deploy.services.ports import free_port
from tests.bench.load import decoded, frame_of
from tests.equipment.certificates import Authority
from tests.equipment.tokens import AUDIENCE, ISSUER, Issuer

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS = "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER"
ROOT, PASSWORD = "root", "first-password"
PLAIN_USER = "alice"
SCRAM_ITERATIONS = 4096


class Doors:
    """Certificates, keys of tokens, users and ports in a folder; `settings` are those of an agent."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.authority = Authority(folder / "authority")
        self.pair = self.authority.pair("server")
        self.trusting = self.authority.client()
        self.ports = {protocol: free_port() for protocol in PROTOCOLS}
        self.issuer = Issuer()
        (folder / "jwks.json").write_bytes(self.issuer.jwks())
        (folder / "users").write_text(line_of(PLAIN_USER, PASSWORD, bytes(16)))
        self.settings: dict[str, Any] = {
            "listeners": [self._listener(protocol) for protocol in PROTOCOLS],
            "sasl": {"admin_user": ROOT, "admin_password": PASSWORD, "users_file": str(folder / "users")},
            "oauth": {"jwks_file": str(folder / "jwks.json"), "issuer": ISSUER, "audience": AUDIENCE},
            "logging": {"level": "warning"},
            "tables": {"enabled": False},
        }

    def _listener(self, protocol: str) -> dict[str, Any]:
        settings = {"name": protocol, "host": "127.0.0.1", "port": self.ports[protocol], "protocol": protocol}
        if protocol.endswith("SSL"):
            settings |= {"tls_cert_file": str(self.pair.cert), "tls_key_file": str(self.pair.key)}
        if protocol.startswith("SASL"):
            settings["sasl_mechanisms"] = MECHANISMS
        return settings

    def call(self, protocol: str) -> Caller:
        """A new connection, its TLS handshake done where there is one."""
        plain = socket.create_connection(("127.0.0.1", self.ports[protocol]), timeout=60)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        secret = protocol.endswith("SSL")
        return Caller(self.trusting.wrap_socket(plain, server_hostname="localhost") if secret else plain)


class Wired(Protocol):
    """What of a socket is used."""

    def sendall(self, content: bytes, /) -> None: ...
    def recv(self, size: int, /) -> bytes: ...
    def close(self) -> None: ...


class Caller:
    """One connection of raw frames."""

    def __init__(self, wire: Wired) -> None:
        self.wire = wire

    def ask(self, name: str, request: Any, version: int) -> Any:
        """One request and its decoded answer."""
        self.wire.sendall(frame_of(name, request, version))
        return decoded(name, version, self.receive())

    def receive(self) -> bytes:
        """The next answer's payload."""
        (size,) = struct.unpack(">i", self._exactly(4))
        return self._exactly(size)

    def _exactly(self, size: int) -> bytes:
        parts: list[bytes] = []
        while size:
            part = self.wire.recv(min(size, 1 << 20))
            assert part, "the agent hung up"
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    def begin(self, mechanism: str) -> None:
        """SaslHandshake."""
        answer = self.ask("SaslHandshake", sh.SaslHandshakeRequest(mechanism), 1)
        assert answer.error_code == 0, answer

    def step(self, content: bytes) -> bytes:
        """SaslAuthenticate."""
        answer = self.ask("SaslAuthenticate", sa.SaslAuthenticateRequest(content), 2)
        assert answer.error_code == 0, answer
        return bytes(answer.auth_bytes)

    def close(self) -> None:
        """Hang up."""
        self.wire.close()


class Scram:
    """A user of SCRAM-SHA-256, who hashes the password once for each salt."""

    def __init__(self, user: str = ROOT, password: str = PASSWORD) -> None:
        self._user, self._password = user, password
        self._keys: dict[tuple[str, str], bytes] = {}

    def login(self, caller: Caller) -> None:
        """Log in on a new connection."""
        caller.begin("SCRAM-SHA-256")
        nonce = b64encode(os.urandom(18)).decode()
        bare = f"n={self._user},r={nonce}"
        first = caller.step(f"n,,{bare}".encode()).decode()
        said = dict(part.split("=", 1) for part in first.split(","))
        assert int(said["i"]) == SCRAM_ITERATIONS, said
        client_key = self._client_key(said["s"], said["i"])
        unproven = f"c=biws,r={said['r']}"
        signed = f"{bare},{first},{unproven}".encode()
        signature = hmac.digest(hashlib.sha256(client_key).digest(), signed, "sha256")
        proof = b64encode(bytes(a ^ b for a, b in zip(client_key, signature, strict=True))).decode()
        assert caller.step(f"{unproven},p={proof}".encode()).startswith(b"v=")

    def _client_key(self, salt: str, iterations: str) -> bytes:
        if (salt, iterations) not in self._keys:
            salted = hashlib.pbkdf2_hmac("sha256", self._password.encode(), b64decode(salt), int(iterations))
            self._keys[salt, iterations] = hmac.digest(salted, b"Client Key", "sha256")
        return self._keys[salt, iterations]


def login_bearer(caller: Caller, token: str) -> None:
    """OAUTHBEARER on a new connection."""
    caller.begin("OAUTHBEARER")
    caller.step(f"n,,\x01auth=Bearer {token}\x01\x01".encode())


def login_plain(caller: Caller, user: str = PLAIN_USER, password: str = PASSWORD) -> None:
    """PLAIN on a new connection."""
    caller.begin("PLAIN")
    caller.step(f"\0{user}\0{password}".encode())
