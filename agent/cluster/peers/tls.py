"""TLS between agents: each shows a certificate, and believes those that one authority vouches for.

Whoever has a certificate of that authority is an agent, so let it vouch for agents alone. Names in
certificates are not looked at: agents reach each other by addresses that change. Files that are renewed count
for new connections; an authority that is taken away, with the next start.
"""

from __future__ import annotations

import asyncio
import os
import ssl

from agent.config import Config, ConfigError
from agent.config.sections import PeersConfig
from agent.telemetry.logs import logger
from objectstore import tasks

RENEWAL_S = 5.0
"""Time between two looks at the files, seconds."""
_log = logger("peers")


class PeerTls:
    """Of one agent: what it shows when it asks, and when it answers."""

    def __init__(self, peers: PeersConfig) -> None:
        """Reads the files. Raises ConfigError."""
        self._files = peers.tls_cert_file, peers.tls_key_file, peers.tls_ca_file
        self.asking = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self.asking.check_hostname = False  # see above
        self.answering = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        for context in (self.asking, self.answering):
            context.minimum_version = ssl.TLSVersion.TLSv1_3
            context.verify_mode = ssl.CERT_REQUIRED
        self.answering.num_tickets = 0  # no session outlives the authority that vouched for it
        self._task: asyncio.Task[None] | None = None
        self._seen = self._stamp()
        try:
            self._load()
        except (OSError, ValueError) as error:
            raise ConfigError(f"peers.tls_cert_file, tls_key_file, tls_ca_file: {error}") from None

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
            await asyncio.to_thread(self.renew)

    def renew(self) -> None:
        """Look once. What cannot be used changes nothing, and is told."""
        stamp = self._stamp()
        if stamp == self._seen:
            return
        self._seen = stamp
        try:
            self._try()
            self._load()
        except (OSError, ValueError) as error:
            _log.error("new files are refused, the old stay", what="certificates of peers", reason=str(error))
        else:
            _log.info("new files are in force", what="certificates of peers")

    def _try(self) -> None:
        """A context that fails half-way is no use to anybody: another one is asked first."""
        trial = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._into(trial)

    def _load(self) -> None:
        for context in (self.asking, self.answering):
            self._into(context)

    def _into(self, context: ssl.SSLContext) -> None:
        cert, key, authority = self._files
        context.load_cert_chain(cert, key, lambda: "")
        context.load_verify_locations(authority)

    def _stamp(self) -> tuple[tuple[int, int, int], ...]:
        found = []
        for path in self._files:
            try:
                stat = os.stat(path)
                found.append((stat.st_mtime_ns, stat.st_size, stat.st_ino))
            except OSError:
                found.append((0, 0, 0))
        return tuple(found)


def tls_of(config: Config) -> PeerTls | None:
    """As configured; None: peers speak in the clear. Raises ConfigError."""
    return PeerTls(config.peers) if config.peers.tls_cert_file else None
