"""One watch stream, fed response by response: fragments, progress, compaction, cancellation."""

from __future__ import annotations

import asyncio
from collections import deque

import grpc
import pytest

from coordination.etcd.errors import EtcdError, WatchCompacted, from_grpc
from coordination.etcd.proto import kv_pb2
from coordination.etcd.proto import rpc_pb2 as pb
from coordination.etcd.watch import WatchStream


class Script:
    """Plays responses as a grpc.aio call does, then says nothing."""

    def __init__(self, *responses: object) -> None:
        self.responses = deque(responses)
        self.written: list[pb.WatchRequest] = []
        self.cancelled = False

    async def write(self, request: pb.WatchRequest) -> None:
        self.written.append(request)

    async def read(self) -> object:
        if self.responses:
            return self.responses.popleft()
        return await asyncio.Event().wait()

    def cancel(self) -> bool:
        self.cancelled = True
        return True


def events(*revisions: int, fragment: bool = False) -> pb.WatchResponse:
    found = [kv_pb2.Event(kv=kv_pb2.KeyValue(key=b"k", mod_revision=revision)) for revision in revisions]
    header = pb.ResponseHeader(revision=99)
    return pb.WatchResponse(header=header, events=found, fragment=fragment)


def progress(revision: int) -> pb.WatchResponse:
    return pb.WatchResponse(header=pb.ResponseHeader(revision=revision), watch_id=-1)


async def read(*responses: object) -> list[tuple[list[int], int]]:
    stream = WatchStream(Script(*responses), "test")
    batches = []
    try:
        while True:
            async with asyncio.timeout(0.01):
                batch = await stream.next()
            batches.append(([event.kv.mod_revision for event in batch.events], batch.through))
    except TimeoutError:
        return batches


async def test_events_reach_as_far_as_the_newest_of_them_not_as_the_header() -> None:
    assert await read(events(3, 5)) == [([3, 5], 5)]


async def test_progress_is_the_header_s_revision() -> None:
    assert await read(progress(7)) == [([], 7)]


async def test_the_newest_revision_of_a_fragment_waits_for_the_next_one() -> None:
    parts = (events(3, 4, 4, fragment=True), events(4, fragment=True), events(4, 5))
    assert await read(*parts) == [([3], 3), ([4, 4, 4, 4, 5], 5)]


async def test_progress_is_not_believed_in_the_middle_of_fragments() -> None:
    assert await read(events(3, fragment=True), progress(9), events(4)) == [([3, 4], 4)]


async def test_a_compacted_watch_says_through_which_revision() -> None:
    with pytest.raises(WatchCompacted) as compacted:
        await read(pb.WatchResponse(canceled=True, compact_revision=12))
    assert compacted.value.revision == 12


async def test_a_cancelled_watch_gives_the_reason() -> None:
    with pytest.raises(EtcdError, match="permission denied"):
        await read(pb.WatchResponse(canceled=True, cancel_reason="permission denied"))


async def test_the_end_of_the_stream_is_an_error() -> None:
    with pytest.raises(EtcdError, match="ended"):
        await read(grpc.aio.EOF)


async def test_opening_waits_for_the_word_created_and_gives_up_in_time() -> None:
    script = Script(pb.WatchResponse(created=True))
    await WatchStream(script, "test").open(pb.WatchCreateRequest(key=b"k"), timeout_s=0.01)
    assert script.written[0].create_request.key == b"k"
    silent = Script()
    with pytest.raises(EtcdError, match="no answer"):
        await WatchStream(silent, "test").open(pb.WatchCreateRequest(key=b"k"), timeout_s=0.01)
    assert silent.cancelled


CODE = grpc.StatusCode


@pytest.mark.parametrize(
    ("code", "details", "ambiguous"),
    [
        (CODE.UNAVAILABLE, "failed to connect to all addresses; last error: refused", False),
        (CODE.UNAVAILABLE, "Socket closed", True),
        (CODE.UNAVAILABLE, "etcdserver: request timed out", True),
        (CODE.DEADLINE_EXCEEDED, "Deadline Exceeded", True),
        (CODE.UNAVAILABLE, "etcdserver: leader changed", True),
        (CODE.INVALID_ARGUMENT, "etcdserver: request is too large", False),
        (CODE.RESOURCE_EXHAUSTED, "etcdserver: mvcc: database space exceeded", False),
        (CODE.RESOURCE_EXHAUSTED, "CLIENT: Received message larger than max", True),
        (CODE.PERMISSION_DENIED, "etcdserver: permission denied", False),
        (CODE.UNAUTHENTICATED, "etcdserver: invalid auth token", False),
        (CODE.CANCELLED, "", True),
        (CODE.INTERNAL, "stream reset", True),
    ],
)
def test_an_error_says_whether_the_call_may_have_taken_effect(
    code: grpc.StatusCode, details: str, ambiguous: bool
) -> None:
    empty = grpc.aio.Metadata()
    failure = from_grpc(grpc.aio.AioRpcError(code, empty, empty, details=details), "host:1")
    assert failure.ambiguous is ambiguous
    assert "host:1" in str(failure)
