"""A thin typed client of etcd's API over grpc.aio: endpoints, TLS, tokens, deadlines, retries.

Reads and idempotent writes are retried within a bound; a transaction that decides something
(`txn_once`) is tried exactly once and its failure says whether it may have taken effect.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypeVar

import grpc

from coordination.backoff import Backoff
from coordination.clock import Clock
from coordination.etcd.errors import EtcdError, being_cancelled, from_grpc
from coordination.etcd.proto import rpc_pb2 as pb
from coordination.etcd.stubs import KV, Auth, Lease, Maintenance, Watch
from coordination.etcd.watch import WatchStream
from objectstore import tasks
from objectstore.credentials import text_of

_T = TypeVar("_T")
_DEADLINE = grpc.StatusCode.DEADLINE_EXCEEDED
# So many timeouts in a row and the connection is taken for dead: gRPC's own keepalive does not see one
# that takes bytes and returns none. What is still running on it has this long to end.
TIMEOUTS_MAX = 2
CLOSE_GRACE_S = 10.0
RECEIVE_BYTES_MAX = 64 << 20
SHUNNED_S = 600.0
"""A member that has another log than the others is left alone for so long, while there are others."""
# A name is looked up again this soon: an etcd whose pod comes back has another address (gRPC's own: 30 s).
LOOKUP_MS_MIN = 1_000
_CHANNEL_OPTIONS: list[tuple[str, int]] = [
    ("grpc.enable_http_proxy", 0),
    ("grpc.max_receive_message_length", RECEIVE_BYTES_MAX),
    # etcd closes connections that ping more often than every 5 s, or without a call under way; pings that a
    # paused etcd reads all at once count too, so there must not be several in one keepalive_timeout.
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 3_000),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    ("grpc.dns_min_time_between_resolutions_ms", LOOKUP_MS_MIN),
    ("grpc.use_local_subchannel_pool", 1),
]


@dataclass(frozen=True, slots=True)
class Tls:
    """Paths of PEM files: the authority that signed the servers, and the client's own pair (or none)."""

    ca: str
    cert: str | None = None
    key: str | None = None

    def read(self) -> Pem:
        """The files' contents, which fit each other. Raises OSError (ssl.SSLError is one), ValueError."""
        if (self.cert is None) != (self.key is None):
            raise ValueError("etcd TLS: cert and key go together; give both or neither")
        # gRPC takes whatever it is given and fails at each handshake: Python says what is wrong at once.
        checked = ssl.create_default_context(cafile=self.ca)
        if self.cert is not None:
            checked.load_cert_chain(self.cert, self.key)
        pair = [None if path is None else Path(path).read_bytes() for path in (self.key, self.cert)]
        return Pem(Path(self.ca).read_bytes(), pair[0], pair[1])


class Pem(NamedTuple):
    """Contents of these files: authority, key, certificate."""

    ca: bytes
    key: bytes | None
    cert: bytes | None

    def credentials(self) -> grpc.ChannelCredentials:
        """As gRPC takes them."""
        return grpc.ssl_channel_credentials(*self)


class Endpoint:
    """One member: its channel and stubs."""

    def __init__(self, address: str, credentials: grpc.ChannelCredentials | None) -> None:
        self.address = address
        if credentials is None:
            self.channel = grpc.aio.insecure_channel(address, options=_CHANNEL_OPTIONS)
        else:
            self.channel = grpc.aio.secure_channel(address, credentials, options=_CHANNEL_OPTIONS)
        self.kv = KV(self.channel)
        self.watch = Watch(self.channel)
        self.lease = Lease(self.channel)
        self.maintenance = Maintenance(self.channel)
        self.auth = Auth(self.channel)
        self.timeouts = 0  # in a row


class EtcdClient:
    """A client of one etcd cluster. Create it and use it in one event loop."""

    def __init__(
        self,
        endpoints: Sequence[str],
        clock: Clock,
        *,
        tls: Tls | None = None,
        user: str | None = None,
        password: str = "",
        password_file: str = "",
        attempt_timeout_s: float = 2.0,
        call_timeout_s: float = 5.0,
    ) -> None:
        """`endpoints` are host:port. `attempt_timeout_s` bounds one try, `call_timeout_s` all of a call.

        `password_file`, where it is given, holds the password, and is read at each signing in.
        """
        if not endpoints or not all(endpoints):
            raise ValueError("etcd: at least one endpoint host:port is needed, and none may be empty")
        self._addresses = list(endpoints)
        self._tls = tls
        self._pem = None if tls is None else tls.read()
        self._endpoints: dict[str, Endpoint] = {}
        self._at = 0
        self._shunned: dict[str, float] = {}  # addresses, and until when by the loop's time
        self._user = user
        self._password = password
        self._password_file = password_file
        self._token: str | None = None
        self._signing_in = asyncio.Lock()
        self._closing: set[asyncio.Task[None]] = set()
        self._backoff = Backoff(clock, max_s=0.5)
        self._attempt_timeout_s = attempt_timeout_s
        self._call_timeout_s = call_timeout_s

    async def range(self, request: pb.RangeRequest) -> pb.RangeResponse:
        """Linearizable unless the request says otherwise. Raises EtcdError."""
        return await self._retried(lambda to, t, m: to.kv.Range(request, timeout=t, metadata=m))

    async def txn(self, request: pb.TxnRequest) -> pb.TxnResponse:
        """A transaction that may be repeated without harm. Raises EtcdError."""
        return await self._retried(lambda to, t, m: to.kv.Txn(request, timeout=t, metadata=m))

    async def txn_once(self, request: pb.TxnRequest) -> pb.TxnResponse:
        """One attempt of a transaction. Raises EtcdError."""
        return await self._once(
            lambda to, t, m: to.kv.Txn(request, timeout=t, metadata=m), self._attempt_timeout_s
        )

    async def txn_at(self, address: str, request: pb.TxnRequest) -> pb.TxnResponse:
        """One attempt of a transaction that only reads, by this member. Raises EtcdError."""
        endpoint = self._endpoint(address)
        return await self._call(
            endpoint, lambda to, t, m: to.kv.Txn(request, timeout=t, metadata=m), self._attempt_timeout_s
        )

    async def delete_range(self, request: pb.DeleteRangeRequest) -> pb.DeleteRangeResponse:
        """Delete keys; idempotent. Raises EtcdError."""
        return await self._retried(lambda to, t, m: to.kv.DeleteRange(request, timeout=t, metadata=m))

    async def put(self, request: pb.PutRequest) -> pb.PutResponse:
        """Put a key; the last of several tries wins. Raises EtcdError."""
        return await self._retried(lambda to, t, m: to.kv.Put(request, timeout=t, metadata=m))

    async def compact(self, revision: int) -> None:
        """Drop history through `revision`; done already is done. Raises EtcdError."""
        request = pb.CompactionRequest(revision=revision)
        try:
            await self._retried(lambda to, t, m: to.kv.Compact(request, timeout=t, metadata=m))
        except EtcdError as error:
            if "has been compacted" not in str(error):
                raise

    async def lease_grant(self, lease: int, ttl_s: int) -> None:
        """Make a lease under an id of the caller's choice: a repeated call is one. Raises EtcdError."""
        request = pb.LeaseGrantRequest(ID=lease, TTL=ttl_s)
        try:
            await self._retried(lambda to, t, m: to.lease.LeaseGrant(request, timeout=t, metadata=m))
        except EtcdError as error:
            if "lease already exists" not in str(error):
                raise

    async def lease_revoke(self, lease: int) -> None:
        """End a lease and delete its keys; gone already is done. Raises EtcdError."""
        request = pb.LeaseRevokeRequest(ID=lease)
        try:
            await self._retried(lambda to, t, m: to.lease.LeaseRevoke(request, timeout=t, metadata=m))
        except EtcdError as error:
            if error.code is not grpc.StatusCode.NOT_FOUND:
                raise

    async def lease_keep_alive(self, lease: int) -> int:
        """Renew a lease; its time to live in seconds, 0 when it is gone. Raises EtcdError."""
        return await self._retried(lambda to, t, m: _keep_alive(to, t, m, lease))

    async def status(self) -> pb.StatusResponse:
        """One member's version, size and leader. Raises EtcdError."""
        return await self._retried(
            lambda to, t, m: to.maintenance.Status(pb.StatusRequest(), timeout=t, metadata=m)
        )

    async def watch(self, create: pb.WatchCreateRequest) -> WatchStream:
        """Open a watch; returns when etcd has created it. Raises EtcdError, WatchCompacted."""
        endpoint = self._endpoint()
        # With "hasleader" a member that lost its leader ends the watch instead of going silent.
        with self._told(endpoint):
            metadata = (*await self._metadata(endpoint), ("hasleader", "true"))
            stream = WatchStream(endpoint.watch.Watch(None, metadata=metadata), endpoint.address)
        try:
            await stream.open(create, self._attempt_timeout_s)
        except EtcdError as error:
            self._learn(endpoint, error)
            raise
        return stream

    async def renew(self) -> bool:
        """See coordination.log.Renewing. What is under way has CLOSE_GRACE_S to end; watches open anew."""
        if self._tls is None:
            return False
        read = await asyncio.to_thread(self._tls.read)
        if read == self._pem:
            return False
        self._pem = read
        for endpoint in list(self._endpoints.values()):
            self._abandon(endpoint)
        return True

    async def close(self) -> None:
        """Close all channels."""
        for task in self._closing:
            task.cancel()
        await asyncio.gather(*self._closing, return_exceptions=True)
        for endpoint in self._endpoints.values():
            await endpoint.channel.close(None)
        self._endpoints.clear()

    @property
    def addresses(self) -> Sequence[str]:
        """Of all members, each once."""
        return list(dict.fromkeys(self._addresses))

    def turn_from(self, addresses: Collection[str]) -> None:
        """Use none of these for SHUNNED_S while there are others; without any, use another one than now."""
        until = asyncio.get_running_loop().time() + SHUNNED_S
        self._shunned |= dict.fromkeys(addresses, until)
        if not addresses or self._addresses[self._at] in addresses:
            self._go_on()

    def _go_on(self) -> None:
        """To the next member that is not shunned; to the next one where all are."""
        now = asyncio.get_running_loop().time()
        self._shunned = {each: until for each, until in self._shunned.items() if until > now}
        count = len(self._addresses)
        following = [(self._at + step) % count for step in range(1, count + 1)]
        sound = (each for each in following if self._addresses[each] not in self._shunned)
        self._at = next(sound, following[0])

    def _endpoint(self, address: str = "") -> Endpoint:
        address = address or self._addresses[self._at]
        if address not in self._endpoints:
            credentials = None if self._pem is None else self._pem.credentials()
            self._endpoints[address] = Endpoint(address, credentials)
        return self._endpoints[address]

    def _learn(self, endpoint: Endpoint, error: EtcdError) -> None:
        if error.stale_token:
            self._token = None
        endpoint.timeouts = endpoint.timeouts + 1 if error.code is _DEADLINE else 0
        if endpoint.timeouts >= TIMEOUTS_MAX and self._endpoints.get(endpoint.address) is endpoint:
            self._abandon(endpoint)
        if error.other_endpoint and endpoint.address == self._addresses[self._at]:
            self._go_on()

    def _abandon(self, endpoint: Endpoint) -> None:
        """Make no further calls over this connection."""
        del self._endpoints[endpoint.address]
        task = tasks.start(endpoint.channel.close(CLOSE_GRACE_S), "close an etcd channel")
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def _retried(self, call: _Call[_T]) -> _T:
        """Try until it works, is refused, or `call_timeout_s` has passed."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._call_timeout_s
        for delay in self._backoff.delays():
            left = deadline - loop.time()
            try:
                return await self._once(call, min(self._attempt_timeout_s, max(left, 0.05)))
            except EtcdError as error:
                hopeless = not error.retryable or (error.stale_token and self._user is None)
                if hopeless or loop.time() + delay >= deadline:
                    raise
            await asyncio.sleep(delay)
        raise AssertionError("delays never end")

    async def _once(self, call: _Call[_T], timeout_s: float) -> _T:
        return await self._call(self._endpoint(), call, timeout_s)

    async def _call(self, endpoint: Endpoint, call: _Call[_T], timeout_s: float) -> _T:
        with self._told(endpoint):
            answer = await call(endpoint, timeout_s, await self._metadata(endpoint))
            endpoint.timeouts = 0
        return answer

    @contextmanager
    def _told(self, endpoint: Endpoint) -> Iterator[None]:
        """What goes wrong as EtcdError, also where the channel was closed meanwhile."""
        try:
            yield
        except asyncio.CancelledError:
            if being_cancelled():
                raise
            raise _closed(endpoint.address) from None
        except grpc.aio.AioRpcError as error:
            failure = from_grpc(error, endpoint.address)
            self._learn(endpoint, failure)
            raise failure from None
        except (grpc.aio.UsageError, asyncio.InvalidStateError) as error:
            raise _closed(endpoint.address) from error

    async def _metadata(self, endpoint: Endpoint) -> _Metadata:
        if self._user is None:
            return ()
        async with self._signing_in:
            if self._token is None:
                self._token = await self._sign_in(endpoint)
            return (("token", self._token),)

    async def _sign_in(self, endpoint: Endpoint) -> str:
        """A token. It fails before the call it is for was sent: definitely without effect."""
        try:
            request = pb.AuthenticateRequest(name=self._user or "", password=await self._read_password())
            answer = await endpoint.auth.Authenticate(request, timeout=self._attempt_timeout_s)
        except grpc.aio.AioRpcError as error:
            failure = from_grpc(error, endpoint.address)
            self._learn(endpoint, failure)
            raise EtcdError(
                f"signing in as {self._user}: {failure}", code=failure.code, ambiguous=False
            ) from None
        return answer.token

    async def _read_password(self) -> str:
        if not self._password_file:
            return self._password
        try:
            return await asyncio.to_thread(text_of, self._password_file)
        except (OSError, ValueError) as error:
            raise EtcdError(
                f"log.password_file: {error}", code=grpc.StatusCode.UNAUTHENTICATED, ambiguous=False
            ) from None


def _closed(address: str) -> EtcdError:
    return EtcdError(
        f"the connection to etcd at {address} was closed", code=grpc.StatusCode.CANCELLED, ambiguous=True
    )


async def _keep_alive(endpoint: Endpoint, timeout_s: float, metadata: _Metadata, lease: int) -> int:
    """A stream of one: renewals are rare, and a fresh stream cannot be half dead."""
    call = endpoint.lease.LeaseKeepAlive(None, timeout=timeout_s, metadata=metadata)
    try:
        await call.write(pb.LeaseKeepAliveRequest(ID=lease))
        answer = await call.read()
        if not isinstance(answer, pb.LeaseKeepAliveResponse):
            raise EtcdError(
                f"etcd at {endpoint.address} ended the renewal",
                code=grpc.StatusCode.UNAVAILABLE,
                ambiguous=True,
            )
        return answer.TTL
    finally:
        call.cancel()


_Metadata = tuple[tuple[str, str], ...]
_Call = Callable[[Endpoint, float, _Metadata], Awaitable[_T]]
