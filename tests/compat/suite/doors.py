"""A broker whose doors are locked: a TLS listener that asks for certificates, one with all mechanisms of SASL
over TLS, and ACLs. `Doors` says how to come in, the same for Apache Kafka and for Floe.

`alice` may write and read what begins with `open`, `carol` may change the cluster, `sam` has a Streams
application, `connie` is a worker of Connect: each may what their programs need, and nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from agent.config.users import line_of
from deploy.services.kafka import Kafka
from deploy.services.ports import free_port
from tests.compat.conftest import start, stop
from tests.compat.suite.broker import Broker, set_up_groups
from tests.equipment.certificates import Authority, Pair
from tests.equipment.tokens import AUDIENCE, ISSUER, Issuer

PLAIN, SCRAM_256, SCRAM_512, OAUTH = "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"
MECHANISMS = (PLAIN, SCRAM_256, SCRAM_512, OAUTH)
CERTIFICATE, DELEGATION = "certificate", "delegation token"
WAYS = (*MECHANISMS, CERTIFICATE, DELEGATION)

ALICE, CAROL, SAM, CONNIE = "alice", "carol", "sam", "connie"
PASSWORDS = {user: f"{user}-password" for user in (ALICE, CAROL, SAM, CONNIE)}
OPEN, KEPT = "open", "kept"  # topics: alice's, and nobody's
STREAMS, CONNECT = "streams", "connect"  # what names of sam's and connie's topics and groups begin with
SECRET = "0123456789abcdef0123456789abcdef"
RULES = "RULE:^CN=([^,]*).*$/$1/L,DEFAULT"
MODULES = "org.apache.kafka.common.security"
ALLOWED = "org.apache.kafka.sasl.oauthbearer.allowed.urls"
WAIT_S = 60


@dataclass(frozen=True)
class Login:
    """Somebody at a door: `secret` is a password, a token or an HMAC; without one nothing is shown."""

    way: str
    user: str
    secret: str

    @property
    def mechanism(self) -> str:
        """SASL's, empty for a certificate."""
        return {CERTIFICATE: "", DELEGATION: SCRAM_256}.get(self.way, self.way)

    @property
    def protocol(self) -> str:
        """Kafka's name of the listener's protocol."""
        return "SASL_SSL" if self.mechanism else "SSL"


@dataclass
class Doors:
    """Where to come in, and what with. `plain` is for setting up."""

    plain: str
    ports: dict[str, int]
    folder: Path
    authority: Authority
    issuer: Issuer
    pairs: dict[str, Pair] = field(default_factory=dict)
    tokens: dict[str, tuple[str, str]] = field(default_factory=dict)  # by owner: id and HMAC

    def __post_init__(self) -> None:
        for user in PASSWORDS:
            self.pairs[user] = pair = self.authority.pair(user, f"/O=Example/CN={user.capitalize()}")
            self.both(user).write_text(pair.key.read_text() + pair.cert.read_text())

    def both(self, user: str) -> Path:
        """Key and certificate in one file, as Java takes them."""
        return self.folder / f"{user}.pem"

    def address(self, login: Login) -> str:
        """host:port."""
        return f"localhost:{self.ports[login.protocol]}"

    def login(self, way: str, user: str = ALICE) -> Login:
        """A good one."""
        if way == OAUTH:
            return Login(way, user, self.issuer.token(sub=user))
        if way == DELEGATION:
            return Login(way, *self.tokens[user])
        return Login(way, user, PASSWORDS[user])

    def wrong(self, way: str, user: str = ALICE) -> Login:
        """A password, an HMAC that is not theirs; a token for somebody else; no certificate."""
        secret = {CERTIFICATE: "", OAUTH: self.issuer.token(sub=user, aud="billing")}.get(way, "wrong")
        return replace(self.login(way, user), secret=secret)

    def java(self, login: Login) -> dict[str, str]:
        """Properties of Java's clients and tools."""
        found = {
            "bootstrap.servers": self.address(login),
            "security.protocol": login.protocol,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.authority.cert),
        }
        if login.way == CERTIFICATE:
            if login.secret:
                found |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(self.both(login.user))}
            return found
        return found | {"sasl.mechanism": login.mechanism} | self._jaas(login)

    def _jaas(self, login: Login) -> dict[str, str]:
        if login.way == OAUTH:
            token = self.folder / f"token-{abs(hash(login.secret))}"
            token.write_text(login.secret)
            return {
                "sasl.jaas.config": f"{MODULES}.oauthbearer.OAuthBearerLoginModule required;",
                "sasl.login.callback.handler.class": f"{MODULES}.oauthbearer.OAuthBearerLoginCallbackHandler",
                "sasl.oauthbearer.token.endpoint.url": token.as_uri(),
            }
        module = "plain.PlainLoginModule" if login.way == PLAIN else "scram.ScramLoginModule"
        more = ' tokenauth="true"' if login.way == DELEGATION else ""
        words = f'required username="{login.user}" password="{login.secret}"{more};'
        return {"sasl.jaas.config": f"{MODULES}.{module} {words}"}

    def set_up(self) -> None:
        """Topics, SCRAM's credentials, ACLs."""
        admin = AdminClient({"bootstrap.servers": self.plain})
        for future in admin.create_topics([NewTopic(name, 1, 1) for name in (OPEN, KEPT)]).values():
            future.result(WAIT_S)
        for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
            upserts = [
                UserScramCredentialUpsertion(name, ScramCredentialInfo(mechanism, 4096), password.encode())
                for name, password in PASSWORDS.items()
            ]
            for future in admin.alter_user_scram_credentials(upserts).values():
                future.result(WAIT_S)
        for future in admin.create_acls(list(_acls())).values():
            future.result(WAIT_S)
        while not all(Broker.led(admin, name, 1) for name in (OPEN, KEPT)):
            pass


def _acls() -> Iterator[AclBinding]:
    topic, group, cluster = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.BROKER
    op, prefixed, literal = AclOperation, ResourcePatternType.PREFIXED, ResourcePatternType.LITERAL
    for kind, operations in {topic: (op.READ, op.WRITE), group: (op.READ,)}.items():
        for operation in operations:
            yield _allowed(ALICE, kind, OPEN, prefixed, operation)
    for user, its in {SAM: STREAMS, CONNIE: CONNECT}.items():
        for operation in (op.CREATE, op.READ, op.WRITE, op.DESCRIBE_CONFIGS):
            yield _allowed(user, topic, its, prefixed, operation)
        yield _allowed(user, group, its, prefixed, op.READ)
    for operation in (op.ALTER, op.DESCRIBE, op.ALTER_CONFIGS, op.DESCRIBE_CONFIGS):
        yield _allowed(CAROL, cluster, "kafka-cluster", literal, operation)


def _allowed(user: str, kind: Any, name: str, pattern: Any, operation: Any) -> AclBinding:
    return AclBinding(kind, name, pattern, f"User:{user}", "*", operation, AclPermissionType.ALLOW)


_PLACES = (
    (r"localhost:\d+|127\.0\.0\.1:\d+", "HOST"),
    (r"localhost/127\.0\.0\.1", "HOST"),
    (r"\(after \d+ms in state (\w+)[^)]*\)", r"(in \1)"),
    (r"\b\d+ms\b", "N ms"),
    (r"\[thrd:[^\]]*\]: ?", ""),
    (r"%\d\|[\d.]+\|", ""),
    (r"rdkafka#\w+-\d+", "CLIENT"),
    (r"\b[0-9A-F]{12,16}:error", "error"),
    (r"\('localhost', \d+, ", "('HOST', "),
    (r"(HOST/)(bootstrap|\d+)", r"\1N"),
)


def told(text: str) -> str:
    """What a client says, without addresses and times."""
    for pattern, instead in _PLACES:
        text = re.sub(pattern, instead, text)
    return " ".join(text.split())


class _Kafka(Kafka):
    """Apache Kafka with a listener in the clear, whose clients may everything, and both doors."""

    def __init__(self, directory: Path, ports: dict[str, int], server: Pair, ca: Path, keys: Path) -> None:
        super().__init__(directory)
        self._ports, self._keys, self._ca = ports, keys, ca
        self._both = directory / "server.pem"
        self._both.write_text(server.key.read_text() + server.cert.read_text())

    def _base(self) -> list[str]:
        lines = dict(line.split("=", 1) for line in super()._base())
        lines["listener.security.protocol.map"] += ",SSL:SSL,SASL_SSL:SASL_SSL"
        for name, port in self._ports.items():
            lines["listeners"] += f",{name}://127.0.0.1:{port}"
            lines["advertised.listeners"] += f",{name}://localhost:{port}"
        lines |= self._tls() | self._logins()
        lines["authorizer.class.name"] = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
        lines["super.users"] = "User:ANONYMOUS"
        lines["group.initial.rebalance.delay.ms"] = "0"
        return [f"{name}={value}" for name, value in lines.items()]

    def _tls(self) -> dict[str, str]:
        return {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self._both),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self._ca),
            "listener.name.ssl.ssl.client.auth": "required",
            "listener.name.ssl.ssl.principal.mapping.rules": RULES,
        }

    def _logins(self) -> dict[str, str]:
        own = "listener.name.sasl_ssl"
        users = " ".join(f'user_{name}="{password}"' for name, password in PASSWORDS.items())
        oauth = f"{MODULES}.oauthbearer"
        jaas = {
            PLAIN: f"{MODULES}.plain.PlainLoginModule required {users};",
            SCRAM_256: f"{MODULES}.scram.ScramLoginModule required;",
            SCRAM_512: f"{MODULES}.scram.ScramLoginModule required;",
            OAUTH: f"{oauth}.OAuthBearerLoginModule required;",
        }
        found = {f"{own}.{name.lower()}.sasl.jaas.config": text for name, text in jaas.items()}
        handler = f"{oauth}.OAuthBearerValidatorCallbackHandler"
        return found | {
            f"{own}.oauthbearer.sasl.server.callback.handler.class": handler,
            "sasl.enabled.mechanisms": ",".join(MECHANISMS),
            "sasl.oauthbearer.jwks.endpoint.url": self._keys.as_uri(),
            "sasl.oauthbearer.expected.issuer": ISSUER,
            "sasl.oauthbearer.expected.audience": AUDIENCE,
            "delegation.token.secret.key": SECRET,
        }

    def command(self) -> list[str]:
        """Keys of tokens are read only from where a property of the JVM allows it."""
        java, *rest = super().command()
        return [java, f"-D{ALLOWED}={self._keys.as_uri()}", *rest]


def _settings(ports: dict[str, int], folder: Path, server: Pair, ca: Path, keys: Path) -> Iterator[str]:
    """Of an agent with both doors."""
    users = folder / "users"
    users.write_text("\n".join(line_of(name, password, bytes(16)) for name, password in PASSWORDS.items()))
    more: dict[str, dict[str, object]] = {
        "SSL": {"tls_ca_file": ca, "tls_client_auth": "required", "tls_principal_rules": RULES},
        "SASL_SSL": {"sasl_mechanisms": ",".join(MECHANISMS)},
    }
    for number, (protocol, port) in enumerate(ports.items(), 1):
        listener: dict[str, object] = {"name": protocol, "host": "127.0.0.1", "port": port}
        listener |= {"protocol": protocol, "advertised_host": "localhost"}
        listener |= {"tls_cert_file": server.cert, "tls_key_file": server.key, **more[protocol]}
        yield from (f"listeners.{number}.{name}={value}" for name, value in listener.items())
    yield f"sasl.users_file={users}"
    yield from (f"oauth.jwks_file={keys}", f"oauth.issuer={ISSUER}", f"oauth.audience={AUDIENCE}")
    yield f"delegation.secret={SECRET}"
    yield from ("authorizer.mode=enforce", "authorizer.super_users=User:ANONYMOUS")


@contextmanager
def doors_of(broker: str, folder: Path) -> Iterator[Doors]:
    """The broker of that name (`kafka` or `floe`), running, set up."""
    authority, issuer, keys = Authority(folder / "authority"), Issuer(), folder / "jwks.json"
    keys.write_bytes(issuer.jwks())
    server, ports = authority.pair("server"), {name: free_port() for name in ("SSL", "SASL_SSL")}
    if broker == "kafka":
        with _Kafka(folder, ports, server, authority.cert, keys) as kafka:
            doors = Doors(kafka.bootstrap, ports, folder, authority, issuer)
            doors.set_up()
            yield doors
        return
    agent = start(folder / "data", *_settings(ports, folder, server, authority.cert, keys))
    try:
        doors = Doors(agent.bootstrap, ports, folder, authority, issuer)
        doors.set_up()
        set_up_groups(agent.bootstrap)
        yield doors
    finally:
        assert stop(agent) == 0
