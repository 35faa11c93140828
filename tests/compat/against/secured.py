"""Whom one asks about logins: Apache Kafka and Floe, with the same listener, users and keys of tokens."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from agent.config.users import line_of
from deploy.services.kafka import Kafka
from deploy.services.ports import free_port
from tests.compat.conftest import start, stop
from tests.equipment.tokens import AUDIENCE, ISSUER, Issuer

MECHANISMS = "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER"
USERS = {"root": "first-password", "alice": "second-password"}
SECRET = "0123456789abcdef0123456789abcdef"
ALLOWED = "org.apache.kafka.sasl.oauthbearer.allowed.urls"
LOGIN = "org.apache.kafka.common.security"


@dataclass(frozen=True)
class Secured:
    """Both addresses of one of the two, and who signs the tokens that it believes."""

    logins: str
    plain: str
    issuer: Issuer


class SecuredKafka(Kafka):
    """Apache Kafka with another listener, where clients log in."""

    def __init__(self, keys: Path) -> None:
        super().__init__()
        self.sasl_port, self._keys = free_port(), keys

    def _base(self) -> list[str]:
        lines = dict(line.split("=", 1) for line in super()._base())
        lines["listeners"] += f",SASL_PLAINTEXT://127.0.0.1:{self.sasl_port}"
        lines["advertised.listeners"] += f",SASL_PLAINTEXT://127.0.0.1:{self.sasl_port}"
        lines["listener.security.protocol.map"] += ",SASL_PLAINTEXT:SASL_PLAINTEXT"
        own = "listener.name.sasl_plaintext"
        users = " ".join(f'user_{name}="{password}"' for name, password in USERS.items())
        jaas = {
            "plain": f"{LOGIN}.plain.PlainLoginModule required {users};",
            "scram-sha-256": f"{LOGIN}.scram.ScramLoginModule required;",
            "scram-sha-512": f"{LOGIN}.scram.ScramLoginModule required;",
            "oauthbearer": f"{LOGIN}.oauthbearer.OAuthBearerLoginModule required;",
        }
        lines |= {f"{own}.{name}.sasl.jaas.config": text for name, text in jaas.items()}
        handler = f"{LOGIN}.oauthbearer.OAuthBearerValidatorCallbackHandler"
        lines |= {
            f"{own}.oauthbearer.sasl.server.callback.handler.class": handler,
            "sasl.enabled.mechanisms": MECHANISMS,
            "sasl.oauthbearer.jwks.endpoint.url": self._keys.as_uri(),
            "sasl.oauthbearer.expected.issuer": ISSUER,
            "sasl.oauthbearer.expected.audience": AUDIENCE,
            "delegation.token.secret.key": SECRET,
        }
        return [f"{name}={value}" for name, value in lines.items()]

    def command(self) -> list[str]:
        """Kafka reads keys only from where a property of the JVM allows it to."""
        java, *rest = super().command()
        return [java, f"-D{ALLOWED}={self._keys.as_uri()}", *rest]


def keys_in(folder: Path) -> tuple[Issuer, Path]:
    """Who signs, and the file that shows the keys."""
    issuer, keys = Issuer(), folder / "jwks.json"
    keys.write_bytes(issuer.jwks())
    return issuer, keys


@contextmanager
def kafka_with_logins(folder: Path) -> Iterator[Secured]:
    """Apache Kafka, running."""
    issuer, keys = keys_in(folder)
    with SecuredKafka(keys) as kafka:
        yield Secured(f"127.0.0.1:{kafka.sasl_port}", kafka.bootstrap, issuer)


def settings_of(port: int, folder: Path, keys: Path) -> list[str]:
    """Of an agent with such a listener."""
    users = folder / "users"
    users.write_text("\n".join(line_of(name, password, bytes(16)) for name, password in USERS.items()))
    return [
        "listeners.1.name=LOGINS", "listeners.1.host=127.0.0.1", f"listeners.1.port={port}",
        "listeners.1.protocol=SASL_PLAINTEXT", f"listeners.1.sasl_mechanisms={MECHANISMS}",
        f"sasl.users_file={users}", f"oauth.jwks_file={keys}", f"oauth.issuer={ISSUER}",
        f"oauth.audience={AUDIENCE}", f"delegation.secret={SECRET}",
    ]  # fmt: skip


@contextmanager
def floe_with_logins(folder: Path) -> Iterator[Secured]:
    """One agent of Floe, running."""
    issuer, keys = keys_in(folder)
    port = free_port()
    agent = start(folder / "data", *settings_of(port, folder, keys))
    try:
        yield Secured(f"127.0.0.1:{port}", agent.bootstrap, issuer)
    finally:
        assert stop(agent) == 0
