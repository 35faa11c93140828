"""What marks a bucket prefix as the copy of a cluster: `copy.json`, and a `cluster.json` no agent starts on.

`copy.json` says of which cluster it is a copy and how far that is complete. It is written last of a round, so
what it says is true; where it is behind, the copy holds more. `cluster.json` looks as if a restore was under
way: agents refuse it, and `floe restore cluster` goes on with it, which is how a copy is promoted.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from typing import Any

from objectstore import fingerprint
from objectstore.fingerprint import COPY_OF, Fingerprint
from objectstore.naming import FINGERPRINT_KEY
from objectstore.store import CREATE, NotFound, ObjectStore, Precondition

COPY_KEY = "copy.json"
FORMAT = 1


class NotOurCopy(Exception):
    """The destination is something else than a copy of this cluster. Says what, and the remedy."""


@dataclass(frozen=True, slots=True)
class CopyMark:
    """`source`: the store's URL, by which tables' files are named. `log`: the copied log's identity.

    Complete through `revision` of that log, which was archived at `archived_ms` (Unix ms, the source store's
    clock); 0 and 0 before the first complete round. `missing`: objects that the source's own state names and
    the source has lost. `damaged`: keys of objects that are, or are about to be, here damaged as the
    source gave them. They are taken again once it gives them whole.
    """

    source: str
    cluster: str
    cluster_id: bytes
    log: str
    revision: int = 0
    archived_ms: int = 0
    rounds: int = 0
    missing: int = 0
    damaged: tuple[str, ...] = ()

    def encode(self) -> bytes:
        """As it is stored: JSON that a human can read."""
        told = {
            "format": FORMAT,
            "source": self.source,
            "cluster": self.cluster,
            "cluster_id": base64.urlsafe_b64encode(self.cluster_id).decode().rstrip("="),
            "log": self.log,
            "complete": {"revision": self.revision, "archived_ms": self.archived_ms},
            "rounds": self.rounds,
            "missing": self.missing,
            "damaged": list(self.damaged),
        }
        return json.dumps(told, indent=2, ensure_ascii=False).encode() + b"\n"

    @property
    def fingerprint(self) -> Fingerprint:
        """The copy's `cluster.json` until it is promoted."""
        return Fingerprint(self.cluster, self.cluster_id, f"{COPY_OF}{self.log}", restored_from=self.log)


def decode(data: bytes) -> CopyMark:
    """The stored mark. Raises NotOurCopy."""
    try:
        told: dict[str, Any] = json.loads(data)
        if told["format"] != FORMAT:
            raise NotOurCopy(
                f"{COPY_KEY} has format {told['format']}, this version writes {FORMAT}: use its floe"
            )
        return CopyMark(
            str(told["source"]),
            str(told["cluster"]),
            base64.urlsafe_b64decode(told["cluster_id"] + "=="),
            str(told["log"]),
            int(told["complete"]["revision"]),
            int(told["complete"]["archived_ms"]),
            int(told["rounds"]),
            int(told["missing"]),
            tuple(map(str, told.get("damaged", ()))),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise NotOurCopy(f"{COPY_KEY} cannot be read ({error!r}): copy to an empty prefix") from None


async def marked(store: ObjectStore) -> CopyMark | None:
    """What a prefix says of itself; None where it is no copy. Raises NotOurCopy, StoreError."""
    try:
        return decode(await store.get(COPY_KEY))
    except NotFound:
        return None


async def claimed(store: ObjectStore, wanted: CopyMark) -> CopyMark:
    """The destination's mark, made where the prefix is empty. Changes nothing of what is there.

    Raises NotOurCopy, BrokenFingerprint, StoreError.
    """
    mark = await marked(store)
    if mark is None:
        await _look_empty(store)
        try:
            await store.put(COPY_KEY, [wanted.encode()], CREATE)
        except Precondition:
            raise NotOurCopy(
                f"somebody else wrote {COPY_KEY} to the destination a moment ago: one `floe copy` at a time"
            ) from None
        mark = wanted
    if (mark.cluster, mark.cluster_id) != (wanted.cluster, wanted.cluster_id):
        raise NotOurCopy(
            f"the destination is a copy of cluster {mark.cluster!r} in {mark.source}, the source is cluster "
            f"{wanted.cluster!r} in {wanted.source}: give each copy a prefix of its own"
        )
    try:
        found, etag = await fingerprint.stored(store)
    except NotFound:
        found, etag = await _bound(store, mark), ""
    if found == mark.fingerprint and mark.log != wanted.log:  # the source was restored into a new log itself
        mark = CopyMark(wanted.source, mark.cluster, mark.cluster_id, wanted.log, rounds=mark.rounds)
        await store.put(COPY_KEY, [mark.encode()])
        await fingerprint.replace(store, mark.fingerprint, etag or (await fingerprint.stored(store))[1])
    elif found != mark.fingerprint:
        raise NotOurCopy(
            f"the destination was promoted: its {FINGERPRINT_KEY} names log "
            f"{found.log_identity!r}. Its cluster is one of its own now; copy to an empty prefix"
        )
    return mark


async def still_ours(store: ObjectStore, mark: CopyMark) -> None:
    """Nobody promoted the destination meanwhile. Raises NotOurCopy, BrokenFingerprint, StoreError."""
    found, _ = await fingerprint.stored(store)
    if found != mark.fingerprint:
        raise NotOurCopy("the destination was promoted, or given away, meanwhile: the copy ends here")


async def _bound(store: ObjectStore, mark: CopyMark) -> Fingerprint:
    await store.put(FINGERPRINT_KEY, [mark.fingerprint.encode()], CREATE)
    return mark.fingerprint


async def _look_empty(store: ObjectStore) -> None:
    async for page in store.list(""):
        if page:
            raise NotOurCopy(
                f"the destination has objects ({page[0].key}) and is no copy: copy to an empty prefix"
            )
