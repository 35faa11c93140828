"""Keys of an S3 store that lie in files and are read again: a Secret that is rotated needs no restart.

Kubernetes replaces all files of a mounted Secret at once, by one symbolic link. Who reads several of them may
meet the change in between; so they are read until two readings agree.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from obstore.store import S3Credential

READINGS_MAX = 5  # until two agree
FILE_BYTES_MAX = 64 * 1024
SDK_AHEAD_S = 300  # obstore asks again so long before what it was given expires, seconds


class Keys(NamedTuple):
    """One set of credentials; an empty token: none."""

    access: str
    secret: str
    token: str = ""


class Lent(NamedTuple):
    """Keys of a role, which end at a time."""

    access: str
    secret: str
    token: str
    expires_ms: int


@dataclass(frozen=True, slots=True)
class Role:
    """What is assumed, and where. `keys`: those that it is assumed with; None: the environment's.

    An empty `url`: Amazon's service of the region.
    """

    arn: str
    url: str
    region: str
    keys: Callable[[], Keys | None]
    duration_s: int
    timeout_s: float
    ca_file: str = ""


@dataclass(frozen=True, slots=True)
class KeyFiles:
    """Where the keys are; `token` empty: none."""

    access: str
    secret: str
    token: str = ""

    def read(self) -> Keys:
        """The keys as they are now. Raises OSError, ValueError (an empty file, or one that is no text)."""
        before = self._read()
        for _ in range(READINGS_MAX):
            now = self._read()
            if now == before:
                return now
            before = now
        return before

    def _read(self) -> Keys:
        return Keys(*(text_of(path) if path else "" for path in (self.access, self.secret, self.token)))


def text_of(path: str) -> str:
    """A secret from its file, without the blank space around it. Raises OSError, ValueError."""
    with Path(path).open("rb") as stream:
        data = stream.read(FILE_BYTES_MAX + 1)
    if len(data) > FILE_BYTES_MAX:
        raise ValueError(f"{path}: more than {FILE_BYTES_MAX} bytes; a file of credentials holds one secret")
    text = data.decode("utf-8").strip()
    if not text:
        raise ValueError(f"{path}: empty; it must hold the secret")
    return text


def provider(files: KeyFiles, now_ms: Callable[[], int], renewed_s: float) -> Callable[[], S3Credential]:
    """What obstore asks for credentials, in a thread of its own: the files, anew every `renewed_s` seconds.

    While they cannot be read, what was read before is used.
    """
    keys = files.read()

    def ask() -> S3Credential:
        nonlocal keys
        with suppress(OSError, ValueError):  # whoever watches the files says so (agent/health/files.py)
            keys = files.read()
        until = datetime.fromtimestamp(now_ms() / 1000, UTC) + timedelta(seconds=SDK_AHEAD_S + renewed_s)
        return {
            "access_key_id": keys.access,
            "secret_access_key": keys.secret,
            "token": keys.token or None,
            "expires_at": until,
        }

    return ask
