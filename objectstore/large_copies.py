"""Objects larger than one CopyObject takes, copied by the store part by part (UploadPartCopy).

obstore has no such request, so these few are asked for with boto3, in threads. The object is there whole when
its upload is completed, or not at all; parts that a death left behind are given up by the next try.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from objectstore.copying import Refused
from objectstore.credentials import Keys
from objectstore.open import StoreOptions
from objectstore.store import Ambiguous, NotFound, Retryable, StoreError

if TYPE_CHECKING:
    from mypy_boto3_s3.client import S3Client

PARTS_AT_ONCE = 4
PARTS_MAX = 10_000  # of one object, S3's limit
PART_BYTES = 1 << 30  # at most 5 GiB, S3's limit
_GONE = ("NoSuchKey", "404")
_AGAIN = ("SlowDown", "RequestTimeout", "InternalError", "ServiceUnavailable", "Throttling", "NoSuchUpload")


class PartCopies:
    """Of one pair of buckets, with the target's keys."""

    part_bytes = PART_BYTES

    def __init__(
        self, source: str, target: str, options: StoreOptions, keys: Callable[[], Keys | None]
    ) -> None:
        """`source`, `target`: names of buckets."""
        self._source, self._target, self._options, self._keys = source, target, options, keys

    async def copy(self, source: str, target: str, size: int) -> None:
        """Copy the key `source` to the key `target`. Raises NotFound, Refused, StoreError."""
        over = threading.Event()
        try:
            await asyncio.to_thread(self._copied, source, target, size, over)
        finally:
            over.set()  # whoever was cancelled leaves the thread with the part that it is at

    def _copied(self, source: str, target: str, size: int, over: threading.Event) -> None:
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            client = self._client()
            self._give_up_older(client, target)
            upload = client.create_multipart_upload(Bucket=self._target, Key=target)["UploadId"]
            try:
                self._in_parts(client, source, target, size, upload, over)
            except BaseException:
                with suppress(BotoCoreError, ClientError):
                    client.abort_multipart_upload(Bucket=self._target, Key=target, UploadId=upload)
                raise
        except ClientError as error:
            raise _told(f"{source} copied to {target} in parts", error.response.get("Error", {})) from error
        except (BotoCoreError, OSError, ValueError) as error:
            raise Ambiguous(f"{source} copied to {target} in parts: {error}") from error

    def _in_parts(
        self, client: S3Client, source: str, target: str, size: int, upload: str, over: threading.Event
    ) -> None:
        length = max(self.part_bytes, -(-size // PARTS_MAX))

        def part(number: int) -> Any:
            if over.is_set():
                raise Retryable(f"{target}: given up")
            first = number * length
            answer = client.upload_part_copy(
                Bucket=self._target,
                Key=target,
                UploadId=upload,
                PartNumber=number + 1,
                CopySource={"Bucket": self._source, "Key": source},
                CopySourceRange=f"bytes={first}-{min(first + length, size) - 1}",
            )
            return {"ETag": answer["CopyPartResult"]["ETag"], "PartNumber": number + 1}

        with ThreadPoolExecutor(PARTS_AT_ONCE, "large-copy") as pool:
            parts = list(pool.map(part, range(-(-size // length))))
        client.complete_multipart_upload(
            Bucket=self._target, Key=target, UploadId=upload, MultipartUpload={"Parts": parts}
        )

    def _give_up_older(self, client: S3Client, target: str) -> None:
        """Uploads of this key that a dead process left: only one copies. Who may not list leaves them."""
        from botocore.exceptions import ClientError

        with suppress(ClientError):
            found = client.list_multipart_uploads(Bucket=self._target, Prefix=target)
            for each in found.get("Uploads", ()):
                if each["Key"] == target:
                    client.abort_multipart_upload(Bucket=self._target, Key=target, UploadId=each["UploadId"])

    def _client(self) -> S3Client:
        """With the keys as they are now."""
        from objectstore.s3_client import s3_client

        return s3_client(self._options, self._keys())


def _told(what: str, error: Any) -> StoreError:
    code, told = error.get("Code", ""), f"{what}: {error.get('Code', '')}: {error.get('Message', '')}"
    if code in _GONE:
        return NotFound(told)
    return Retryable(told) if code in _AGAIN else Refused(told)
