"""Objects that the store itself copies from one of its buckets into another: no byte passes through here.

S3's CopyObject is a PUT at the target with the source's bucket and key in a header. obstore makes that header
of the bucket that it was opened with, and sends the request to the bucket's own address. So it is opened here
with the source's name and the target's address.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from urllib.parse import urlsplit

import obstore
from obstore.exceptions import BaseError
from obstore.store import S3Store

from objectstore.adapters.cloud import translate
from objectstore.copying import Refused
from objectstore.credentials import Keys
from objectstore.large_copies import PartCopies
from objectstore.naming import check_key
from objectstore.open import StoreOptions, s3_store
from objectstore.retry import Retries
from objectstore.store import Denied

COPY_BYTES_MAX = 5 << 30  # of one CopyObject, S3's limit; what is larger is copied in parts
_ELSEWHERE = ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT")  # of the environment
_NOT_KNOWN = ("<Code>NotImplemented</Code>", "status code: 501")
_PLACES = ("endpoint", "bucket", "region", "virtual_hosted")  # of options by name, that say where a bucket is


class BucketCopies:
    """Copies between two buckets of one S3 store, with the target's keys."""

    def __init__(
        self, source: str, target: str, options: StoreOptions, keys: Callable[[], Keys | None]
    ) -> None:
        """The URLs of both; `options` and `keys` are the target's."""
        self._source, self._target = (_Place(each) for each in (source, target))
        address = f"{_endpoint(options)}/{self._target.bucket}"
        self._store: S3Store = s3_store(self._source.bucket, None, options, address=address)
        self.parts = PartCopies(self._source.bucket, self._target.bucket, options, keys)
        self._retries = Retries(options.retry, options.pace)
        self.copy_bytes_max = COPY_BYTES_MAX

    async def copy(self, key: str, size: int) -> None:
        """See Copies."""
        check_key(key)
        places = self._source.name(key), self._target.name(key)
        if size > self.copy_bytes_max:
            await self._retries.tried(lambda: self.parts.copy(*places, size), wrote=True)
        else:
            await self._retries.tried(lambda: self._whole(*places), wrote=True)

    async def _whole(self, source: str, target: str) -> None:
        try:
            await obstore.copy_async(self._store, source, target)
        except (BaseError, OSError) as error:
            told = translate(f"{source} copied to {target}", error, wrote=True)
            if isinstance(told, Denied) or any(sign in str(error) for sign in _NOT_KNOWN):
                raise Refused(str(told)) from error
            raise told from error


class _Place:
    """A bucket and a prefix."""

    def __init__(self, url: str) -> None:
        parsed = urlsplit(url)
        self.bucket, self._prefix = parsed.netloc, parsed.path.strip("/")

    def name(self, key: str) -> str:
        """The key in the bucket."""
        return f"{self._prefix}/{key}" if self._prefix else key


def across(
    urls: tuple[str, str], options: tuple[StoreOptions, StoreOptions], keys: Callable[[], Keys | None]
) -> BucketCopies | None:
    """What copies from the first bucket into the second; None where they are not known to be one store's.

    `keys`: the target's. Raises ValueError for options that cannot be.
    """
    source, target = options
    if any(urlsplit(url).scheme != "s3" for url in urls):
        return None
    if source.endpoint.rstrip("/") != target.endpoint.rstrip("/"):
        return None
    if target.endpoint and target.virtual_hosted_style:  # then the endpoint is one bucket's
        return None
    if not target.endpoint and any(os.environ.get(name) for name in _ELSEWHERE):
        return None
    if any(part in name.lower() for each in options for name in each.extra for part in _PLACES):
        return None
    return BucketCopies(urls[0], urls[1], target, keys)


def _endpoint(options: StoreOptions) -> str:
    return options.endpoint.rstrip("/") or f"https://s3.{options.region}.amazonaws.com"
