"""Files that settings name, looked at again and again: what changed is used from then on, or told of.

Certificates and keys are rotated while an agent runs. Those of etcd and the store's keys take effect by
themselves; of any other file whose content is not the one that this agent started with, it says that it needs
a restart, until it has one or the file is as it was.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from pathlib import Path

from agent.config import Config
from agent.config.load import plain
from agent.config.schema import leaves
from agent.telemetry.episodes import Episodes
from agent.telemetry.logs import logger
from coordination.log import Log, Renewing
from objectstore import coalesced, tasks

FILE_BYTES_MAX = 4 * 1024 * 1024
CONFIG_FILE = "the configuration file"
BY_CALL = frozenset(
    {"log.password_file", "store.access_key_file", "store.secret_key_file", "store.session_token_file"}
)
"""Read anew wherever they are used (coordination/etcd/client.py, objectstore/credentials.py)."""
BY_DOORS = frozenset(
    {
        *("sasl.users_file", "oauth.jwks_file", "peers.tls_cert_file", "peers.tls_key_file"),
        *("http.tls_cert_file", "http.tls_key_file", "http.tls_ca_file"),
    }
)
BY_RENEWAL = frozenset({"log.tls_ca_file", "log.tls_cert_file", "log.tls_key_file"})
"""Used once the log has renewed its connections."""

_log = logger("files")


@dataclass(frozen=True, slots=True)
class Watched:
    """A file by the setting that names it."""

    setting: str
    path: Path


def files_of(config: Config, config_file: Path | None) -> Iterator[Watched]:
    """Every file that the configuration names in a setting called `…_file`, and the one that it came from;
    without what lets clients in, which agent/net/doors.py looks at."""
    for path, value in leaves(plain(config)):
        if path[0] == "listeners" or ".".join(path) in BY_DOORS:
            continue
        if path[-1].endswith("_file") and isinstance(value, str) and value:
            yield Watched(".".join(path), Path(value))
    if config_file is not None:
        yield Watched(CONFIG_FILE, config_file)


class Files:
    """One agent's. `renew` has the log read its certificates again; None where it has none."""

    def __init__(
        self,
        files: Sequence[Watched],
        renew: Callable[[], Awaitable[bool]] | None,
        interval_s: float,
        now: Callable[[], float],
    ) -> None:
        self._files = files
        self._renew = renew
        self._interval_s = interval_s
        self._in_use: dict[str, bytes | None] = {}  # by setting: a digest of the content; None: not readable
        self._task: asyncio.Task[None] | None = None
        self.stale: dict[str, str] = {}
        """By setting: why what this agent uses is not what the file holds."""
        said = partial(Episodes, _log, now)
        self._restart = said(
            begins="a file changed, which takes effect by a restart only", ends="a file is as it was"
        )
        self._unusable = said(
            begins="a file cannot be used: what it held before is", ends="a file can be used again"
        )

    def settings(self) -> Sequence[str]:
        """The settings whose files are looked at."""
        return [each.setting for each in self._files]

    async def start(self) -> None:
        """Note what is in use now, and look from here on."""
        self._in_use = dict(await asyncio.to_thread(self._read))
        if self._files:
            self._task = tasks.kept(self._run, "files")

    async def stop(self) -> None:
        """Look no more. Idempotent."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(coalesced.pause_s(self._interval_s))
            await self.look()

    async def look(self) -> None:
        """One look at all files."""
        found = await asyncio.to_thread(self._read)
        changed = {name for name, digest in found.items() if digest != self._in_use[name]}
        renewed = await self._try_to_renew() if changed & BY_RENEWAL else ""
        for name, digest in found.items():
            self._judge(name, digest, renewed)

    async def _try_to_renew(self) -> str:
        """Why the log's certificates cannot be used; empty when they are now."""
        try:
            if self._renew is not None:
                await self._renew()
        except (OSError, ValueError) as error:
            return f"{type(error).__name__}: {error}"
        return ""

    def _judge(self, name: str, digest: bytes | None, renewed: str) -> None:
        if digest == self._in_use[name]:
            self.stale.pop(name, None)
            for each in (self._restart, self._unusable):
                each.over(name, setting=name)
            return
        problem = "it cannot be read" if digest is None else renewed if name in BY_RENEWAL else ""
        if problem:
            self.stale[name] = problem
            self._unusable.met(name, setting=name, error=problem)
        elif name in BY_CALL | BY_RENEWAL:
            self._in_use[name] = digest
            self.stale.pop(name, None)
            self._unusable.over(name, setting=name)
            _log.info("a file changed and is used", setting=name)
        else:
            self.stale[name] = "it changed, which takes effect by a restart only"
            self._restart.met(name, setting=name)

    def _read(self) -> Mapping[str, bytes | None]:
        return {each.setting: _digest(each.path) for each in self._files}


def watch_files(config: Config, config_file: Path | None, log: Log) -> Files:
    """An agent's, made in its event loop. `start` begins to look."""
    return Files(
        list(files_of(config, config_file)),
        log.renew if isinstance(log, Renewing) else None,
        config.agent.files_interval_ms / 1000,
        asyncio.get_running_loop().time,
    )


def _digest(path: Path) -> bytes | None:
    try:
        with path.open("rb") as stream:
            return blake2b(stream.read(FILE_BYTES_MAX), digest_size=16).digest()
    except OSError:
        return None
