"""The cluster's fingerprint: one object that says whose bucket prefix this is (rule 11).

The first agent creates it; every start compares it. A bucket of another cluster, or this bucket with
another log (an etcd set up anew, a wrong prefix), is refused before anything is read or written.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from dataclasses import replace as changed

from crc32c import crc32c

from objectstore import cluster_id
from objectstore.naming import FINGERPRINT_KEY
from objectstore.pace import LoopPace, Pace
from objectstore.store import (
    CREATE,
    Ambiguous,
    NoBucket,
    NotFound,
    ObjectStore,
    Precondition,
    Replace,
    Retryable,
    StoreError,
)

FORMAT = 1
COPY_OF = "copy of "  # a log's identity behind it: this prefix is a copy that is not promoted (copied.py)
CLUSTER_ID_BYTES = 16
WAIT_S_FIRST = 0.5
WAIT_S_MAX = 10.0


class ForeignBucket(Exception):
    """The bucket's prefix belongs to another cluster, or to another log. Not retryable."""


class BrokenFingerprint(Exception):
    """`cluster.json` is there but cannot be read. Not retryable."""


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """`cluster_id`: 16 random bytes made by the first agent. `log_identity`: what Log.identity() says.

    `restored_from`: the identity of the lost log while a restore of the cluster is not finished; else empty.
    """

    cluster: str
    cluster_id: bytes
    log_identity: str
    restored_from: str = ""

    def encode(self, *, summed: bool = True) -> bytes:
        """As it is stored: JSON that a human can read. Versions before the checksum wrote none."""
        content = {
            "format": FORMAT,
            "cluster": self.cluster,
            "cluster_id": base64.urlsafe_b64encode(self.cluster_id).decode().rstrip("="),
            "log": self.log_identity,
        }
        if self.restored_from:
            content["restored_from"] = self.restored_from
        if summed:
            content["crc32c"] = _sum(content)
        return json.dumps(content, indent=2, ensure_ascii=False).encode() + b"\n"


def _sum(content: Mapping[str, object]) -> str:
    """Of all that is said but the sum itself: a flipped letter of the log's name is not another log."""
    told = {name: value for name, value in content.items() if name != "crc32c"}
    return f"{crc32c(json.dumps(told, sort_keys=True).encode()):08x}"


def decode(data: bytes) -> Fingerprint:
    """The stored fingerprint. Raises BrokenFingerprint."""
    try:
        content = json.loads(data)
        found_format = content["format"]
        if content.get("crc32c", summed := _sum(content)) != summed:  # older versions wrote none
            raise ValueError(f"its checksum is {summed}, it says {content['crc32c']}")
        cluster_id = base64.urlsafe_b64decode(content["cluster_id"] + "==")
        before = str(content.get("restored_from", ""))
        found = Fingerprint(str(content["cluster"]), cluster_id, str(content["log"]), before)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BrokenFingerprint(
            f"{FINGERPRINT_KEY} is not a fingerprint ({error!r}): use a bucket prefix of Floe's own"
        ) from error
    if found_format != FORMAT or len(cluster_id) != CLUSTER_ID_BYTES:
        raise BrokenFingerprint(f"{FINGERPRINT_KEY} has format {found_format}, this code reads {FORMAT}")
    return found


async def claim(store: ObjectStore, ours: Fingerprint) -> Fingerprint:
    """Create the fingerprint or compare with the one that is there; returns what is stored.

    The stored cluster id counts, whoever was first; where the object is lost, the one that others of the
    bucket name. Raises ForeignBucket, BrokenFingerprint, StoreError.
    """
    try:
        await store.head(FINGERPRINT_KEY)
    except NotFound:
        created = await _create(store, ours)
        if created is not None:
            return created
    try:
        found = await read(store)
    except NotFound as error:
        raise Retryable(f"{FINGERPRINT_KEY} was there and is gone") from error
    check(found, ours)
    return found


async def _create(store: ObjectStore, ours: Fingerprint) -> Fingerprint | None:
    """What was written; None where somebody else was first."""
    made = changed(ours, cluster_id=await cluster_id.known(store) or ours.cluster_id)
    try:
        await store.put(FINGERPRINT_KEY, [made.encode()], CREATE)
    except Precondition:
        return None
    return made


def check(found: Fingerprint, ours: Fingerprint) -> None:
    """Raises ForeignBucket, naming both sides and the remedy."""
    if found.cluster != ours.cluster:
        raise ForeignBucket(
            f"this bucket prefix belongs to cluster {found.cluster!r}, this agent is of {ours.cluster!r}: "
            "give each cluster a prefix of its own (store.url), or correct cluster.name"
        )
    if found.log_identity.startswith(COPY_OF):
        raise ForeignBucket(
            f"this bucket prefix is a copy of cluster {found.cluster!r} made by `floe copy`: promote it, "
            "with `floe restore cluster --from THIS_BUCKET --to A_NEW_ETCD`"
        )
    if found.restored_from:
        raise ForeignBucket(
            f"a restore of cluster {found.cluster!r} into log {found.log_identity!r} is not finished: run "
            "`floe restore cluster` again, to its end"
        )
    if found.log_identity != ours.log_identity:
        raise ForeignBucket(
            f"cluster {found.cluster!r} in this bucket prefix was written with log {found.log_identity!r}, "
            f"this agent uses {ours.log_identity!r}: point log.url at the old log, or use an empty prefix"
        )


async def stored(store: ObjectStore) -> tuple[Fingerprint, str]:
    """The fingerprint that is there, and its etag. Raises NotFound, BrokenFingerprint, StoreError."""
    etag = (await store.head(FINGERPRINT_KEY)).etag
    return await read(store), etag


async def read(store: ObjectStore) -> Fingerprint:
    """The fingerprint that is there; read again once where it is broken, perhaps on its way here.

    Raises NotFound, BrokenFingerprint, StoreError.
    """
    try:
        return decode(await store.get(FINGERPRINT_KEY))
    except BrokenFingerprint:
        return decode(await store.get(FINGERPRINT_KEY))


async def replace(store: ObjectStore, wanted: Fingerprint, etag: str) -> str:
    """Put another one in the place of the one with this etag; the new etag.

    Raises Precondition where somebody else replaced it, StoreError.
    """
    try:
        return await store.put(FINGERPRINT_KEY, [wanted.encode()], Replace(etag))
    except (Ambiguous, Precondition):  # a try whose answer was lost may have done it
        found, now = await stored(store)
        if found != wanted:
            raise
        return now


async def claim_when_reachable(
    store: ObjectStore,
    ours: Fingerprint,
    pace: Pace | None = None,
    on_wait: Callable[[StoreError, float], None] | None = None,
) -> Fingerprint:
    """`claim`, again and again while store or bucket are not there; `on_wait` is told why and how long."""
    pace = pace or LoopPace()
    wait = WAIT_S_FIRST
    while True:
        try:
            return await claim(store, ours)
        except (Retryable, Ambiguous, NoBucket) as error:
            pause = wait * (0.5 + 0.5 * pace.random())
            if on_wait is not None:
                on_wait(error, pause)
        await pace.sleep(pause)
        wait = min(WAIT_S_MAX, wait * 2)
