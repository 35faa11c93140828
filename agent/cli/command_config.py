"""How `floe` speaks to listeners with TLS or logins: a file of client properties, as Kafka's tools take it.

The variable FLOE_COMMAND_CONFIG names the file. Certificates and authorities are PEM files. HTTP takes the
same ones, and `http.user` with `http.password`, or `http.token`, where they differ; a token also from
FLOE_HTTP_TOKEN.
"""

from __future__ import annotations

import os
import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, Final

from agent.cli.failures import Failure, Status

VARIABLE: Final = "FLOE_COMMAND_CONFIG"
TOKEN_VARIABLE: Final = "FLOE_HTTP_TOKEN"
FILE_BYTES_MAX: Final = 1024 * 1024
PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
NAMES: Final = (
    "security.protocol", "sasl.mechanism", "sasl.jaas.config", "ssl.truststore.type",
    "ssl.truststore.location", "ssl.keystore.type", "ssl.keystore.location", "ssl.key.password",
    "ssl.endpoint.identification.algorithm", "http.user", "http.password", "http.token",
)  # fmt: skip
_JAAS = re.compile(r'\b(username|password)\s*=\s*(?:"([^"]*)"|([^\s;"]+))')


@dataclass(frozen=True)
class CommandConfig:
    """What every connection of this command is made with."""

    protocol: str = "PLAINTEXT"
    mechanism: str = ""
    user: str = ""
    password: str = field(default="", repr=False)
    tls: ssl.SSLContext | None = None
    java: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The same as Apache Kafka's own client takes it, which Spark's tasks have."""
    http_user: str = ""
    http_password: str = field(default="", repr=False)
    http_token: str = field(default="", repr=False)
    http_tls: ssl.SSLContext | None = None
    """Of https://; None: the system's authorities, and no certificate of one's own."""

    def aiokafka(self) -> dict[str, Any]:
        """The same for aiokafka's clients."""
        settings: dict[str, Any] = {"security_protocol": self.protocol, "ssl_context": self.tls}
        if self.mechanism:
            settings |= {"sasl_mechanism": self.mechanism, "sasl_plain_username": self.user}
            settings["sasl_plain_password"] = self.password
        return settings


@cache
def command_config() -> CommandConfig:
    """As the variable says; in the clear and without a login when it is not set. Raises Failure."""
    path = os.environ.get(VARIABLE, "")
    token = os.environ.get(TOKEN_VARIABLE, "")
    if not path:
        return CommandConfig(http_token=token)
    try:
        with Path(path).open(encoding="utf-8") as file:
            given = _properties(file.read(FILE_BYTES_MAX))
    except (OSError, UnicodeDecodeError) as error:
        raise _wrong(path, getattr(error, "strerror", None) or str(error)) from None
    java = {name: value for name, value in given.items() if name in NAMES and not name.startswith("http.")}
    made = replace(_made(given, path), java=java)
    return _with_http(made, {"http.token": token, **given} if token else given, path)


def _wrong(path: str, what: str) -> Failure:
    """Never shows a value: it may be a password."""
    return Failure(Status.CONFIG, f"{VARIABLE} ({path}): {what}")


def _properties(text: str) -> dict[str, str]:
    """Java's properties as people write them: a name and a value per line, a backslash at its end goes on."""
    found = {}
    for line in re.sub(r"\\\r?\n\s*", "", text).splitlines():
        if line.strip() and line.lstrip()[0] not in "#!":
            name, _, value = line.partition("=")
            found[name.strip()] = value.strip()
    return found


def _made(given: Mapping[str, str], path: str) -> CommandConfig:
    for name in given:
        if name.startswith(("ssl.", "sasl.", "security.", "http.")) and name not in NAMES:
            raise _wrong(path, f"{name} is not known here; known are {', '.join(NAMES)}")
    protocol, mechanism = given.get("security.protocol", "PLAINTEXT"), given.get("sasl.mechanism", "")
    if protocol not in PROTOCOLS:
        raise _wrong(path, f"security.protocol is one of {', '.join(PROTOCOLS)}")
    if not protocol.startswith("SASL"):
        return CommandConfig(protocol, tls=_tls(given, path) if protocol == "SSL" else None)
    if mechanism not in MECHANISMS:
        raise _wrong(path, f"sasl.mechanism is one of {', '.join(MECHANISMS)}")
    login = {name: quoted or bare for name, quoted, bare in _JAAS.findall(given.get("sasl.jaas.config", ""))}
    if not login.get("username") or not login.get("password"):
        raise _wrong(path, 'sasl.jaas.config has username="…" and password="…"')
    tls = _tls(given, path) if protocol == "SASL_SSL" else None
    return CommandConfig(protocol, mechanism, login["username"], login["password"], tls)


def _with_http(made: CommandConfig, given: Mapping[str, str], path: str) -> CommandConfig:
    """With what HTTP has of its own."""
    user, password, token = (given.get(f"http.{name}", "") for name in ("user", "password", "token"))
    if bool(user) != bool(password):
        raise _wrong(path, "http.user and http.password go together")
    if user and token:
        raise _wrong(path, "http.user and http.token are both set; one says who asks")
    files = any(f"ssl.{store}.location" in given for store in ("truststore", "keystore"))
    tls = made.tls or (_tls(given, path) if files else None)
    return replace(made, http_user=user, http_password=password, http_token=token, http_tls=tls)


def _tls(given: Mapping[str, str], path: str) -> ssl.SSLContext:
    for store in ("truststore", "keystore"):
        if f"ssl.{store}.location" in given and given.get(f"ssl.{store}.type") != "PEM":
            raise _wrong(path, f"ssl.{store}.type has to be PEM: Java's own stores are not read here")
    context = ssl.create_default_context()
    try:
        if trusted := given.get("ssl.truststore.location"):
            context = ssl.create_default_context(cafile=trusted)
        if shown := given.get("ssl.keystore.location"):
            context.load_cert_chain(shown, password=lambda: given.get("ssl.key.password", ""))
    except OSError as error:  # ssl.SSLError is one
        raise _wrong(path, f"ssl.truststore.location or ssl.keystore.location: {error}") from None
    if given.get("ssl.endpoint.identification.algorithm", "https") == "":
        context.check_hostname = False
    return context
