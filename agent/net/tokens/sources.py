"""Where the keys come from: a file, or one URL that the configuration names.

What was found last stays in force while a newer set cannot be had or read: an authorization server that is
away keeps nobody out whose token fits a known key.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

import urllib3

from agent.config import Config, ConfigError
from agent.config.renewed import Renewed
from agent.config.tokens import OauthConfig
from agent.net.renewal import Renewable
from agent.net.tokens.identity import KeySource
from agent.net.tokens.keys import PublicKeys, parse
from agent.telemetry.logs import logger
from agent.telemetry.metrics import Metrics
from objectstore import tasks

_log = logger("jwks")
READ_BYTES: Final = 64 * 1024


class JwksFile(Renewed):
    """A file, which somebody looks at again and again (agent/net/renewal.py)."""

    name = "keys of tokens"
    keys: PublicKeys

    def __init__(self, path: str, bytes_max: int) -> None:
        """Raises ConfigError for a file that is none."""
        super().__init__(path)
        self._path, self._bytes_max = path, bytes_max
        self.make()

    def make(self) -> None:
        """See Renewed."""
        self.keys = self._read()

    @property
    def failing(self) -> bool:
        """Whether what lies there now is not in force."""
        return bool(self.problem)

    @property
    def files(self) -> Sequence[Renewable]:
        """Itself."""
        return [self]

    def start(self) -> None:
        """Nothing to do."""

    async def stop(self) -> None:
        """Nothing to do."""

    async def look_again(self) -> None:
        """The file is looked at anyway."""

    def _read(self) -> PublicKeys:
        try:
            with open(self._path, "rb") as file:
                content = file.read(self._bytes_max + 1)
            if len(content) > self._bytes_max:
                raise ValueError(f"more than {self._bytes_max} bytes (oauth.jwks_bytes_max)")
            return parse(content)
        except OSError as error:
            reason = error.strerror or str(error)
        except ValueError as error:
            reason = str(error)
        raise ConfigError(f"oauth.jwks_file ({self._path}): {reason}")


class JwksUrl:
    """A URL, which is looked at when it is time, and once in between for a token with an unknown key."""

    def __init__(
        self, config: OauthConfig, metrics: Metrics, fetch: Callable[[], bytes] | None = None
    ) -> None:
        """`fetch` blocks; it is called in a thread. Raises ConfigError for authorities that are none."""
        self.keys = PublicKeys()
        self._config, self._metrics = config, metrics
        self._fetch = fetch or _Fetch(config)
        self._lookup: asyncio.Task[None] | None = None
        self._task: asyncio.Task[None] | None = None
        self._begun = float("-inf")
        self.failing = False
        self.files: Sequence[Renewable] = ()

    def start(self) -> None:
        """Begin to look."""
        self._task = tasks.kept(self._run, "keys of tokens")

    async def stop(self) -> None:
        """Look no more."""
        running = [task for task in (self._task, self._lookup) if task is not None]
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    async def look_again(self) -> None:
        """All who wait share one lookup; nobody causes one before jwks_lookup_ms_min is over."""
        now = asyncio.get_running_loop().time()
        if self._lookup is None or self._lookup.done():
            if now - self._begun < self._config.jwks_lookup_ms_min / 1000:
                return
            self._begun = now
            self._lookup = tasks.start(self._look(), "lookup of keys", apart=True)
        await asyncio.wait([self._lookup])

    async def _run(self) -> None:
        while True:
            await self.look_again()
            pause = self._config.jwks_lookup_ms_min if self.failing else self._config.jwks_refresh_ms
            await asyncio.sleep(pause / 1000)

    async def _look(self) -> None:
        try:
            keys = parse(await asyncio.to_thread(self._fetch))
        except (OSError, ValueError, urllib3.exceptions.HTTPError) as error:
            self._metrics.jwks_lookups.labels("failed").inc()
            self._metrics.jwks_failing.set(1)
            if not self.failing:
                known = len(self.keys)
                _log.error("no new keys of tokens, the known ones stay", known=known, reason=str(error))
            self.failing = True
            return
        self._metrics.jwks_lookups.labels("done").inc()
        self._metrics.jwks_failing.set(0)
        if self.failing or not len(self.keys):
            _log.info("keys of tokens are known", keys=len(keys))
        self.keys, self.failing = keys, False


class _Fetch:
    """GET, nothing else: no redirects, no proxies, no retries, no more than jwks_bytes_max."""

    def __init__(self, config: OauthConfig) -> None:
        self._url, self._bytes_max = config.jwks_url, config.jwks_bytes_max
        seconds = config.jwks_timeout_ms / 1000
        try:
            if config.jwks_ca_file:
                with open(config.jwks_ca_file, "rb"):
                    pass
            self._pool = urllib3.PoolManager(
                num_pools=1,
                retries=False,
                timeout=urllib3.Timeout(connect=seconds, read=seconds),
                cert_reqs="CERT_REQUIRED",
                ca_certs=config.jwks_ca_file or None,
            )
        except OSError as error:
            raise ConfigError(f"oauth.jwks_ca_file ({config.jwks_ca_file}): {error.strerror}") from None

    def __call__(self) -> bytes:
        """Raises OSError, ValueError, urllib3's HTTPError."""
        headers = {"Accept": "application/json", "Accept-Encoding": "identity"}
        answer = self._pool.request("GET", self._url, headers=headers, redirect=False, preload_content=False)
        try:
            if answer.status != 200:
                raise ValueError(f"HTTP status {answer.status}")
            content = bytearray()
            for part in answer.stream(READ_BYTES, decode_content=False):
                content += part
                if len(content) > self._bytes_max:
                    raise ValueError(f"more than {self._bytes_max} bytes (oauth.jwks_bytes_max)")
            return bytes(content)
        finally:
            answer.close()


def source_of(config: Config, metrics: Metrics) -> KeySource:
    """As configured, where one of the two is. Raises ConfigError."""
    oauth = config.oauth
    if oauth.jwks_file:
        return JwksFile(oauth.jwks_file, oauth.jwks_bytes_max)
    return JwksUrl(oauth, metrics)
