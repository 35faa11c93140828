"""One watch stream of etcd: events by revision, whole revisions only, and progress."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

import grpc

from coordination.etcd.errors import EtcdError, WatchCompacted, being_cancelled, from_grpc
from coordination.etcd.proto import kv_pb2
from coordination.etcd.proto import rpc_pb2 as pb


class WatchCall(Protocol):
    """The part of grpc.aio's stream-stream call that is used."""

    async def write(self, request: pb.WatchRequest) -> None: ...
    async def read(self) -> object: ...
    def cancel(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class WatchBatch:
    """Events in order of revision; the watch has delivered everything at or below `through`."""

    events: Sequence[kv_pb2.Event]
    through: int


class WatchStream:
    """A created watch. `next` and `request_progress` may run side by side; end it with `close`."""

    def __init__(self, call: WatchCall, address: str) -> None:
        self._call = call
        self._address = address
        self._held: list[kv_pb2.Event] = []

    async def open(self, create: pb.WatchCreateRequest, timeout_s: float) -> None:
        """Ask for the watch and wait for etcd's word. Raises EtcdError, WatchCompacted."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._write(pb.WatchRequest(create_request=create))
                while not (await self._read()).created:
                    pass
        except TimeoutError:
            self.close()
            raise EtcdError(
                f"etcd at {self._address}: no answer to a watch within {timeout_s} s",
                code=grpc.StatusCode.DEADLINE_EXCEEDED,
                ambiguous=False,
            ) from None
        except BaseException:
            self.close()
            raise

    async def next(self) -> WatchBatch:
        """The next events or progress. Raises EtcdError when the watch ended, WatchCompacted."""
        while True:
            batch = self._accept(await self._read())
            if batch is not None:
                return batch

    async def request_progress(self) -> None:
        """Ask how far the watch is; etcd keeps quiet while the watch is catching up."""
        with suppress(EtcdError):  # next() tells
            await self._write(pb.WatchRequest(progress_request=pb.WatchProgressRequest()))

    def close(self) -> None:
        """End the stream."""
        self._call.cancel()

    def _accept(self, response: pb.WatchResponse) -> WatchBatch | None:
        """A fragment ends anywhere, so the newest revision of one is held back until the next response."""
        if not response.events:
            if response.created or self._held or response.fragment:
                return None
            return WatchBatch((), response.header.revision)
        events = [*self._held, *response.events]
        newest = events[-1].kv.mod_revision
        if not response.fragment:
            self._held = []
            return WatchBatch(events, newest)
        self._held = [event for event in events if event.kv.mod_revision == newest]
        whole = events[: len(events) - len(self._held)]
        return WatchBatch(whole, whole[-1].kv.mod_revision) if whole else None

    async def _read(self) -> pb.WatchResponse:
        try:
            response = await self._call.read()
        except asyncio.CancelledError:
            if being_cancelled():
                raise
            raise self._ended("the connection was closed") from None
        except grpc.aio.AioRpcError as error:
            raise from_grpc(error, self._address) from None
        except asyncio.InvalidStateError as error:
            raise self._ended(str(error)) from error
        if not isinstance(response, pb.WatchResponse):
            raise self._ended("the stream ended")
        if response.compact_revision:
            raise WatchCompacted(response.compact_revision)
        if response.canceled:
            raise self._ended(f"the watch was cancelled: {response.cancel_reason}")
        return response

    async def _write(self, request: pb.WatchRequest) -> None:
        try:
            await self._call.write(request)
        except grpc.aio.AioRpcError as error:
            raise from_grpc(error, self._address) from None
        except asyncio.InvalidStateError as error:
            raise self._ended(str(error)) from error

    def _ended(self, why: str) -> EtcdError:
        return EtcdError(f"etcd at {self._address}: {why}", code=grpc.StatusCode.CANCELLED, ambiguous=False)
