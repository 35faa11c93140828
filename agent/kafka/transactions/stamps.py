"""What a connection proves of its requests, for the fence of transactions v1 (docs/transactions.md).

Its stamp: the revision that its agent had applied when it gave an answer that the client waited for, so that
what comes behind was sent later. ApiVersions gets one, where nothing else had come by then. Without it the
first request that the fence looks at decides:

* The fence refuses it: nothing was done, it is to be sent again, and this answer gives the stamp. What had
  been read by then is not younger than it, and proves nothing.
* It counts: the connection has no stamp and gets none (`COUNTED`). Who uses it may have gone elsewhere later
  and left something behind on it.
"""

from __future__ import annotations

from typing import Final

COUNTED: Final = 0
"""Older than everything that the fence compares with."""


def comes_again(read: int | None, now: int | None) -> bool:
    """Whether a request that the fence refuses is to be sent again; else its connection is closed.

    `read`: the stamp that its connection had when it was read, `now`: the one that it has; None: none yet.
    """
    return read is None and now != COUNTED


def stamp_after(now: int | None, counted: bool, revision: int) -> int | None:
    """The connection's stamp once the fence has let a request count, or has refused one that comes again."""
    if now is not None:
        return now
    return COUNTED if counted else revision
