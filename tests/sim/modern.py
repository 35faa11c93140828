"""Members of a group of KIP-848, dynamic or static: coordinators assign, positions are committed by epoch.

They read the first topic, at least once. At the end the group has come to the end of it, and what lies below
its positions was given to one of them. Once all is well nobody is thrown out whose heartbeats are answered.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from math import inf
from typing import Any

from aiokafka import TopicPartition
from aiokafka.errors import KafkaError

from agent.net.wire.generated.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from coordination.kafka_codes import Code
from tests.checker.findings import Finding
from tests.checker.operations import Poll
from tests.equipment.consumer_members import FENCED, ConsumerMember
from tests.equipment.transactional_client import Connection
from tests.sim.clients import POLL_MS, RETRY_S, Surroundings, committed, name, seen, stopped

GROUP = "modern"
PAUSE_S = 0.2
STEP_S_MAX = 6.0
STABLE_VERSION = 7
REBALANCE_MS = 3000
LEAVES_OF = 1 / 40
PATIENT = frozenset({Code.UNSUPPORTED_VERSION, Code.UNRELEASED_INSTANCE_ID})
"""The protocol is switched off for a while; the process before is not forgotten yet."""
ERRORS = (KafkaError, OSError, EOFError, TimeoutError)
SETTLED_S = 4.0
"""So long after the last fault members may pay for it: their rebalance timeout, and what was on its way."""
HEARD_S = 3.0
"""Half of the session timeout: who was heard since is a member."""


@dataclass(eq=False, kw_only=True)
class _Watched(ConsumerMember):
    """Tells when it is thrown out for nothing."""

    around: Surroundings
    heard_s: float = -inf
    """When a heartbeat was sent that was taken, event loop time: its answer may be on its way for long."""

    async def beat(self) -> float:
        """See ConsumerMember."""
        before, loop = len(self.refused), self.around.loop
        asked_s = loop.time()
        due_s = await super().beat()
        if loop.time() - asked_s > HEARD_S:
            self.around.counts["modern answers late"] += 1
        if len(self.refused) == before and self._line is not None:
            self.heard_s = asked_s
        elif self.refused and self.refused[-1] in FENCED and loop.time() > self.around.healed_s + SETTLED_S:
            ago_s = loop.time() - self.heard_s
            if ago_s < HEARD_S:
                detail = f"{self.member_id}: {self.refused[-1].name}, {ago_s:.1f} s after it was heard"
                self.around.findings.append(Finding("thrown-out", GROUP, detail, ()))
        return due_s


class Modern:
    """One member. `static`: it comes back under the instance id that it had."""

    def __init__(self, around: Surroundings, node: str, partitions: int, *, static: bool) -> None:
        self._around = around
        self._topic = around.keys.every[0].topic
        self._partitions = partitions
        self._instance = f"static-{node}" if static else None

    async def live(self) -> None:
        """Until the group has read everything: one member id after the other."""
        random = self._around.loop.random
        while not self._around.drained.is_set():
            member = _Watched(
                list(self._around.bootstrap), GROUP, {self._topic: self._partitions},
                instance_id=self._instance,
                patient=PATIENT, rebalance_ms=REBALANCE_MS,
                member_id=f"{random.getrandbits(96):024x}",
                around=self._around,
            )  # fmt: skip
            beating = asyncio.create_task(member.run())
            consumer = committed(self._around)
            try:
                await consumer.start()
                await self._work(member, consumer, beating)
            except ERRORS:
                await asyncio.sleep(RETRY_S)
            finally:
                beating.cancel()
                await stopped(consumer)

    async def _work(self, member: ConsumerMember, consumer: Any, beating: asyncio.Task[None]) -> None:
        random, recorder = self._around.loop.random, self._around.recorder
        held: list[tuple[str, int]] = []
        process = 0
        while not self._around.drained.is_set():
            await asyncio.sleep(random.expovariate(1 / PAUSE_S))
            if beating.done():
                beating.result()
            if not self._around.stopping.is_set() and random.random() < LEAVES_OF:
                self._around.counts["modern left"] += 1
                async with asyncio.timeout(STEP_S_MAX):
                    await member.leave()
                return
            if member.assignment != held:
                held, process = list(member.assignment), recorder.process()
                await self._assign(consumer, process, held)
            if not held:
                continue
            invoked = recorder.now_ns()
            records = await consumer.getmany(timeout_ms=POLL_MS)
            recorder.note(process, "poll", "ok", invoked, [Poll(seen(records))])
            following = {
                (key.topic, key.partition): each[-1].offset + 1 for key, each in records.items() if each
            }
            if following:
                async with asyncio.timeout(STEP_S_MAX):
                    code = await member.commit(following)
                self._around.counts[f"modern commits {code.name}"] += 1
                if code:
                    held = []  # begin where the group stands

    async def _assign(self, consumer: Any, process: int, held: list[tuple[str, int]]) -> None:
        """Go to the group's positions, as a new process."""
        recorder, keys = self._around.recorder, [TopicPartition(*each) for each in sorted(held)]
        self._around.counts["modern shares"] += 1
        self._around.readers[GROUP].add(process)
        recorder.note(process, "assign", "ok", recorder.now_ns(), keys=[name(key) for key in keys])
        if not keys:
            consumer.unsubscribe()
            return
        consumer.assign(keys)
        wanted = [OffsetFetchRequestTopic(self._topic, [key.partition for key in keys])]
        async with asyncio.timeout(STEP_S_MAX):
            while True:
                connection = await Connection.open(self._around.loop.random.choice(self._around.bootstrap))
                asked = OffsetFetchRequest(GROUP, wanted, require_stable=True)
                answer = await connection.call("OffsetFetch", asked, STABLE_VERSION)
                with suppress(OSError):
                    await connection.close()
                if not answer.error_code and not any(
                    r.error_code for t in answer.topics for r in t.partitions
                ):
                    break
                await asyncio.sleep(RETRY_S)
        for row in answer.topics[0].partitions:
            consumer.seek(TopicPartition(self._topic, row.partition_index), max(0, row.committed_offset))
