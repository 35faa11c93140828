"""The topic that keeps the audit log: made and bound where it is not there."""

from __future__ import annotations

from google.protobuf.message import Message

from coordination.clock import Clock
from coordination.commands import BindSchema, CreateTopic
from coordination.kafka_codes import Code
from coordination.log import LogError
from coordination.replica import OutcomeUnknown, Replica, Unavailable
from coordination.state.topics import TOPIC_ID_BYTES
from coordination.state.types import Partition, Refused, Topic
from schema.audit import EVENT, descriptor_set

PARTITIONS = 1


class Unwritable(Exception):
    """The topic takes no event now. `remedy`: what an operator may do; empty: wait."""

    def __init__(self, why: str, remedy: str = "") -> None:
        super().__init__(why)
        self.remedy = remedy


class AuditTopic:
    """By its name."""

    def __init__(self, name: str, replica: Replica, clock: Clock) -> None:
        self._name, self._replica, self._clock = name, replica, clock

    async def ready(self) -> tuple[Partition, int]:
        """The partition to write to, and the revision by which events are its messages. Raises Unwritable."""
        topic = self._bound()
        if topic is None:
            try:
                await self._make()
            except (LogError, Unavailable, OutcomeUnknown) as error:
                raise Unwritable(f"the log is not reached: {error}") from None
            topic = self._bound()
        if topic is None:
            raise Unwritable(f"topic '{self._name}' is not there yet")
        return topic.partitions[0], self._replica.state.revision

    def _bound(self) -> Topic | None:
        """The topic as it must be; None where something is to be made. Raises Unwritable."""
        state = self._replica.state
        topic = state.topics.get(self._name)
        if topic is None or topic.value_schema_id is None:
            return None
        bound = state.schemas[topic.value_schema_id].message
        if bound != EVENT or topic.key_schema_id is not None:
            raise Unwritable(
                f"topic '{self._name}' is bound to {bound or 'a subject'}, and events are {EVENT}",
                "name another one (audit_log.topic), or unbind it: floe topic bind --unbind",
            )
        return topic

    async def _make(self) -> None:
        await self._replica.barrier()
        if self._name not in self._replica.state.topics:
            topic_id = self._clock.random_bytes(TOPIC_ID_BYTES)
            await self._decided(CreateTopic(name=self._name, topic_id=topic_id, partitions=PARTITIONS))
        if self._bound() is None:
            await self._decided(
                BindSchema(
                    topic=self._name,
                    role=BindSchema.VALUE,
                    descriptor_set=descriptor_set(),
                    message=EVENT,
                    framing=BindSchema.PLAIN,
                )
            )

    async def _decided(self, message: Message) -> None:
        result = await self._replica.propose(message)
        if isinstance(result, Refused) and result.code is not Code.TOPIC_ALREADY_EXISTS:
            raise Unwritable(f"topic '{self._name}': {result.message}", "name another one: audit_log.topic")
