"""What lets clients in and is renewed: listeners' certificates, users of PLAIN, keys of tokens."""

from __future__ import annotations

from typing import Final

from agent.config import Config, HttpConfig, ListenerConfig
from agent.config.users import UsersFile
from agent.net.admission import ListenerLimits
from agent.net.listening import Listener
from agent.net.principals import namer
from agent.net.renewal import Renewable, Renewal
from agent.net.tls import Tls, TlsFiles
from agent.net.tokens.identity import KeySource
from agent.telemetry.metrics import Metrics

HTTP: Final = "http"
"""As errors and metrics call it beside the listeners."""
RENEWAL_S: Final = 5.0
"""Time between two looks at the files, seconds."""


class Doors:
    """Of one agent."""

    def __init__(self, config: Config, metrics: Metrics) -> None:
        """Reads the files. Raises ConfigError."""
        self.listeners = listeners_of(config)
        self.users = UsersFile(config.sasl.users_file)
        self.keys = keys_of(config, metrics)
        self._metrics = metrics
        self.http = tls_of(config.http, HTTP) if config.http.tls_cert_file else None
        certificates = [*(each.tls for each in self.listeners), self.http]
        self._certificates = [each for each in certificates if each is not None]
        files: list[Renewable] = [*self._certificates, self.users, *(self.keys.files if self.keys else ())]
        self._renewal = Renewal(files, RENEWAL_S, lambda _: self._tell())
        self._tell()

    def start(self) -> None:
        """Begin to look for what is newer."""
        self._renewal.start()
        if self.keys is not None:
            self.keys.start()

    async def stop(self) -> None:
        """Look no more."""
        await self._renewal.stop()
        if self.keys is not None:
            await self.keys.stop()

    def _tell(self) -> None:
        """How long certificates last, and whether newer files on the disk are refused."""
        for tls in self._certificates:
            listener = tls.files.listener
            self._metrics.tls_expires_seconds.labels(listener).set(tls.expires_s)
            self._metrics.tls_renewal_failing.labels(listener).set(bool(tls.problem))
        self._metrics.users_file_failing.set(bool(self.users.problem))
        if self.keys is not None:
            self._metrics.jwks_failing.set(self.keys.failing)


def keys_of(config: Config, metrics: Metrics) -> KeySource | None:
    """Whose tokens let somebody in; None where nobody's do. Raises ConfigError."""
    if not (config.oauth.jwks_url or config.oauth.jwks_file):
        return None
    from agent.net.tokens.sources import source_of  # not everybody pays for it (agent/net/tokens/identity.py)

    return source_of(config, metrics)


def listeners_of(config: Config) -> list[Listener]:
    """In the order of the configuration. Reads files. Raises ConfigError for what makes no listener."""
    return [
        Listener(
            each.name,
            each.host,
            each.port,
            tls_of(each, each.name) if each.protocol.endswith("SSL") else None,
            each.protocol.startswith("SASL"),
            _limits(each),
        )
        for each in config.listeners
    ]


def _limits(listener: ListenerConfig) -> ListenerLimits:
    return ListenerLimits(
        connections_max=listener.connections_max,
        connections_per_s=listener.connections_per_s_max,
        per_ip_max=listener.connections_per_ip_max,
        per_ip=listener.connections_per_ip,
    )


def tls_of(config: ListenerConfig | HttpConfig, name: str) -> Tls:
    """The certificates of a listener, or of HTTP. Reads files. Raises ConfigError."""
    files = TlsFiles(
        listener=name,
        cert_file=config.tls_cert_file,
        key_file=config.tls_key_file,
        ca_file=config.tls_ca_file,
        key_password=config.tls_key_password.get_secret_value(),
        client_auth=config.tls_client_auth,
        versions=tuple(config.tls_protocols.split(",")),
        ciphers=config.tls_ciphers,
    )
    return Tls(files, namer(config.tls_principal_rules, config.tls_principal_from, name))
