"""S3-compatible stores, Google's and Azure's, through obstore: one request per call, errors told apart.

obstore's own retries are off: it would repeat a create-only put whose first try landed and report the
repeat's refusal. Retries belong to objectstore.retry, which knows what each error means.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING

import obstore
from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    PermissionDeniedError,
    PreconditionError,
    UnauthenticatedError,
)
from obstore.store import GCSStore

from objectstore.naming import check_key
from objectstore.odd_keys import REMEDY, OddKeys
from objectstore.ranges import coalesce
from objectstore.store import (
    PLAIN,
    Ambiguous,
    Buffer,
    ClockSkewed,
    Create,
    Denied,
    NoBucket,
    NotFound,
    ObjectMeta,
    Precondition,
    PutMode,
    Replace,
    Retryable,
    StoreError,
)

if TYPE_CHECKING:
    from obstore import ObjectMeta as Found
    from obstore import PutMode as ObstorePutMode
    from obstore import PutResult
    from obstore.store import AzureStore, S3Store

PAGE_OBJECTS = 1000
DELETE_KEYS_MAX = 1000  # of one request; S3's limit
COALESCE_BYTES = 256 * 1024  # ranges nearer than this are read by one request …
SPAN_BYTES_MAX = 16 * 1024 * 1024  # … of at most this size
_STATUS = re.compile(r"status code: (\d{3})")
# obstore's first line ends with "error sending request"; why, stands in the dump of its sources behind it.
_SOURCE = "source: reqwest::Error"
_CAUSE = re.compile(r'\b(?:message|error): "([^"\n]+)"')
_CAUSE_NAME = re.compile(r"(\w+)[\s,)}\]]*$")
_CODE = re.compile(r"<Code>(\w+)</Code>")
_SKEWED = ("RequestTimeTooSkewed", "RequestInTheFuture")
_SKEWED_TEXTS = ("Request date header too old",)  # Azure, under AuthenticationFailed
_NO_OBJECT = (None, "NoSuchKey", "BlobNotFound", "NotFound")
_ENDED = frozenset({"ExpiredToken", "TokenRefreshRequired", "InvalidTokenId", "InvalidToken"})
# Where obstore had no keys to sign with: instance metadata, a token service, a container's endpoint.
_NO_KEYS = re.compile(
    r"/latest/api/token|/latest/meta-data/iam/|POST REDACTED|AssumeRoleWithWebIdentity|token file '"
    r"|http://169\.254\.170\.\d+|External AWS credential provider"
)
_CONTAINER_KEYS = "AWS_CONTAINER_CREDENTIALS_FULL_URI"
_ODD = "Encountered object with invalid path"  # one refuses the whole listing (odd_keys.py)
# Of many that were to be deleted, S3's answer for one that was not.
_STAYS = re.compile(r"DeleteObjects request failed for key .*\(code: (\w+)\)")
_SERVERS_OWN = frozenset({"InternalError", "SlowDown", "ServiceUnavailable", "OperationAborted"})
_CLIENT_ERRORS_RETRYABLE = frozenset({408, 409, 416, 425, 429})


class CloudStore:
    """An ObjectStore over a bucket and prefix; `store` carries credentials, endpoint and time-outs."""

    def __init__(self, store: S3Store | GCSStore | AzureStore, odd: OddKeys | None = None) -> None:
        """`odd`: lists where obstore cannot, for what somebody else has put there."""
        self._store = store
        self._odd = odd
        self._versions = isinstance(store, GCSStore)  # Google compares generations, not etags

    async def put(self, key: str, parts: Sequence[Buffer], mode: PutMode = PLAIN) -> str:
        """See ObjectStore."""
        check_key(key)
        try:
            result = await obstore.put_async(
                self._store, key, list(parts) or b"", mode=self._mode(mode), use_multipart=False
            )
        except (BaseError, OSError) as error:
            raise translate(key, error, wrote=True) from error
        return self._etag(result)

    async def get(self, key: str) -> bytes:
        """See ObjectStore."""
        check_key(key)
        try:
            found = await obstore.get_async(self._store, key)
            return (await found.bytes_async()).to_bytes()
        except (BaseError, OSError) as error:
            raise translate(key, error, wrote=False) from error

    async def get_range(self, key: str, start: int, length: int) -> bytes:
        """See ObjectStore."""
        return (await self._get_range(key, start, length)).to_bytes()

    async def get_ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """See ObjectStore. (obstore's own get_ranges panics where the object is too short.)"""
        spans = coalesce(ranges, COALESCE_BYTES, SPAN_BYTES_MAX)
        found = await asyncio.gather(*(self._get_range(key, span.start, span.length) for span in spans))
        parts = [b""] * len(ranges)
        for span, data in zip(spans, found, strict=True):
            with memoryview(data) as view:
                for member in span.members:
                    start, length = ranges[member]
                    parts[member] = bytes(view[start - span.start : start - span.start + length])
        return parts

    async def _get_range(self, key: str, start: int, length: int) -> obstore.Bytes:
        check_key(key)
        if length == 0:  # HTTP knows no empty range
            return obstore.Bytes()
        try:
            found = await obstore.get_range_async(self._store, key, start=start, length=length)
        except (BaseError, OSError) as error:
            raise translate(key, error, wrote=False) from error
        if len(found) != length:
            raise Retryable(f"{key}: {len(found)} of {length} bytes from byte {start}")
        return found

    async def head(self, key: str) -> ObjectMeta:
        """See ObjectStore."""
        check_key(key)
        try:
            return self._meta(await obstore.head_async(self._store, key))
        except (BaseError, OSError) as error:
            raise translate(key, error, wrote=False) from error

    async def list(self, prefix: str, start_after: str = "") -> AsyncIterator[Sequence[ObjectMeta]]:
        """See ObjectStore. obstore's prefixes end at slashes, so the last segment is filtered here."""
        folder = prefix[: prefix.rfind("/") + 1]
        offset = max(start_after, prefix[:-1] if prefix != folder else "")
        pages = obstore.list(self._store, folder or None, offset=offset or None, chunk_size=PAGE_OBJECTS)
        try:
            async for found in pages:
                start_after = max(start_after, found[-1]["path"]) if found else start_after
                page = [self._meta(each) for each in found if each["path"].startswith(prefix)]
                if page:
                    yield page
                elif found and found[-1]["path"] > prefix:
                    return
            return
        except (BaseError, OSError) as error:
            if self._odd is None or _ODD not in str(error):
                raise translate(prefix, error, wrote=False) from error
        async for even in self._odd.list(prefix, start_after):
            yield even

    async def list_folders(self, prefix: str) -> Sequence[str]:
        """See ObjectStore."""
        try:
            found = await obstore.list_with_delimiter_async(self._store, prefix or None)
        except (BaseError, OSError) as error:
            if self._odd is None or _ODD not in str(error):
                raise translate(prefix, error, wrote=False) from error
            return await self._odd.list_folders(prefix)
        return sorted(each.rstrip("/").rpartition("/")[2] for each in found["common_prefixes"])

    async def delete(self, keys: Sequence[str]) -> None:
        """See ObjectStore."""
        for key in keys:
            check_key(key)
        for start in range(0, len(keys), DELETE_KEYS_MAX):
            await self._delete(keys[start : start + DELETE_KEYS_MAX])

    async def _delete(self, keys: Sequence[str]) -> None:
        try:
            await obstore.delete_async(self._store, keys)
        except (BaseError, OSError) as error:
            told = translate(keys[0], error, wrote=True)
            if not isinstance(error, FileNotFoundError) or isinstance(told, Denied):
                raise told from error
            for key in keys if len(keys) > 1 else ():  # a store without batches stops at the first missing
                await self._delete([key])

    async def close(self) -> None:
        """See ObjectStore. obstore closes its connections when the last reference goes."""
        await asyncio.sleep(0)

    def _mode(self, mode: PutMode) -> ObstorePutMode:
        if isinstance(mode, Create):
            return "create"
        if isinstance(mode, Replace):
            return {"version": mode.etag} if self._versions else {"e_tag": mode.etag}
        return "overwrite"

    def _etag(self, found: Found | PutResult) -> str:
        return (found["version"] if self._versions else found["e_tag"]) or ""

    def _meta(self, found: Found) -> ObjectMeta:
        modified_ms = int(found["last_modified"].timestamp() * 1000)
        return ObjectMeta(found["path"], found["size"], self._etag(found), modified_ms)


def translate(what: str, error: Exception, *, wrote: bool) -> StoreError:
    """What an error of obstore means to the caller; `wrote` when the request was a change.

    A change is `Retryable` only where it surely had no effect: the connection was not made, or the
    server refused (4xx). A server's 5xx or a lost answer may follow the effect.
    """
    text = str(error)
    status = _found(_STATUS, text)
    code = _found(_CODE, text)
    if code in _SKEWED or any(sign in text for sign in _SKEWED_TEXTS):
        return ClockSkewed(
            f"{what}: {code}: this machine's clock and the store's are apart: synchronise it (NTP)"
        )
    told = f"{what}: {_first_line(text)}{_cause(text)}" + (f" ({code})" if code else "")
    if _ODD in text:
        return Denied(f"{told}: {REMEDY}")
    stays = _found(_STAYS, text)
    if stays is not None and stays not in _SERVERS_OWN:
        return Denied(told)
    if _has_no_keys(text):
        return _no_keys(told, status)
    if code in _ENDED:
        return Denied(f"{told}: the store's keys have ended, or were revoked: give it new ones")
    if status == "409":
        return Retryable(told)  # S3: a conflicting conditional request is under way
    conditional = isinstance(error, AlreadyExistsError | PreconditionError)
    if isinstance(error, FileNotFoundError) or status == "404":
        # Replacing what is not there is a failed precondition; a missing bucket is not.
        return Precondition(told) if conditional and code in _NO_OBJECT else _absent(told, code, wrote=wrote)
    if conditional or status == "412":
        return Precondition(told)
    if isinstance(error, PermissionDeniedError | UnauthenticatedError | PermissionError):
        return Denied(f"{told}: check the store's credentials and permissions")
    if status is not None and status.startswith("4"):
        return Retryable(told) if int(status) in _CLIENT_ERRORS_RETRYABLE else Denied(told)
    if not wrote or "kind: Connect" in text:
        return Retryable(told)
    return Ambiguous(told)


def _has_no_keys(text: str) -> bool:
    container = os.environ.get(_CONTAINER_KEYS)
    return bool(_NO_KEYS.search(text)) or bool(container and f" {container} in " in text)


def _no_keys(told: str, status: str | None) -> StoreError:
    """Nothing was sent to the store, whatever it was to be."""
    hint = "; AWS_ENDPOINT_URL_STS must begin with https://" if "BadScheme" in told else ""
    kind = Denied if status is not None and status[0] == "4" and status != "429" else Retryable
    return kind(f"{told}: the store's keys cannot be had (docs/operations.md, The bucket's keys){hint}")


def _absent(told: str, code: str | None, *, wrote: bool) -> StoreError:
    """404 has several meanings. Only a missing object is NotFound."""
    if code == "NoSuchBucket" or (wrote and code is None):
        return NoBucket(f"{told}: the bucket does not exist; `floe bucket prepare` makes it")
    if code not in _NO_OBJECT:
        return Denied(f"{told}: check the store's credentials")
    return NotFound(told)


def _found(pattern: re.Pattern[str], text: str) -> str | None:
    match = pattern.search(text)
    return match[1] if match else None


def _cause(text: str) -> str:
    """Why a request could not be sent or had no answer; where the operating system knows it, in its words."""
    source = text.partition(_SOURCE)[2]
    found = _found(_CAUSE, source) or _found(_CAUSE_NAME, source)
    return f": {found}" if found else ""


def _first_line(text: str) -> str:
    return text.partition("\n")[0].partition(": <?xml")[0]
