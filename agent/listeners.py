"""The configured listeners as the server takes them: certificates read, rules understood."""

from __future__ import annotations

from agent.config import Config, ListenerConfig
from agent.net.listening import Listener
from agent.net.principals import namer
from agent.net.tls import Tls, TlsFiles


def listeners_of(config: Config) -> list[Listener]:
    """In the order of the configuration. Reads files. Raises ConfigError for what makes no listener."""
    return [
        Listener(
            each.name,
            each.host,
            each.port,
            _tls(each) if each.protocol.endswith("SSL") else None,
            each.protocol.startswith("SASL"),
        )
        for each in config.listeners
    ]


def _tls(listener: ListenerConfig) -> Tls:
    files = TlsFiles(
        listener=listener.name,
        cert_file=listener.tls_cert_file,
        key_file=listener.tls_key_file,
        ca_file=listener.tls_ca_file,
        key_password=listener.tls_key_password.get_secret_value(),
        client_auth=listener.tls_client_auth,
        versions=tuple(listener.tls_protocols.split(",")),
        ciphers=listener.tls_ciphers,
    )
    return Tls(files, namer(listener.tls_principal_rules, listener.tls_principal_from, listener.name))
