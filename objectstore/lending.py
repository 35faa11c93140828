"""Keys of an S3 bucket that read some folders, for a while, and nothing else.

A role is assumed (AWS STS, or a server that speaks it, as MinIO does) with a session policy, which can only
take away from what the role may. What was given is kept for whoever asks the same next, for half its time.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from objectstore import tasks
from objectstore.credentials import Lent, Role
from objectstore.store import StoreError
from objectstore.sts import Sts

FOLDERS_MAX: Final = 4
"""Of one set of keys: Amazon takes a policy of 2,048 characters."""
POLICY_CHARS_MAX: Final = 2_048
_NOT_IN_NAMES = re.compile(r"[^\w+=,.@-]", re.ASCII)
NAME_CHARS_MAX: Final = 64


@dataclass(frozen=True, slots=True)
class Bounds:
    """Questions at once, and keys that are kept."""

    in_flight_max: int
    kept_max: int


class KeyLender:
    """Keeps what was lent, and asks once for all who want the same."""

    def __init__(self, role: Role, bucket: str, bounds: Bounds, now_ms: Callable[[], int]) -> None:
        self._sts, self._role, self._bucket = Sts(role), role, bucket
        self._bounds, self._now_ms = bounds, now_ms
        self._places = asyncio.Semaphore(bounds.in_flight_max)
        self._kept: OrderedDict[tuple[str, tuple[str, ...]], Lent] = OrderedDict()
        self._asking: dict[tuple[str, tuple[str, ...]], asyncio.Task[Lent]] = {}

    async def lend(self, who: str, folders: Sequence[str]) -> Lent:
        """Keys that read what lies below these keys of the bucket, each with a slash at its end.

        Raises StoreError. They hold for at least half of the role's duration.
        """
        wanted = (who, tuple(folders))
        kept = self._kept.get(wanted)
        if kept is not None and kept.expires_ms - self._now_ms() > self._role.duration_s * 500:
            self._kept.move_to_end(wanted)
            return kept
        asking = self._asking.get(wanted)
        if asking is None:
            asking = tasks.owned(self._ask(who, wanted[1]), "lending")
            self._asking[wanted] = asking
            asking.add_done_callback(partial(self._answered, wanted))
        return await asyncio.shield(asking)

    def _answered(self, wanted: tuple[str, tuple[str, ...]], asked: asyncio.Task[Lent]) -> None:
        self._asking.pop(wanted, None)
        if not asked.cancelled():
            asked.exception()  # whoever waited may be gone

    async def _ask(self, who: str, folders: tuple[str, ...]) -> Lent:
        policy = policy_of(self._role.arn, self._bucket, folders)
        async with self._places:
            lent = await asyncio.to_thread(partial(self._sts.assume, session_name(who), policy))
        self._kept[who, folders] = lent
        self._kept.move_to_end((who, folders))
        while len(self._kept) > self._bounds.kept_max:
            self._kept.popitem(last=False)
        return lent


def policy_of(role: str, bucket: str, folders: Sequence[str]) -> str:
    """What lets read these folders, as Amazon's policies say it. Raises StoreError for too much of it."""
    partition = role.split(":")[1] or "aws"
    objects = [f"arn:{partition}:s3:::{bucket}/{_literal(folder)}*" for folder in folders]
    statement = {"Effect": "Allow", "Action": ["s3:GetObject"], "Resource": objects}
    text = json.dumps({"Version": "2012-10-17", "Statement": [statement]}, separators=(",", ":"))
    if len(folders) > FOLDERS_MAX or len(text) > POLICY_CHARS_MAX:
        raise StoreError(
            f"no keys can be lent for {len(folders)} folders, the first {folders[0]!r}: the policy would "
            f"have {len(text)} characters; {POLICY_CHARS_MAX} and {FOLDERS_MAX} folders are the most"
        )
    return text


def session_name(who: str) -> str:
    """What the store's log calls whoever reads by the keys."""
    return _NOT_IN_NAMES.sub("_", f"floe-{who}")[:NAME_CHARS_MAX]


def _literal(folder: str) -> str:
    """A folder as policies name it: what stands for anything there is a character here."""
    return re.sub(r"[*?$]", lambda match: f"${{{match[0]}}}", folder)
