"""Fetch sessions against an oracle that asks for everything: whatever happens, both know the same (KIP-227).

The oracle is a whole Fetch of the same partitions from the same offsets right before the session's next
request. What the session's answer leaves out has to be as the client was told before; what is left in has to
be as the oracle has it. Records come: who reads to its ends gets each once, in order.
"""

from __future__ import annotations

import asyncio
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from coordination.commands import CreateTopic, DeleteTopic, MoveLogStart
from coordination.kafka_codes import Code
from coordination.memory_server import MemoryServer
from objectstore.adapters.memory import MemoryStore
from objectstore.batch import records
from tests.equipment.fetch_session import FetchSession, Key
from tests.unit.agent.kafka.test_handlers_produce_fetch import create, produce
from tests.unit.agent.rig import Agent, batch, start_agent

TOPICS, PARTITIONS = ("t", "u"), 3
NAMED, BY_ID = 12, 13
NAMES = st.sampled_from(TOPICS)
INDEXES = st.integers(0, PARTITIONS)  # one more than there are
SIZE = len(batch(b"v"))


class Sessions(RuleBasedStateMachine):
    """One agent, one session, and what happens to the partitions around it."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.agent: Agent = self.run(start_agent(MemoryServer(), MemoryStore()))
        self.session = FetchSession()
        self.read: dict[Key, list[bytes | None]] = {}
        self.made = 0

    def run(self, work: Any) -> Any:
        """Let the agent do it."""
        return self.loop.run_until_complete(asyncio.wait_for(work, 20))

    @initialize(by_id=st.booleans())
    def begin(self, by_id: bool) -> None:
        """Topics are there; the session names them by name or id."""
        self.session.by_id = by_id
        for name in TOPICS:
            self.run(create(self.agent, name, PARTITIONS))

    def key(self, name: str, index: int) -> Key:
        """As the session names it; of a topic that is not there, an id that nobody has."""
        if not self.session.by_id:
            return name, index
        topic = self.agent.services.replica.state.topics.get(name)
        return (name.upper().encode() * 16 if topic is None else topic.topic_id), index

    @rule(name=NAMES, index=INDEXES, offset=st.integers(0, 3))
    def want(self, name: str, index: int, offset: int) -> None:
        """A partition is added, or read from elsewhere."""
        self.session.wanted[self.key(name, index)] = offset

    @precondition(lambda self: self.session.wanted)
    @rule(data=st.data())
    def forget(self, data: st.DataObject) -> None:
        """A partition is taken out: paused, or given to another consumer."""
        del self.session.wanted[data.draw(st.sampled_from(sorted(self.session.wanted, key=repr)))]

    @rule(name=NAMES, index=st.integers(0, PARTITIONS - 1), count=st.integers(1, 3))
    def write(self, name: str, index: int, count: int) -> None:
        """Records come."""
        topic = self.agent.services.replica.state.topics.get(name)
        if topic is None:
            return
        for _ in range(count):
            answer = self.run(produce(self.agent, batch(b"v"), index=index, name=name))
            assert answer.error_code == 0

    @rule(name=NAMES, index=st.integers(0, PARTITIONS - 1))
    def delete_records(self, name: str, index: int) -> None:
        """The log start moves to the end."""
        topic = self.agent.services.replica.state.topics.get(name)
        if topic is not None:
            handle = topic.partitions[index].handle
            self.run(self.agent.services.replica.propose(MoveLogStart(partition=[handle], offset=[-1])))

    @rule(name=NAMES)
    def delete_topic(self, name: str) -> None:
        """It is deleted, or made again with another id."""
        self.made += 1
        there = name in self.agent.services.replica.state.topics
        made = CreateTopic(name=name, topic_id=self.made.to_bytes(16, "big"), partitions=PARTITIONS)
        self.run(self.agent.services.replica.propose(DeleteTopic(name=name) if there else made))

    @rule()
    def reload(self) -> None:
        """A snapshot replaces the state."""
        self.agent.services.sessions.reloaded()

    @rule()
    def lose(self) -> None:
        """The client's connection is lost, with an answer perhaps."""
        self.session.begin_anew()

    @rule(isolation=st.integers(0, 1), batches=st.sampled_from((1, 2, 100)))
    def fetch(self, isolation: int, batches: int) -> None:
        """The session's turn, with room for so many batches, beside one that asks for everything."""
        session, version = self.session, BY_ID if self.session.by_id else NAMED
        whole = FetchSession(dict(session.wanted), session.by_id)
        asked = whole.request(isolation=isolation)
        asked.session_epoch = -1
        whole.take(self.run(self.agent.call("Fetch", asked, version, client_id="oracle")))
        answer = self.run(
            self.agent.call("Fetch", session.request(isolation=isolation, bytes_max=batches * SIZE), version)
        )
        assert answer.error_code == 0, Code(answer.error_code).name
        told = session.take(answer)
        assert session.known == whole.known
        self._advance(told)

    def _advance(self, told: dict[Key, Any]) -> None:
        for key, part in told.items():
            if part.records:
                found = list(records(part.records))
                assert found[0].offset == self.session.wanted[key], "from where it was asked for"
                self.session.wanted[key] = found[-1].offset + 1

    @invariant()
    def counts(self) -> None:
        """What the agent counts is what it keeps."""
        sessions = self.agent.services.sessions
        assert sessions.partitions == sum(len(each.rows) for each in sessions._by_id.values())

    def teardown(self) -> None:
        """Everybody reads to the ends: nothing was left out for good."""
        isolated = FetchSession(dict(self.session.wanted), self.session.by_id)
        asked = isolated.request()
        asked.session_epoch = -1
        version = BY_ID if self.session.by_id else NAMED
        isolated.take(self.run(self.agent.call("Fetch", asked, version)))
        ends = {key: known.high_watermark for key, known in isolated.known.items() if not known.code}
        rounds = 1 + sum(max(0, end - self.session.wanted[key]) for key, end in ends.items())
        for _ in range(rounds + 1):
            self.fetch(0, 1)
        assert {key: self.session.wanted[key] for key in ends} == ends, "read to the ends, one batch a turn"
        self.run(self.agent.stop())
        self.loop.close()


Sessions.TestCase.settings = settings(
    max_examples=4, stateful_step_count=20, deadline=None, suppress_health_check=list(HealthCheck)
)
test_a_client_of_a_session_knows_what_one_without_knows = Sessions.TestCase
