"""The keys of a role that an agent assumes to use the bucket, renewed when half their time is over.

Those in hand are used as long as they hold: a token service that is away is felt only when they have ended.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from objectstore.credentials import SDK_AHEAD_S, Keys, Lent, Role
from objectstore.store import StoreError
from objectstore.sts import Sts

if TYPE_CHECKING:
    from obstore.store import S3Credential

RETRY_S: Final = 10
"""Between two attempts to renew, seconds."""
ASKED_AGAIN_S: Final = 10
"""How often obstore asks what the keys are now, seconds."""


class AssumedRole:
    """Keys of one role, for any number of threads."""

    def __init__(self, role: Role, name: str, now_ms: Callable[[], int]) -> None:
        """`name`: what the store's log calls whoever uses the keys."""
        self._role, self._name, self._now_ms = role, name, now_ms
        self._sts = Sts(role)
        self._lent: Lent | None = None
        self._tried_ms = 0
        self._asking = threading.Lock()

    def keys(self) -> Keys:
        """Those that hold now. The first time, and when they have ended, it waits for the token service.

        Raises StoreError, which has nothing secret in it.
        """
        lent, now_ms = self._lent, self._now_ms()
        if lent is None or lent.expires_ms <= now_ms:
            lent = self._waited_for()
        elif self._due(lent, now_ms) and self._asking.acquire(blocking=False):
            try:
                threading.Thread(target=self._renew, name="assumed-role", daemon=True).start()
            except RuntimeError:  # no thread to be had now: those in hand hold, and the next who asks tries
                self._asking.release()
        return Keys(lent.access, lent.secret, lent.token)

    def provide(self) -> S3Credential:
        """What obstore asks for credentials, in a thread of its own. Raises StoreError."""
        keys = self.keys()
        until_s = self._now_ms() / 1000 + SDK_AHEAD_S + ASKED_AGAIN_S
        return {
            "access_key_id": keys.access,
            "secret_access_key": keys.secret,
            "token": keys.token,
            "expires_at": datetime.fromtimestamp(until_s, UTC),
        }

    def _due(self, lent: Lent, now_ms: int) -> bool:
        """Whether half their time is over, and the last attempt a while ago."""
        half_ms = self._role.duration_s * 500
        return lent.expires_ms - now_ms < half_ms and now_ms - self._tried_ms >= RETRY_S * 1000

    def _waited_for(self) -> Lent:
        with self._asking:
            lent = self._lent
            if lent is None or lent.expires_ms <= self._now_ms():
                lent = self._lent = self._sts.assume(self._name)
            return lent

    def _renew(self) -> None:
        """In a thread, which lets go of the lock."""
        try:
            self._tried_ms = self._now_ms()
            self._lent = self._sts.assume(self._name)
        except StoreError:
            pass  # those in hand still hold; `keys` says so when they have ended
        finally:
            self._asking.release()
