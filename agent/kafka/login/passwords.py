"""A user's password held against whatever is known of it: HTTP's Basic, where the password comes each time.

The users are those of PLAIN and of SCRAM. What was right once is remembered for as long as nothing that is
kept of the user changes, as a digest that is of use in this process only.
"""

from __future__ import annotations

import asyncio
import hmac
from collections import OrderedDict
from typing import TYPE_CHECKING, Final, NamedTuple

from agent.config.users import Hashed
from agent.kafka.login import scram
from coordination.state.scram_types import ScramCredential

if TYPE_CHECKING:
    from agent.kafka.login.logins import Logins

REMEMBERED_MAX: Final = 4_096
"""Passwords that were right, of which each later request costs microseconds."""
CHECKS_IN_FLIGHT_MAX: Final = 1
"""Passwords that are checked at once, beside those of PLAIN: whoever guesses here delays no login there."""
WAITING_MAX: Final = 64
"""Passwords that wait to be checked; with more of them requests are told to come again."""


class _Kept(NamedTuple):
    """What is known of a user; None: nothing of that kind."""

    hashed: Hashed | None
    scram: tuple[ScramCredential | None, ...]

    def written(self) -> bytes:
        """All of it, one way to write it."""
        parts = [b"" if self.hashed is None else b"%d:%s%s" % self.hashed]
        for each in self.scram:
            parts.append(b"" if each is None else b"%d:%s%s" % (each.iterations, each.salt, each.stored_key))
        return b"".join(b"%d:%s" % (len(each), each) for each in parts)

    def known(self) -> bool:
        """Whether file or state have the user."""
        return self.hashed is not None or any(self.scram)


class Passwords:
    """Of one agent."""

    def __init__(self, logins: Logins, secret: bytes) -> None:
        """`secret`: of this process, random."""
        self._logins, self._secret = logins, secret
        self._checks = asyncio.Semaphore(CHECKS_IN_FLIGHT_MAX)
        self._waiting = 0
        self._right: OrderedDict[bytes, _Kept] = OrderedDict()

    async def fit(self, user: str, password: str) -> bool | None:
        """Whether it is the user's; None: too many wait for that. A no takes as long whether or not there is
        such a user."""
        kept = self._kept(user)
        digest = hmac.digest(self._secret, f"{len(user)}:{user}{password}".encode(), "sha256")
        if self._right.get(digest) == kept:
            self._right.move_to_end(digest)
            return True
        if self._waiting >= WAITING_MAX:
            return None
        self._waiting += 1
        try:
            fits = await self._check(user, password, kept)
        finally:
            self._waiting -= 1
        if fits:
            self._right[digest] = kept
            if len(self._right) > REMEMBERED_MAX:
                self._right.popitem(last=False)
        return fits

    async def _check(self, user: str, password: str, kept: _Kept) -> bool:
        """Takes milliseconds, when it is its turn."""
        unknown = [self._logins.made_up(user, mechanism) for mechanism in scram.DIGESTS]
        async with self._checks:
            fits = await asyncio.to_thread(_fits, password, kept, self._logins.users.nobody, unknown)
        if self._logins.has_first_password(user):
            known = self._logins.config.admin_password.get_secret_value()
            fits = hmac.compare_digest(password.encode(), known.encode())
        return fits

    def standing(self, user: str) -> bytes:
        """What is kept of a user by now, which changes with his password; empty: there is no such user."""
        if self._logins.has_first_password(user):
            return self._logins.config.admin_password.get_secret_value().encode()
        kept = self._kept(user)
        return kept.written() if kept.known() else b""

    def failed_from(self, address: str) -> int:
        """Note a failed login, whatever it was by; how many there were from there."""
        return self._logins.failed_from(address)

    def _kept(self, user: str) -> _Kept:
        of = self._logins
        return _Kept(
            of.users.users.get(user), tuple(of.stored(user, mechanism) for mechanism in scram.DIGESTS)
        )


def _fits(password: str, kept: _Kept, nobody: Hashed, unknown: list[ScramCredential]) -> bool:
    """Takes milliseconds. Every kind is tried before it is a no."""
    fits = (kept.hashed or nobody).fits(password) and kept.hashed is not None
    for digest, held, other in zip(scram.DIGESTS.values(), kept.scram, unknown, strict=True):
        if fits:
            break
        credential = held or other
        salted = scram.salted(digest, password, credential.salt, credential.iterations)
        stored_key, _ = scram.keys(digest, salted)
        fits = hmac.compare_digest(stored_key, credential.stored_key) and held is not None
    return fits
