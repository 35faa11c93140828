"""A topic that follows a subject, one version of it, another subject, or none, while records are written.

Frames name schemas that are live versions, hidden or forgotten ones, those of another subject, or nobody's.
What was acknowledged must have been a live version of the subject that was followed at its place in the log
(subjects.py); what was refused must not have been one all the time between request and answer. The table
shows each record by the id that it names (columns.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from agent.net.wire.generated.create_topics import CreatableTopic
from coordination.commands import AlterTopicConfigs, BindSchema
from coordination.kafka_codes import Code
from coordination.state.following import VALIDATION
from tests.checker.findings import Finding
from tests.sim.bindings import ANSWER_S_MAX, BAD, ERRORS, PRODUCE_VERSION, batch_of, connected, make_topic
from tests.sim.bound_messages import NOBODYS, Written
from tests.sim.clients import RETRY_S, Surroundings
from tests.sim.subjects import FOLLOWED, SUBJECTS, TEXTS, Subjects

WRITERS, BATCH_MAX = 2, 3
WRITTEN_S, BOUND_S = 0.12, 1.0
"""On average between two batches of a writer, and between two bindings."""
LIVE_OF, BAD_OF, TOMBSTONES_OF = 0.6, 0.05, 0.03
LIVE_NEWEST = 3  # versions that frames name, of those that are live
NEWEST = 12  # ids that frames name, of those that were told


class Follower:
    """One process: it binds the topic anew again and again, and writes to it by connections of its own."""

    def __init__(self, around: Surroundings, subjects: Subjects) -> None:
        self._around = around
        self._subjects = subjects

    async def live(self) -> None:
        """Until told to stop."""
        await make_topic(self._around, CreatableTopic(FOLLOWED, 1, 1))
        async with asyncio.TaskGroup() as group:
            for _ in range(WRITERS):
                group.create_task(self._write())
            group.create_task(self._bind())

    async def _bind(self) -> None:
        """By any agent, by a command or by its config; where one has it bound the other is refused."""
        while not self._around.stopping.is_set():
            try:
                async with asyncio.timeout(ANSWER_S_MAX):
                    await self._around.propose(self._drawn_binding())
                self._around.counts["followed anew"] += 1
            except ERRORS:
                await asyncio.sleep(RETRY_S)
            await asyncio.sleep(self._around.loop.random.expovariate(1 / BOUND_S))

    def _drawn_binding(self) -> AlterTopicConfigs | BindSchema:
        random = self._around.loop.random
        if random.random() < 0.4:
            change = AlterTopicConfigs.Change(
                name=VALIDATION["value"], value=random.choice(("true", "false"))
            )
            return AlterTopicConfigs(topic=FOLLOWED, changes=[change])
        if random.random() < 0.15:
            return BindSchema(topic=FOLLOWED, unbind=True)
        asked = BindSchema(topic=FOLLOWED, subject=random.choice(SUBJECTS))
        live = self._subjects.now.live(asked.subject)
        if live and random.random() < 0.3:
            asked.subject_version = random.choice(live).number
        return asked

    async def _write(self) -> None:
        random, connection = self._around.loop.random, None
        while not self._around.stopping.is_set():
            await asyncio.sleep(random.expovariate(1 / WRITTEN_S))
            records = [self._drawn() for _ in range(random.choice((1, 1, BATCH_MAX)))]
            request = batch_of(FOLLOWED, self._subjects.written, records, self._around.timestamp())
            since = self._around.revision()
            try:
                async with asyncio.timeout(ANSWER_S_MAX):
                    connection = connection or await connected(self._around)
                    answer = await connection.call("Produce", request, PRODUCE_VERSION)
            except ERRORS:
                connection = None  # stays open: what is under way on it still arrives
                continue
            row = answer.responses[0].partition_responses[0]
            if row.error_code == Code.INVALID_RECORD:
                self._refused(records, since)
            elif row.error_code:
                connection = None  # perhaps another agent is well
            else:
                self._taken(records, int(row.base_offset))

    def _drawn(self) -> Written:
        """A framed record of the schema that its id was told for; rarely a bad one."""
        random, told = self._around.loop.random, self._subjects.told
        if random.random() < BAD_OF:
            return Written(random.choice(BAD))
        if random.random() < TOMBSTONES_OF:
            return Written(None)
        bound = self._subjects.now.bound
        subjects = SUBJECTS if bound is None else bound[:1]
        live = [each for subject in subjects for each in self._subjects.now.live(subject)]
        ids = [each.schema_id for each in live[-LIVE_NEWEST:] if each.schema_id in told]
        if not ids or random.random() > LIVE_OF:
            ids = [one for one in list(told)[-NEWEST:] if one not in ids] or [NOBODYS]
        schema_id = random.choice(ids)
        text = told.get(schema_id) or random.choice(TEXTS)
        return Written.of(text.message.drawn(random), schema_id)

    def _taken(self, records: Sequence[Written], base: int) -> None:
        for offset, record in enumerate(records, base):
            self._around.counts["records taken by a subject"] += 1
            if not self._subjects.accepts(offset, record):
                self._found("frame-of-no-version", f"the record at {offset}, {record}, is acknowledged")

    def _refused(self, records: Sequence[Written], since: int) -> None:
        """One of them must have been none of the topic's at some moment, while it was asked for."""
        self._around.counts["records refused by a subject"] += 1
        views = self._subjects.between(since, self._around.revision())
        if all(view.accepts(each) for view in views for each in records):
            self._found("refused-wrongly", f"{records} are refused, of {views}")

    def _found(self, anomaly: str, detail: str) -> None:
        self._around.findings.append(Finding(anomaly, FOLLOWED, detail[:2000], ()))
