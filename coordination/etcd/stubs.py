"""etcd's calls over one channel, typed: what grpc generates as stubs, without servers that nobody runs."""

from __future__ import annotations

from typing import TypeVar

import grpc
from google.protobuf.message import Message

from coordination.etcd.proto import rpc_pb2 as pb

_Q = TypeVar("_Q", bound=Message)
_A = TypeVar("_A", bound=Message)


class KV:
    """Keys and values."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.Range = unary(channel, "KV/Range", pb.RangeRequest, pb.RangeResponse)
        self.Put = unary(channel, "KV/Put", pb.PutRequest, pb.PutResponse)
        self.DeleteRange = unary(channel, "KV/DeleteRange", pb.DeleteRangeRequest, pb.DeleteRangeResponse)
        self.Txn = unary(channel, "KV/Txn", pb.TxnRequest, pb.TxnResponse)
        self.Compact = unary(channel, "KV/Compact", pb.CompactionRequest, pb.CompactionResponse)


class Watch:
    """Changes as they come."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.Watch = _stream(channel, "Watch/Watch", pb.WatchRequest, pb.WatchResponse)


class Lease:
    """Keys that end with their owner."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.LeaseGrant = unary(channel, "Lease/LeaseGrant", pb.LeaseGrantRequest, pb.LeaseGrantResponse)
        self.LeaseRevoke = unary(channel, "Lease/LeaseRevoke", pb.LeaseRevokeRequest, pb.LeaseRevokeResponse)
        self.LeaseKeepAlive = _stream(
            channel, "Lease/LeaseKeepAlive", pb.LeaseKeepAliveRequest, pb.LeaseKeepAliveResponse
        )


class Maintenance:
    """One member's own state."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.Status = unary(channel, "Maintenance/Status", pb.StatusRequest, pb.StatusResponse)


class Auth:
    """Signing in."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.Authenticate = unary(
            channel, "Auth/Authenticate", pb.AuthenticateRequest, pb.AuthenticateResponse
        )


def unary(
    channel: grpc.aio.Channel, call: str, request: type[_Q], answer: type[_A]
) -> grpc.aio.UnaryUnaryMultiCallable[_Q, _A]:
    """A call of one request and one answer, named `service/method`."""
    return channel.unary_unary(
        f"/etcdserverpb.{call}",
        request_serializer=request.SerializeToString,
        response_deserializer=answer.FromString,
    )


def _stream(
    channel: grpc.aio.Channel, call: str, request: type[_Q], answer: type[_A]
) -> grpc.aio.StreamStreamMultiCallable[_Q, _A]:
    return channel.stream_stream(
        f"/etcdserverpb.{call}",
        request_serializer=request.SerializeToString,
        response_deserializer=answer.FromString,
    )
