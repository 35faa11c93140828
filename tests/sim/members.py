"""Members of one group that subscribe: they come and go, it hands its keys around, positions are its own.

`plain` ones commit positions by themselves, after what they were given. Those of `v2` copy what they read in
transactions that commit the positions with their generation and member id, so that each record is copied
once, whoever read it in between. With each share of keys that the group gives it a member is a new process:
inside of it nothing may be skipped.

aiokafka asks for positions by OffsetFetch 3, which knows nothing of positions that are pending in a
transaction (KIP-447), so a member asks for them once more by version 7 before it reads.
"""

from __future__ import annotations

import asyncio
from typing import Any

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition
from aiokafka.errors import (
    CommitFailedError,
    IllegalGenerationError,
    RebalanceInProgressError,
    UnknownMemberIdError,
)

from agent.net.wire.generated.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from coordination.kafka_codes import Code
from tests.checker.operations import Poll, Send
from tests.equipment.transactional_client import Connection
from tests.sim.clients import POLL_MS, RETRY_S, SHORT, Pending, Surroundings, name, seen, stopped
from tests.sim.loop import NODE
from tests.sim.producers import ERRORS, V2, Refusal
from tests.sim.relay import copy
from tests.sim.transactors import ABORTED_OF, OPERATION_S_MAX

GROUP = "members"
SHARED = "shared"
SESSION_MS = 6000
HEARTBEAT_MS = 500
REQUEST_MS = 10_000
"""Longer than a rebalance takes when a member does not come."""
PATIENCE_S = REQUEST_MS / 1000 + 2 * SESSION_MS / 1000 + 3.0
"""A request whose answer was lost times out, two rounds wait for a member that is gone (seeds 904, 1311)."""
STABLE_VERSION = 7
STABLE_S_MAX = 3.0
BATCH_MAX, BATCH_LAST_MAX = 12, 500
"""Records of one poll, and when nobody writes any more."""
PAUSE_S, PAUSE_LAST_S = 0.2, 0.02
RESUBSCRIBED_OF = 1 / 64
NOT_THIS_GENERATION = (
    CommitFailedError, IllegalGenerationError, RebalanceInProgressError, UnknownMemberIdError,
)  # fmt: skip
GROUP_MOVED = {
    Code.ILLEGAL_GENERATION.name, Code.UNKNOWN_MEMBER_ID.name, Code.REBALANCE_IN_PROGRESS.name,
    Code.FENCED_INSTANCE_ID.name,
}  # fmt: skip


class _Share(ConsumerRebalanceListener):  # type: ignore[misc]  # aiokafka says no types
    """What the group has given to this member."""

    def __init__(self) -> None:
        self.consumer: Any = None
        self.number = 0
        """Of shares so far."""
        self.keys: list[TopicPartition] | None = None
        """None while it is taken away."""
        self.member = (-1, "")
        """Generation and member id."""

    def on_partitions_revoked(self, revoked: Any) -> None:
        """See aiokafka."""
        self.keys = None

    def on_partitions_assigned(self, assigned: Any) -> None:
        """See aiokafka."""
        coordinator = self.consumer._coordinator
        self.number += 1
        self.keys, self.member = sorted(assigned), (coordinator.generation, coordinator.member_id)

    def stands(self, number: int) -> bool:
        """Whether the share of this number is the member's still, as far as it knows."""
        return self.number == number and self.keys is not None


class Member:
    """One member. `pending`: what a crash leaves unanswered."""

    def __init__(
        self, around: Surroundings, node: str, kind: str, timeout_ms: int, *, static: bool = False
    ) -> None:
        self._around = around
        self._node = node
        self._kind = kind
        self._timeout_ms = timeout_ms
        self._instance = f"static-{node}" if static else None
        self._next = 0
        self._everything = False
        self.pending: Pending | None = None

    async def live(self) -> None:
        """Until the group has read everything: one process after the other."""
        while not self._around.drained.is_set():
            share = _Share()
            producer = V2(self._around, self._node, self._timeout_ms) if self._kind == "v2" else None
            consumer = share.consumer = self._consumer()
            try:
                async with asyncio.timeout(OPERATION_S_MAX):
                    if producer is not None:
                        await producer.start()
                    self._subscribe(share)
                    # Kafka takes a static member that comes back at the share that it had, whatever it
                    # subscribes to and though the leader be a new process that watches nothing (KIP-345;
                    # KIP-814 helps clients of JoinGroup 9 alone): it has to say so again while it lives.
                    self._everything = self._everything and self._instance is None
                    await consumer.start()
                await self._work(share, producer)
            except ERRORS:
                await asyncio.sleep(RETRY_S)
            finally:
                await stopped(consumer)

    def _consumer(self) -> Any:
        return AIOKafkaConsumer(
            bootstrap_servers=self._around.bootstrap,
            group_id=GROUP,
            group_instance_id=self._instance,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
            client_id=NODE.get(),
            max_partition_fetch_bytes=self._around.fetch_bytes,
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=HEARTBEAT_MS,
            **SHORT | {"request_timeout_ms": REQUEST_MS},
        )

    def _subscribe(self, share: _Share) -> None:
        """To topics of living keys or of any; to all when no one writes any more."""
        random, keys = self._around.loop.random, self._around.keys
        self._everything = self._around.stopping.is_set()
        some = {key.topic for key in keys.some(random, len(keys.every))}
        topics = keys.topics if self._everything else sorted(some)
        share.keys = None  # gone with the old subscription, whose end nobody tells
        share.consumer.subscribe(topics, listener=share)

    async def _work(self, share: _Share, producer: V2 | None) -> None:
        random = self._around.loop.random
        begun, process = 0, 0
        while not self._around.drained.is_set():
            pause_s = PAUSE_LAST_S if self._around.stopping.is_set() else PAUSE_S
            await asyncio.sleep(random.expovariate(1 / pause_s))
            late = self._around.stopping.is_set() and not self._everything
            if late or random.random() < RESUBSCRIBED_OF:
                self._subscribe(share)
            number = share.number
            if not share.stands(number):
                share.consumer._coordinator.check_errors()  # as a poll does: its rounds may have ended
                continue
            if begun != number:
                if not await self._stands_at(share, number):
                    continue
                begun, process = number, self._begin(share)
            if producer is None:
                await self._plain(share, number, process)
            elif not await self._transaction(share, number, process, producer):
                begun = 0

    def _begin(self, share: _Share) -> int:
        """A new process, with the keys of its share."""
        recorder = self._around.recorder
        process, keys = recorder.process(), [name(key) for key in share.keys or ()]
        topics = share.consumer.subscription()
        known = [name(key) for key in self._around.keys.every if key.topic in topics]
        recorder.note(process, "subscribe", "ok", recorder.now_ns(), keys=known)
        recorder.note(process, "assign", "ok", recorder.now_ns(), keys=keys)
        self._around.counts["group shares"] += 1
        self._around.readers[GROUP].add(process)
        return process

    async def _stands_at(self, share: _Share, number: int) -> bool:
        """Go to the group's stable positions; whether they are known and the share is the same still."""
        by_topic: dict[str, list[int]] = {}
        for key in share.keys or ():
            by_topic.setdefault(key.topic, []).append(key.partition)
        topics = [OffsetFetchRequestTopic(topic, indexes) for topic, indexes in by_topic.items()]
        request = OffsetFetchRequest(GROUP, topics, require_stable=True)
        try:
            async with asyncio.timeout(STABLE_S_MAX):
                connection = await Connection.open(self._around.loop.random.choice(self._around.bootstrap))
                answer = await connection.call("OffsetFetch", request, STABLE_VERSION)
                await connection.close()
        except (OSError, EOFError, TimeoutError):
            return False
        if answer.error_code or not share.stands(number):
            return False
        rows = [(topic.name, row) for topic in answer.topics for row in topic.partitions]
        if any(row.error_code for _, row in rows):
            self._around.counts["group waits for stable positions"] += 1
            return False
        for topic, row in rows:
            share.consumer.seek(TopicPartition(topic, row.partition_index), max(0, row.committed_offset))
        return True

    async def _polled(self, share: _Share) -> Any:
        most = BATCH_LAST_MAX if self._around.stopping.is_set() else BATCH_MAX
        return await share.consumer.getmany(timeout_ms=POLL_MS, max_records=most)

    async def _plain(self, share: _Share, number: int, process: int) -> None:
        """Read, then commit: at least once."""
        invoked, records = self._around.recorder.now_ns(), await self._polled(share)
        if not share.stands(number):
            return
        self._around.recorder.note(process, "poll", "ok", invoked, [Poll(seen(records))])
        if records:
            try:
                async with asyncio.timeout(OPERATION_S_MAX):
                    await share.consumer.commit({key: each[-1].offset + 1 for key, each in records.items()})
            except NOT_THIS_GENERATION:
                self._around.counts["group commits too late"] += 1

    async def _transaction(self, share: _Share, number: int, process: int, producer: V2) -> bool:
        """Read and copy, exactly once; whether to go on reading where it is."""
        recorder = self._around.recorder
        invoked, records = recorder.now_ns(), await self._polled(share)
        if not share.stands(number) or not records:
            return True
        self.pending = pending = Pending(process, "txn", invoked, [Poll(seen(records))], "fail")
        try:
            async with asyncio.timeout(OPERATION_S_MAX):
                if await self._copied(share, producer, records, pending):
                    pending.outcome, pending.error = "ok", ""
                    return True
        except ERRORS as error:
            pending.error = f"{type(error).__name__} {error}"[:80].strip()
            raise
        finally:
            if self.pending is pending:  # a crash has noted it already
                self.pending = None
                recorder.leave(pending)
        if not share.stands(number):
            return False
        for key in sorted(records):
            share.consumer.seek(key, records[key][0].offset)
        return pending.error == "aborted"

    async def _copied(self, share: _Share, producer: V2, records: Any, pending: Pending) -> bool:
        """The transaction; whether it is committed, `pending.error` says why not."""
        random = self._around.loop.random
        member = share.member
        await producer.begin()
        await copy(producer, SHARED, records)
        for _ in range(random.choice((0, 0, 1, 2)) if not self._around.stopping.is_set() else 0):
            self._next += 1
            key, value = self._around.any_key(), f"{NODE.get()}.{self._next}"
            pending.micro.append(Send(name(key), value))
            pending.micro[-1] = Send(name(key), value, await producer.send(key, value))
        commit, pending.error = random.random() > ABORTED_OF, "aborted"
        if commit:
            try:
                following = {key: records[key][-1].offset + 1 for key in sorted(records)}
                await producer.positions(following, GROUP, member)
            except Refusal as refused:
                if str(refused) not in GROUP_MOVED:
                    raise
                commit, pending.error = False, str(refused)
                self._around.counts[f"group commits refused {refused}"] += 1
        if commit and self._around.before_end is not None:
            happens, self._around.before_end = self._around.before_end, None
            happens()
            await asyncio.sleep(0)
        if commit:
            pending.outcome = "info"
        await producer.end(commit=commit)
        return commit
