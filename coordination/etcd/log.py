"""The log in etcd: order is etcd's revision (keys.py has the layout, chain.py of coordination the rule)."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

import grpc

from coordination.backoff import Backoff
from coordination.chain import RENEWED_AGAIN_S, AppendChain, AttemptFailed, KeyState
from coordination.clock import Clock
from coordination.etcd import keys as requests
from coordination.etcd.client import EtcdClient, Tls
from coordination.etcd.copies import copies
from coordination.etcd.errors import EtcdError
from coordination.etcd.follower import Follower, FollowOptions, Head
from coordination.etcd.keys import INFO_BYTES_MAX, Keys, key_state, prefix_end
from coordination.etcd.proto import rpc_pb2 as pb
from coordination.etcd.trim import trim_log
from coordination.log import Copy, Entries, EntryName, Fenced, LogEntry, Member, Statement, Unavailable
from objectstore import coalesced, tasks
from objectstore.episodes import Episodes, loop_time, through

ENTRY_BYTES_MAX = 1 << 20  # etcd refuses requests above 1.5 MiB (--max-request-bytes)
LEASE_BITS = 62
_logger = logging.getLogger("floe.coordination.etcd")


@dataclass(frozen=True, slots=True)
class EtcdOptions:
    """Times in seconds. `attempt_timeout_s` bounds one request, `call_timeout_s` a call with its retries."""

    tls: Tls | None = None
    user: str | None = None
    password: str = ""
    password_file: str = ""  # holds the password instead, and is read at each signing in
    attempt_timeout_s: float = 2.0
    call_timeout_s: float = 5.0
    follow: FollowOptions = field(default_factory=FollowOptions)


class EtcdLog:
    """Implements coordination.log.Log. Create it and use it in one event loop."""

    def __init__(
        self,
        endpoints: Sequence[str],
        cluster: str,
        clock: Clock,
        options: EtcdOptions | None = None,
    ) -> None:
        """`endpoints` are host:port; `cluster` names the keys' prefix /floe/{cluster}/."""
        self._options = options or EtcdOptions()
        self._keys = Keys(cluster)
        self._clock = clock
        self._client = EtcdClient(
            endpoints,
            clock,
            tls=self._options.tls,
            user=self._options.user,
            password=self._options.password,
            password_file=self._options.password_file,
            attempt_timeout_s=self._options.attempt_timeout_s,
            call_timeout_s=self._options.call_timeout_s,
        )
        self._head = Head()
        self._chains: list[EtcdChain] = []

    @property
    def entry_bytes_max(self) -> int:
        """1 MiB, which leaves room for keys and info in etcd's request limit of 1.5 MiB."""
        return ENTRY_BYTES_MAX

    async def identity(self) -> str:
        """The prefix and a number drawn at the log's birth. Raises Unavailable.

        etcd's own cluster id would not do: an etcd that lost its data gets the same one again.
        """
        drawn = b"%032x" % self._clock.random_bits(128)
        try:
            response = await self._client.txn(requests.identity(self._keys, drawn))
        except EtcdError as error:
            raise Unavailable(str(error)) from error
        (found,) = response.responses[-1].response_range.kvs
        return f"etcd:{found.value.decode()}:{self._keys.prefix}"

    async def base(self) -> tuple[int, int]:
        """What rebased.py adds to revisions, and etcd's own at which that was said; 0, 0: nothing.

        Raises Unavailable.
        """
        kvs = (await self._read(pb.RangeRequest(key=self._keys.base))).kvs
        return requests.marker(kvs), kvs[0].mod_revision if kvs else 0

    async def register(self, incarnation: int, info: bytes, ttl_s: float) -> EtcdChain:
        """See coordination.log.Log. After Unavailable use a new number: this one may have been taken."""
        if len(info) > INFO_BYTES_MAX:
            raise ValueError(f"info of {len(info)} bytes is above {INFO_BYTES_MAX}")
        lease = self._clock.random_bits(LEASE_BITS) | 1
        try:
            await self._client.lease_grant(lease, math.ceil(ttl_s))
            request = requests.register(self._keys, incarnation, info, lease)
            response = await self._client.txn(request)
        except EtcdError as error:
            raise Unavailable(str(error)) from error  # what was made hangs on a lease nobody renews
        revision = response.header.revision
        if not response.succeeded:
            found = response.responses[0].response_range.kvs
            if not found or found[0].lease != lease:
                with suppress(EtcdError):
                    await self._client.lease_revoke(lease)
                raise Fenced(f"incarnation {incarnation:016x} was used before", maybe_appended=False)
            revision = found[0].mod_revision  # the first try of this transaction had landed
        self._head.seen(revision)
        chain = EtcdChain(self, incarnation, lease, revision, info, ttl_s)
        self._chains.append(chain)
        return chain

    def follow(self, after: int, last: EntryName | None = None) -> AsyncGenerator[Entries, None]:
        """See coordination.log.Log.follow, and follower.py."""
        follower = Follower(self._client, self._keys, self._head, self._clock, self._options.follow)
        return follower.follow(after, last)

    async def current(self) -> int:
        """The header revision of a linearizable read; followers are told to get there."""
        request = pb.RangeRequest(key=self._keys.trimmed, count_only=True)
        return (await self._read(request)).header.revision

    async def testify(self, entry: LogEntry | None = None) -> Statement:
        """See coordination.log.Witness: one transaction that only reads."""
        floor = self._head.revision
        try:
            response = await self._client.txn(requests.statement(self._keys, entry))
        except EtcdError as error:
            raise Unavailable(str(error)) from error
        self._head.check(response.header.revision, floor)
        self._head.seen(response.header.revision, awaited=True)
        return requests.decode_statement(self._keys, entry, response)

    def ask_progress(self) -> None:
        """See coordination.log.Witness."""
        self._head.ask()

    async def members(self) -> Sequence[Member]:
        """The live keys, by a linearizable read."""
        agents = self._keys.agents
        response = await self._read(pb.RangeRequest(key=agents, range_end=prefix_end(agents)))
        return [self._keys.to_member(kv) for kv in response.kvs]

    async def key_of(self, incarnation: int) -> KeyState | None:
        """The key as it is now; None when it is gone. Raises Unavailable."""
        response = await self._read(pb.RangeRequest(key=self._keys.agent(incarnation)))
        return key_state(response.kvs[0]) if response.kvs else None

    async def fence(self, incarnation: int) -> None:
        """Delete the key; its lease runs out by itself."""
        try:
            await self._client.delete_range(pb.DeleteRangeRequest(key=self._keys.agent(incarnation)))
        except EtcdError as error:
            raise Unavailable(str(error)) from error

    async def trim(self, through: int) -> None:
        """See coordination.log.Log, and trim.py."""
        through = min(through, await self.current())
        try:
            await trim_log(self._client, self._keys, through)
        except EtcdError as error:
            raise Unavailable(str(error)) from error

    async def alarms(self) -> Sequence[str]:
        """See coordination.log.Alarmed. NOSPACE: etcd's quota is used up, and it takes no writes."""
        try:
            status = await self._client.status()
        except EtcdError as error:
            raise Unavailable(str(error)) from error
        return list(status.errors)

    async def copies(self, after: int, through: int) -> Mapping[str, Copy | None]:
        """See coordination.log.Copied: each member of the configuration, by its address."""
        return await copies(self._client, self._keys, after, through)

    def follow_copy(self, after: int, last: EntryName | None = None) -> AsyncGenerator[Entries, None]:
        """See coordination.log.Copied."""
        return self.follow(after, last)

    def turn_from(self, copies: Collection[str]) -> None:
        """See coordination.log.Copied."""
        self._client.turn_from(copies)

    async def renew(self) -> bool:
        """See coordination.log.Renewing."""
        return await self._client.renew()

    async def trimmed(self) -> int:
        """The trim marker."""
        response = await self._read(pb.RangeRequest(key=self._keys.trimmed))
        return requests.marker(response.kvs)

    async def close(self) -> None:
        """Stop renewing leases and close the channels; what was registered and not closed expires."""
        for chain in self._chains:
            chain.abandon()
        await self._client.close()

    async def _read(self, request: pb.RangeRequest) -> pb.RangeResponse:
        """A linearizable read. Raises Unavailable, and LogRegressed when its revision went back."""
        floor = self._head.revision
        try:
            response = await self._client.range(request)
        except EtcdError as error:
            raise Unavailable(str(error)) from error
        self._head.check(response.header.revision, floor)
        self._head.seen(response.header.revision, awaited=True)
        return response

    async def attempt(self, request: pb.TxnRequest) -> pb.TxnResponse:
        """One attempt of a transaction. Raises AttemptFailed."""
        try:
            response = await self._client.txn_once(request)
        except EtcdError as error:
            told = f"etcd NOSPACE: {error}" if error.full else str(error)
            raise AttemptFailed(told, ambiguous=error.ambiguous, full=error.full) from error
        self._head.seen(response.header.revision)
        return response

    @property
    def client(self) -> EtcdClient:
        """The client; chains renew and revoke their leases with it."""
        return self._client

    @property
    def keys(self) -> Keys:
        """The layout."""
        return self._keys

    @property
    def clock(self) -> Clock:
        """For the chains' jitter."""
        return self._clock


class EtcdChain(AppendChain):
    """The chain of one incarnation: its key hangs on a lease that a task renews."""

    def __init__(
        self, log: EtcdLog, incarnation: int, lease: int, revision: int, info: bytes, ttl_s: float
    ) -> None:
        super().__init__(incarnation, lease, revision, ENTRY_BYTES_MAX, Backoff(log.clock))
        self._log = log
        self._lease = lease
        self._info = info
        self._unrenewed = Episodes(
            through(_logger), loop_time, begins="the lease is not renewed", ends="the lease is renewed again"
        )
        self._renewal = tasks.kept(partial(self._renew, ttl_s / 3), "renewal of the lease")

    async def close(self) -> None:
        """Give the incarnation up: delete its key, best effort."""
        self.abandon()
        with suppress(EtcdError):
            await self._log.client.lease_revoke(self._lease)

    def abandon(self) -> None:
        """Renew the lease no more."""
        self._renewal.cancel()

    async def _attempt(self, sequence: int, payload: bytes, expected: int) -> int | KeyState | None:
        request = requests.append(
            self._log.keys,
            self._incarnation,
            sequence,
            payload,
            info=self._info,
            lease=self._lease,
            expected=expected,
        )
        response = await self._log.attempt(request)
        if response.succeeded:
            return response.header.revision
        kvs = response.responses[0].response_range.kvs
        return key_state(kvs[0]) if kvs else None

    async def _key(self) -> KeyState | None:
        return await self._log.key_of(self._incarnation)

    async def _renew(self, every_s: float) -> None:
        """A lost lease is no error here: the next append says Fenced."""
        pause_s = every_s
        while True:
            await asyncio.sleep(coalesced.pause_s(pause_s))
            pause_s = min(every_s, RENEWED_AGAIN_S)
            try:
                if await self._log.client.lease_keep_alive(self._lease) == 0:
                    self._lease_is_gone()
                    return
            except EtcdError as error:
                if error.code is grpc.StatusCode.NOT_FOUND:
                    self._lease_is_gone()
                    return
                self._unrenewed.met("", **self._names(), error=str(error))
            else:
                pause_s = every_s
                self._unrenewed.over("", **self._names())

    def _lease_is_gone(self) -> None:
        self._unrenewed.over("", event="the lease is renewed no more", **self._names())
        _logger.warning("the lease is gone", extra={"fields": self._names()})
