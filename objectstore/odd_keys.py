"""Objects below the store's root whose keys no store could be asked for, such as `snapshots//note.txt`.

Floe writes none: somebody else did. obstore refuses a whole listing for one of them, so listings of S3 are
then asked for with boto3, in threads, and pass over them; each is told once. Of other clouds such a listing
fails (adapters/cloud.py) and names the key.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from objectstore.credentials import Keys
from objectstore.naming import CHUNKS, LOG, MANIFESTS, SCRUB, SEGMENTS, SNAPSHOTS, TABLES, check_key
from objectstore.store import Denied, NoBucket, ObjectMeta, Retryable, StoreError

if TYPE_CHECKING:
    from mypy_boto3_s3.client import S3Client

    from objectstore.open import StoreOptions

FOLDERS = (CHUNKS, SEGMENTS, MANIFESTS, SNAPSHOTS, LOG, SCRUB, TABLES)
LOOKED_PAGES_MAX = 20  # of each of these, a thousand keys each, when somebody asks whether there are any
TOLD_MAX = 100  # keys that are told; beyond, in silence
REMEDY = "it is not Floe's, delete it or move it away"
_AGAIN = ("SlowDown", "RequestTimeout", "InternalError", "ServiceUnavailable", "Throttling")

_logger = logging.getLogger("floe.objectstore")


def is_odd(key: str) -> bool:
    """Whether obstore cannot name such a key. Markers of folders, which end with a slash, it passes over."""
    named = key.removesuffix("/")
    if not named:
        return False
    try:
        check_key(named)
    except ValueError:
        return True
    return any(ord(letter) < 0x20 or ord(letter) == 0x7F for letter in key)


class OddKeys:
    """Listings of one bucket, below `root` (ending with a slash, or empty), without such keys."""

    def __init__(
        self, bucket: str, root: str, options: StoreOptions, keys: Callable[[], Keys | None]
    ) -> None:
        """`keys`: those that hold now; None: the environment's."""
        self._bucket, self._root = bucket, root
        self._options, self._keys = options, keys
        self._told: set[str] = set()

    async def list(self, prefix: str, start_after: str) -> AsyncIterator[Sequence[ObjectMeta]]:
        """See ObjectStore."""
        async for answer in self._pages(prefix, StartAfter=self._root + start_after if start_after else ""):
            found = [(self._below(each["Key"]), each) for each in answer.get("Contents", ())]
            page = [_meta(key, each) for key, each in found if self._is_even(key) and not key.endswith("/")]
            if page:
                yield page

    async def list_folders(self, prefix: str) -> Sequence[str]:
        """See ObjectStore."""
        found: list[str] = []
        async for answer in self._pages(prefix, Delimiter="/"):
            keys = [self._below(each["Prefix"]) for each in answer.get("CommonPrefixes", ())]
            found += [key.rstrip("/").rpartition("/")[2] for key in keys if self._is_even(key)]
        return sorted(found)

    async def _pages(self, prefix: str, **more: str) -> AsyncIterator[Any]:
        client = await asyncio.to_thread(self._client)
        asked = {"Bucket": self._bucket, "Prefix": self._root + prefix}
        asked |= {name: value for name, value in more.items() if value}
        try:
            while True:
                answer = await asyncio.to_thread(_page, client, prefix, asked)
                yield answer
                if not answer.get("IsTruncated"):
                    return
                asked["ContinuationToken"] = answer["NextContinuationToken"]
        finally:
            client.close()

    def _client(self) -> S3Client:
        from objectstore.s3_client import s3_client  # boto3 costs memory, which others do not pay

        return s3_client(self._options, self._keys())

    def _below(self, key: str) -> str:
        return key[len(self._root) :]

    def _is_even(self, key: str) -> bool:
        odd = is_odd(key)
        if odd and key not in self._told and len(self._told) < TOLD_MAX:
            self._told.add(key)
            _logger.warning("the object %r is passed over: %s", self._root + key, REMEDY)
        return not odd


def _page(client: S3Client, prefix: str, asked: Any) -> Any:
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        return client.list_objects_v2(**asked)
    except ClientError as error:
        raise _told(prefix, error.response.get("Error", {})) from error
    except (BotoCoreError, OSError) as error:
        raise Retryable(f"{prefix}: {error}") from error


def _told(prefix: str, error: Any) -> StoreError:
    code = error.get("Code", "")
    told = f"{prefix}: {code}: {error.get('Message', '')}"
    if code == "NoSuchBucket":
        return NoBucket(told)
    return Retryable(told) if code in _AGAIN else Denied(told)


def _meta(key: str, found: Any) -> ObjectMeta:
    return ObjectMeta(key, found["Size"], found["ETag"], int(found["LastModified"].timestamp() * 1000))


def found_in(client: S3Client, bucket: str, root: str) -> Iterator[str]:
    """Such keys in Floe's own folders, as far as LOOKED_PAGES_MAX go. Raises what boto3 does."""
    for folder in FOLDERS:
        pages = client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=root + folder)
        for at, page in enumerate(pages):
            for each in page.get("Contents", ()):
                if is_odd(each["Key"][len(root) :]):
                    yield each["Key"]
            if at + 1 == LOOKED_PAGES_MAX:
                break
