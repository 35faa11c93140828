"""Settings of listeners and logins that contradict each other. Files are judged where they are read."""

from __future__ import annotations

from collections.abc import Iterator

from agent.config import authorizer
from agent.config.sections import ListenerConfig
from agent.config.tree import Tree


def problems(config: Tree) -> Iterator[str]:
    """Each contradiction, with the names and the remedy."""
    for number, listener in enumerate(config.listeners):
        yield from _tls(f"listeners.{number}", listener)
        yield from _sasl(f"listeners.{number}", listener, config)
    yield from authorizer.problems(config.authorizer)
    if bool(config.sasl.admin_user) != bool(config.sasl.admin_password.get_secret_value()):
        yield "sasl.admin_user and sasl.admin_password go together; set both or neither"


def _tls(name: str, listener: ListenerConfig) -> Iterator[str]:
    files = {"tls_cert_file": listener.tls_cert_file, "tls_key_file": listener.tls_key_file}
    others = {"tls_ca_file": listener.tls_ca_file, "tls_ciphers": listener.tls_ciphers}
    speaks_tls = listener.protocol.endswith("SSL")
    for setting, value in (files | others).items():
        if value and not speaks_tls:
            yield (
                f"{name}.{setting} is set, but {name}.protocol {listener.protocol} has no TLS; "
                f"set {name}.protocol=SSL or SASL_SSL"
            )
    for setting, value in files.items():
        if speaks_tls and not value:
            yield f"{name}.protocol {listener.protocol} needs {name}.{setting}, a PEM file"
    if speaks_tls and listener.tls_client_auth != "none" and not listener.tls_ca_file:
        yield (
            f"{name}.tls_client_auth {listener.tls_client_auth} needs {name}.tls_ca_file, "
            "the authorities that vouch for clients"
        )
    if listener.tls_client_auth != "none" and not speaks_tls:
        yield f"{name}.tls_client_auth is set, but {name}.protocol {listener.protocol} has no TLS"


def _sasl(name: str, listener: ListenerConfig, config: Tree) -> Iterator[str]:
    if not listener.protocol.startswith("SASL"):
        return
    sasl = config.sasl
    if "PLAIN" in listener.sasl_mechanisms.split(",") and not (sasl.users_file or sasl.admin_user):
        yield (
            f"{name}.sasl_mechanisms has PLAIN, which nobody could log in by: "
            "set sasl.users_file or sasl.admin_user"
        )
