"""What marks a bucket prefix as the copy of a cluster: `copy.json`, and a `cluster.json` no agent starts on.

`copy.json` says of which cluster it is a copy and how far that is complete. It is written last of a round, so
what it says is true; where it is behind, the copy holds more. `cluster.json` looks as if a restore was under
way: agents refuse it, and `floe restore cluster` goes on with it, which is how a copy is promoted. Which log
it is a copy of is what `cluster.json` says: a promotion goes by that, and puts another name there.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from dataclasses import replace as changed
from typing import Any

from objectstore import fingerprint
from objectstore.fingerprint import COPY_OF, Fingerprint
from objectstore.naming import FINGERPRINT_KEY
from objectstore.store import CREATE, NotFound, ObjectStore, Precondition

COPY_KEY = "copy.json"
FORMAT = 1
_GIVEN_AWAY = "the destination was promoted, or given away, meanwhile: the copy ends here"


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

    `log` of it is the one whose copy the destination is: not that of `wanted` where the source was restored
    since, until `switched`. Raises NotOurCopy, BrokenFingerprint, StoreError.
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
        found, _ = await fingerprint.stored(store)
    except NotFound:
        found = await _bound(store, mark)
    named = changed(mark, log=found.restored_from)  # a death within `switched` leaves copy.json behind
    if found != named.fingerprint:
        raise NotOurCopy(
            f"the destination was promoted: its {FINGERPRINT_KEY} names log "
            f"{found.log_identity!r}. Its cluster is one of its own now; copy to an empty prefix"
        )
    return named


async def switched(store: ObjectStore, mark: CopyMark, log: str) -> CopyMark:
    """The destination becomes a copy of another log of the same cluster, to a state of which it leads by now.

    `cluster.json` first: it says which log a promotion begins with. Raises as `still_ours`.
    """
    told = changed(mark, log=log)
    try:
        await fingerprint.replace(store, told.fingerprint, await still_ours(store, mark))
    except Precondition:
        raise NotOurCopy(_GIVEN_AWAY) from None
    return told


async def still_ours(store: ObjectStore, mark: CopyMark) -> str:
    """Nobody promoted the destination meanwhile; the etag of its `cluster.json`.

    Raises NotOurCopy, BrokenFingerprint, StoreError.
    """
    found, etag = await fingerprint.stored(store)
    if found != mark.fingerprint:
        raise NotOurCopy(_GIVEN_AWAY)
    return etag


async def _bound(store: ObjectStore, mark: CopyMark) -> Fingerprint:
    await store.put(FINGERPRINT_KEY, [mark.fingerprint.encode()], CREATE)
    return mark.fingerprint


async def _look_empty(store: ObjectStore) -> None:
    async for page in store.list(""):
        if page:
            raise NotOurCopy(
                f"the destination has objects ({page[0].key}) and is no copy: copy to an empty prefix"
            )
