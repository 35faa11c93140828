"""Writes events to the agent's log and to the audit log's topic, one after another, at least once.

A topic that cannot be written holds up nobody: its events wait, in bounds. An event whose outcome is not
known is written again under its own id.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from contextlib import suppress

from agent.config.audit_log import AuditLogConfig
from agent.kafka.produce.buffer import Offered
from agent.kafka.produce.driver import ProduceDriver
from agent.kafka.trail.topic import AuditTopic, Unwritable
from agent.telemetry.episodes import Episodes
from agent.telemetry.logs import logger
from agent.telemetry.metrics import Metrics
from agent.telemetry.trail import Event, Trail
from coordination.clock import Clock
from coordination.kafka_codes import RETRIABLE, Code
from coordination.replica import Replica
from objectstore import tasks
from objectstore.batch import NewRecord, build, peek
from schema.proto.audit_pb2 import Acl
from schema.proto.audit_pb2 import Event as Message

STEP_EVENTS = 20
"""What is told between two turns of the event loop: a line takes some 50 µs."""

BATCH_EVENTS_MAX = 500
BATCH_BYTES_MIN = 256 * 1024
"""A batch that has so many is written; events of ACLs are large."""

GATHER_S = 0.2
"""Events that come together are one batch, seconds."""

AGAIN_S = 1.0
"""Until the topic is tried again, seconds."""

STOP_S = 3.0
"""What a stop waits for the last events, seconds."""

INTERNAL = -1
"""No client's connection."""

_log = logger("audit")
_told = logger("audit_log")


class TrailWriter:
    """One agent's."""

    def __init__(
        self,
        config: AuditLogConfig,
        trail: Trail,
        produce: ProduceDriver,
        replica: Replica,
        clock: Clock,
        metrics: Metrics,
    ) -> None:
        self._config, self._trail, self._produce, self._metrics = config, trail, produce, metrics
        self._topic = AuditTopic(config.topic, replica, clock)
        self._waiting: deque[Event] = deque()
        self._more = asyncio.Event()
        self._running: list[asyncio.Task[None]] = []
        self._started = False
        loop = asyncio.get_running_loop()
        self._troubles = Episodes(
            _told, loop.time, begins="audit log not written", ends="audit log is written"
        )

    def start(self) -> None:
        """Begin to write."""
        if self._trail.active and not self._started:
            self._started = True
            self._running = [tasks.kept(self._tell, "audit log")]
            if self._config.topic:
                self._running.append(tasks.kept(self._keep, "audit log's topic"))

    async def stop(self) -> None:
        """Write what came and what comes meanwhile, for a while, and end: `close` tells of what is left."""
        running, self._running = self._running, []
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        with suppress(TimeoutError):
            async with asyncio.timeout(STOP_S):
                await self._finish()
        self.close()

    def close(self) -> None:
        """Tell what came since the end: its lines are there, to the topic it is lost, and counted.

        Idempotent; nothing where it was never started.
        """
        while self._started and self._trail.arrived.is_set():
            self._step()
        if lost := len(self._waiting):
            self._waiting.clear()
            self._metrics.audit_lost.inc(lost)
            _told.warning("events of the audit log are lost", events=lost)

    async def _finish(self) -> None:
        """Until nothing is left, or nothing helps but an operator."""
        while self._started and (self._trail.arrived.is_set() or self._waiting):
            if self._trail.arrived.is_set():
                self._step()
                await asyncio.sleep(0)
                continue
            try:
                await self._write_some()
            except Unwritable as error:
                if error.remedy:
                    return
                await asyncio.sleep(AGAIN_S)

    async def _tell(self) -> None:
        """Lines, and what waits for the topic."""
        while True:
            await self._trail.arrived.wait()
            self._step()
            await asyncio.sleep(0)

    def _step(self) -> None:
        events = self._trail.take(STEP_EVENTS)
        for event in events if self._config.lines else ():
            _line(event)
        if self._config.topic:
            self._waiting.extend(events)
            self._bounded()

    async def _keep(self) -> None:
        """The topic's records, in order."""
        while True:
            await self._more.wait()
            await asyncio.sleep(GATHER_S)
            try:
                await self._write_some()
            except Unwritable as error:
                self._troubles.met("topic", topic=self._config.topic, error=str(error), remedy=error.remedy)
                await asyncio.sleep(AGAIN_S)
            else:
                self._troubles.over("topic")

    async def _write_some(self) -> None:
        """The oldest that wait. Raises Unwritable; then they wait on."""
        events = self._taken()
        try:
            await self._write(events)
        except BaseException:
            self._back(events)
            raise

    def _back(self, events: Sequence[Event]) -> None:
        self._waiting.extendleft(reversed(events))
        self._bounded()

    def _bounded(self) -> None:
        while len(self._waiting) > self._config.queue_events_max:
            self._waiting.popleft()
            self._metrics.audit_lost.inc()
        if self._waiting:
            self._more.set()

    def _taken(self) -> list[Event]:
        """The oldest that wait."""
        events = [self._waiting.popleft() for _ in range(min(len(self._waiting), BATCH_EVENTS_MAX))]
        if not self._waiting:
            self._more.clear()
        return events

    async def _write(self, events: Sequence[Event]) -> None:
        """In batches. Raises Unwritable; then some may have been written, or all."""
        made: list[NewRecord] = []
        size = 0
        for each in events:
            made.append(NewRecord(each.time_ms, None, encoded(each)))
            size += len(made[-1].value or b"")
            if size >= BATCH_BYTES_MIN:
                await self._append(made)
                made, size = [], 0
        if made:
            await self._append(made)

    async def _append(self, records: Sequence[NewRecord]) -> None:
        partition, judged = await self._topic.ready()
        data = build(records)
        await self._produce.room(len(data))
        offered = Offered(partition.handle, data, peek(data), judged=judged)
        (outcome,) = await self._produce.append(INTERNAL, [offered])
        if outcome.code is not Code.NONE:
            remedy = "" if outcome.code in RETRIABLE else "see the topic's limits and its binding"
            raise Unwritable(f"{outcome.code.name}: {outcome.message}", remedy)


def encoded(event: Event) -> bytes:
    """The record of an event."""
    actor, change = event.actor, event.change
    message = Message(
        id=event.id,
        time_ms=event.time_ms,
        agent=event.id.rsplit("-", 2)[0],
        kind=event.kind,
        principal=f"User:{actor.principal}" if actor.principal else "",
        host=actor.host,
        client_id=actor.client_id,
        door=actor.door,
        operation=change.operation,
        resource_type=change.resource_type,
        resource=change.resource,
        outcome=event.outcome,
        detail=change.detail,
        count=event.times,
        acls_added=[Acl(**each._asdict()) for each in change.added],
        acls_removed=[Acl(**each._asdict()) for each in change.removed],
    )
    return message.SerializeToString()


def _line(event: Event) -> None:
    """Field by field, so that no name of a client's can look like another line."""
    actor, change = event.actor, event.change
    told = {
        "kind": event.kind,
        "principal": f"User:{actor.principal}" if actor.principal else "",
        "host": actor.host,
        "client_id": actor.client_id,
        "door": actor.door,
        "operation": change.operation,
        "resource_type": change.resource_type,
        "resource": change.resource,
        "outcome": event.outcome,
        "detail": change.detail,
        "count": event.times if event.times > 1 else "",
        "id": event.id,
    }
    _log.info("audit", **{name: value for name, value in told.items() if value})
