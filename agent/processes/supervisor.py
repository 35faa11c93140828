"""The process that watches several agents: it starts them, replaces those that end, stops all at once.

SIGTERM and SIGINT end all together: each that left alone would hand its clients to a neighbour that leaves
next. SIGHUP has them replaced one after another, each once the one before is ready, by a configuration that
is read anew.
"""

from __future__ import annotations

import asyncio
import signal
import socket
import ssl
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from agent.config import Config, ConfigError
from agent.net.doors import HTTP, RENEWAL_S, tls_of
from agent.net.renewal import Renewal
from agent.net.tls import Tls
from agent.processes.endpoints import Endpoints
from agent.processes.listening import Listening, bound
from agent.processes.slot import Patience, Slot
from agent.telemetry.logs import logger
from agent.telemetry.supervised import SupervisorMetrics
from coordination.clock import Clock
from objectstore import tasks

PATH_BYTES_MAX = 107
"""Of a Unix socket's address (sun_path, without the zero at its end)."""

_log = logger("supervisor")


class Supervisor:
    """Of one machine. Made inside the event loop that it lives in."""

    def __init__(
        self,
        config: Config,
        command: Callable[[int, Path], Sequence[str]],
        read_again: Callable[[], Config],
        folder: Path,
        clock: Clock,
    ) -> None:
        """`command` starts the agent of a process, to answer at a socket in `folder`, which nobody else may
        enter. `read_again` gives the configuration as it is now. Raises ConfigError."""
        self._config, self._read_again = config, read_again
        self._metrics, self._leaving = SupervisorMetrics(), asyncio.Event()
        self._renewing: asyncio.Task[None] | None = None
        agent = config.agent
        patience = Patience(
            config.shutdown.timeout_ms / 1000,
            agent.process_silence_ms / 1000,
            agent.process_pause_ms_max / 1000,
        )
        self.slots: list[Slot] = []
        for number in range(agent.processes):
            name, path = config.agent_name + (f".{number}" if number else ""), folder / str(number)
            slot = Slot(number, name, command(number, path), path, patience, clock, self._metrics)
            self.slots.append(slot)
        self._tls = _tls_of(config)
        self.port = 0

    async def run(self) -> None:
        """From the start of all to the end of all. Raises OSError for a port that is taken, Hopeless."""
        bind = bound("agent.supervisor_port", self._config.http.host, self._config.agent.supervisor_port)
        self.port = int(bind.getsockname()[1])
        renewal = Renewal([] if self._tls is None else [self._tls], RENEWAL_S, lambda _: None)
        listening = self._listening(bind)
        self._take_signals()
        await listening.start()
        renewal.start()
        runs = [tasks.owned(each.run(), f"agent {each.number}") for each in self.slots]
        leaving = tasks.owned(self._leaving.wait(), "signal")
        _log.info("agents are started", processes=len(self.slots), http=self.port)
        ends: list[asyncio.Future[Any]] = [leaving, *runs]
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._leaving.set()
            await asyncio.gather(*(each.stop() for each in self.slots))
            done = await asyncio.gather(*runs, return_exceptions=True)
            await renewal.stop()
            await listening.stop()
            _log.info("stopped")
        for each in done:
            if isinstance(each, BaseException):
                raise each

    def _listening(self, bind: socket.socket) -> Listening:
        tls = None if self._tls is None else _newest(self._tls)
        return Listening(self._endpoints().app(), bind, tls)

    def _endpoints(self) -> Endpoints:
        return Endpoints(self.slots, self._metrics, self._metrics_open, self._leaving.is_set)

    def _metrics_open(self) -> bool:
        """Whether anybody may read metrics, by the configuration that was taken last."""
        http = self._config.http
        return http.metrics_open or http.authentication == "none"

    def _take_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._leaving.set)
        if sys.stdin is None or not sys.stdin.isatty():  # a terminal that goes away ends what runs in it
            loop.add_signal_handler(signal.SIGHUP, self._asked_to_renew)

    def _asked_to_renew(self) -> None:
        if self._renewing is not None and not self._renewing.done():
            _log.warning("agents are being replaced already")
            return
        self._renewing = tasks.start(self._renew(), "replacing all agents")

    async def _renew(self) -> None:
        """Replace one after another; a configuration that is refused replaces none."""
        try:
            config = self._read_again()
        except ConfigError as error:
            _log.error("the configuration is refused: no agent is replaced", error=str(error))
            return
        if _kept(config) != _kept(self._config):
            _log.error("what concerns all processes changed, which takes a restart: no agent is replaced")
            return
        self._config = config
        for slot in self.slots:
            await slot.renew()
            if self._leaving.is_set():
                return
        _log.info("all agents were replaced", processes=len(self.slots))


def _kept(config: Config) -> object:
    """What the process that watches has once and for all."""
    agent, http = config.agent, config.http
    own = agent.processes, agent.supervisor_port, agent.process_silence_ms, agent.process_pause_ms_max
    ports = agent.port_step, http.port, http.host, *(each.port for each in config.listeners)
    password = http.tls_key_password.get_secret_value()
    tls = http.tls_cert_file, http.tls_key_file, password, http.tls_protocols, http.tls_ciphers
    return *own, *ports, config.agent_name, config.shutdown.timeout_ms, *tls


def _tls_of(config: Config) -> Tls | None:
    """HTTP's certificate; who asks for probes and metrics shows none. Raises ConfigError."""
    if not config.http.tls_cert_file:
        return None
    return tls_of(config.http.model_copy(update={"tls_client_auth": "none"}), HTTP)


def _newest(tls: Tls) -> ssl.SSLContext:
    """A context that hands each handshake to the one in force by then."""

    def choose(handshake: ssl.SSLObject | ssl.SSLSocket, _name: str, _context: ssl.SSLContext) -> None:
        handshake.context = tls.context

    context = tls.context
    context.sni_callback = choose
    return context


def folder_for(sockets: int) -> tempfile.TemporaryDirectory[str]:
    """A folder of this process alone, for so many sockets. Raises ConfigError."""
    folder = tempfile.TemporaryDirectory(prefix="floe-")
    longest = f"{folder.name}/{sockets}"
    if len(longest.encode()) > PATH_BYTES_MAX:
        folder.cleanup()
        raise ConfigError(
            f"TMPDIR {tempfile.gettempdir()!r} is too long for the sockets of agent.processes: "
            f"set it to a folder with a path of {PATH_BYTES_MAX - 20} bytes or fewer"
        )
    return folder
