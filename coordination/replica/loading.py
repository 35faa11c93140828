"""Finding the newest snapshot that is whole, and loading it without holding up the event loop."""

from __future__ import annotations

import asyncio
import gc
import logging

from coordination.log import Log, LogRegressed
from coordination.replica.errors import ReplicaFailed
from coordination.snapshot import CorruptSnapshot, decode_steps
from coordination.state import State
from objectstore.naming import SNAPSHOTS, parse_snapshot_key
from objectstore.store import NotFound, ObjectStore

_logger = logging.getLogger("floe.coordination.replica")


async def load_newest(log: Log, store: ObjectStore, slice_s: float) -> State:
    """The state of the newest good snapshot from which the log still goes on; empty for a new cluster.

    A corrupt snapshot falls back to the one before it. Raises ReplicaFailed when entries are trimmed and
    no good snapshot covers them, LogRegressed when the log is older than a snapshot (restored from a
    backup), Unavailable and StoreError when log or store cannot be asked now.
    """
    trimmed = await log.trimmed()
    for key, revision in await _candidates(store):
        if revision < trimmed:
            break
        state = await _load(store, key, slice_s)
        if state is None:
            continue
        current = await log.current()
        if current < revision:
            raise LogRegressed(
                f"the log is at revision {current}, snapshot {key} at {revision}: the log was restored from "
                "an older backup, or this bucket belongs to another log"
            )
        return state
    if trimmed:
        raise ReplicaFailed(
            f"the log is trimmed through revision {trimmed} and no readable snapshot under {SNAPSHOTS!r} is "
            "that new: restore the snapshots in the bucket"
        )
    return State()


async def _candidates(store: ObjectStore) -> list[tuple[str, int]]:
    """Keys of snapshots and their revisions, newest first."""
    found = []
    async for page in store.list(SNAPSHOTS):
        for meta in page:
            name = parse_snapshot_key(meta.key)
            if name is not None:
                found.append((meta.key, name.revision))
    found.reverse()
    return found


async def _load(store: ObjectStore, key: str, slice_s: float) -> State | None:
    loop = asyncio.get_running_loop()
    loaded = None
    gc.disable()  # a state is all new objects and no garbage: collections would only stall the loop
    try:
        content = await store.get(key)
        until = loop.time() + slice_s
        for step in decode_steps(content):
            loaded = step
            if loop.time() >= until:
                await asyncio.sleep(0)
                until = loop.time() + slice_s
    except (CorruptSnapshot, NotFound) as error:
        _logger.error("snapshot %s is not usable, trying the one before it: %s", key, error)
        return None
    finally:
        gc.freeze()  # and none of it becomes garbage soon: later collections need not look at it
        gc.enable()
    return loaded
