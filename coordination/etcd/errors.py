"""What a failed call to etcd says about its effect."""

from __future__ import annotations

import asyncio

import grpc

_Code = grpc.StatusCode

# etcd answers these before or instead of proposing: nothing was written.
_REFUSALS = frozenset(
    {
        _Code.INVALID_ARGUMENT,
        _Code.NOT_FOUND,
        _Code.ALREADY_EXISTS,
        _Code.FAILED_PRECONDITION,
        _Code.PERMISSION_DENIED,
        _Code.UNAUTHENTICATED,
        _Code.OUT_OF_RANGE,
        _Code.UNIMPLEMENTED,
    }
)
# The texts of api/v3rpc/rpctypes/error.go and of gRPC core that say the same under other codes.
_REFUSED_TEXTS = (
    "etcdserver: too many requests",
    "etcdserver: mvcc: database space exceeded",
    "failed to connect to all addresses",
    "connections to all backends failing",
    "name resolution",
    "dns resolution",
)
NO_SPACE_TEXT = "database space exceeded"
_TOO_LARGE_TEXT = "larger than max"
_STALE_TOKEN_TEXTS = ("invalid auth token", "user name is empty", "revision of auth store is old")


class EtcdError(Exception):
    """A call that failed. `ambiguous`: it may have taken effect, or may still; otherwise it did not."""

    def __init__(self, message: str, *, code: grpc.StatusCode, ambiguous: bool) -> None:
        super().__init__(message)
        self.code = code
        self.ambiguous = ambiguous

    @property
    def stale_token(self) -> bool:
        """Whether a new token would help."""
        return any(text in str(self) for text in _STALE_TOKEN_TEXTS)

    @property
    def full(self) -> bool:
        """Whether etcd takes no writes any more: its quota is used up, and the alarm NOSPACE is on."""
        return NO_SPACE_TEXT in str(self)

    @property
    def too_large(self) -> bool:
        """Whether the answer was larger than this client takes: ask for less."""
        return _TOO_LARGE_TEXT in str(self)

    @property
    def other_endpoint(self) -> bool:
        """Whether another member may do better."""
        return self.code not in _REFUSALS and not self.too_large

    @property
    def retryable(self) -> bool:
        """Whether the same call may succeed later without anybody changing the configuration."""
        return self.stale_token or (self.code not in _REFUSALS and not self.too_large)


class WatchCompacted(Exception):
    """The watch asked for revisions that etcd has compacted, through `revision`."""

    def __init__(self, revision: int) -> None:
        super().__init__(f"etcd is compacted through revision {revision}")
        self.revision = revision


def from_grpc(error: grpc.aio.AioRpcError, address: str) -> EtcdError:
    """Says what gRPC's error means for the call."""
    code, details = error.code(), error.details() or ""
    lowered = details.lower()
    definite = code in _REFUSALS or any(text in lowered for text in _REFUSED_TEXTS)
    return EtcdError(f"etcd at {address}: {code.name}: {details}", code=code, ambiguous=not definite)


def being_cancelled() -> bool:
    """Whether a CancelledError is meant for this task; gRPC also raises it when a channel is closed."""
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0
