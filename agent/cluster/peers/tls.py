"""TLS between agents: each shows a certificate, and believes those that one authority vouches for.

Whoever has a certificate of that authority is an agent, so let it vouch for agents alone. Names in
certificates are not looked at: agents reach each other by addresses that change. Files that are renewed count
for new connections; an authority that is taken away, with the next start.
"""

from __future__ import annotations

import asyncio
import ssl
from typing import Final

from agent.config import Config, ConfigError
from agent.config.certificates import ends_s
from agent.config.renewed import Renewed
from agent.config.sections import PeersConfig
from agent.telemetry.logs import logger
from agent.telemetry.metrics import Metrics
from objectstore import tasks

PEERS: Final = "peers"
"""As metrics call it beside the listeners and HTTP."""
RENEWAL_S = 5.0
"""Time between two looks at the files, seconds."""
_log = logger("peers")


class PeerTls(Renewed):
    """Of one agent: what it shows when it asks, and when it answers."""

    name = "certificates of peers"

    def __init__(self, peers: PeersConfig, metrics: Metrics | None = None) -> None:
        """Reads the files. `metrics`: where they are told of. Raises ConfigError."""
        self._files = peers.tls_cert_file, peers.tls_key_file, peers.tls_ca_file
        super().__init__(*self._files)
        self.asking = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self.asking.check_hostname = False  # see above
        self.answering = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        for context in (self.asking, self.answering):
            context.minimum_version = ssl.TLSVersion.TLSv1_3
            context.verify_mode = ssl.CERT_REQUIRED
        self.answering.num_tickets = 0  # no session outlives the authority that vouched for it
        self._task: asyncio.Task[None] | None = None
        self._metrics = metrics
        self.expires_s: float | None = None
        """When the certificate in force ends, Unix time, seconds; None where no client would take it."""
        self.make()
        self._tell()

    def start(self) -> None:
        """Begin to look for newer files."""
        self._task = tasks.kept(self._run, "renewal of peers' certificates")

    async def stop(self) -> None:
        """Look no more. Idempotent."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(RENEWAL_S)
            await self.look()

    async def look(self) -> None:
        """Look once. What cannot be used changes nothing, and is told."""
        if not await asyncio.to_thread(self.renew):
            return
        if self.problem:
            _log.error("new files are refused, the old stay", what=self.name, reason=self.problem)
        else:
            _log.info("new files are in force", what=self.name)
        self._tell()

    def make(self) -> None:
        """See Renewed. A context that fails half-way is no use to anybody: another one is asked first."""
        trial = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        try:
            for context in (trial, self.asking, self.answering):
                self._into(context)
        except (OSError, ValueError) as error:
            raise ConfigError(f"peers.tls_cert_file, tls_key_file, tls_ca_file: {error}") from None
        try:
            self.expires_s = ends_s(trial, self._files[0], over_too=True)
        except (OSError, ValueError):
            self.expires_s = None

    def _into(self, context: ssl.SSLContext) -> None:
        cert, key, authority = self._files
        context.load_cert_chain(cert, key, lambda: "")
        context.load_verify_locations(authority)

    def _tell(self) -> None:
        """As agent/net/doors.py does of clients' doors."""
        if self._metrics is not None:
            self._metrics.tls_renewal_failing.labels(PEERS).set(bool(self.problem))
            if self.expires_s is not None:
                self._metrics.tls_expires_seconds.labels(PEERS).set(self.expires_s)


def tls_of(config: Config, metrics: Metrics) -> PeerTls | None:
    """As configured; None: peers speak in the clear. Raises ConfigError."""
    return PeerTls(config.peers, metrics) if config.peers.tls_cert_file else None
