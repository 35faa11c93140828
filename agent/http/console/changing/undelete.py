"""A deleted topic brought back, by the command of `floe topic undelete`."""

from __future__ import annotations

from collections.abc import Sequence

from agent.http.answers import Problem
from agent.http.asking import require
from agent.http.barrier import submit
from agent.http.console.changing.plans import Errors, Field, Form, Given, Plan, Refusal, controls, hidden
from agent.http.console.markup import many, url
from agent.http.console.topics import HERE
from agent.http.console.words import moment, number, size
from agent.http.deleted import found_by
from agent.http.needs import ALTER_CLUSTER, DESCRIBE_CLUSTER
from agent.http.parts import Parts
from coordination.commands import UndeleteTopic, command
from coordination.kafka_codes import Code
from coordination.state.types import DeletedTopic, Refused
from coordination.state.undeleting import ids_refusal, refusal


class TopicUndelete:
    """UndeleteTopic, of the topic that was shown, by its id."""

    name, here = "topic-undelete", HERE

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    def form(self, given: Given, errors: Errors) -> Form:
        """Under which name."""
        one = self._found(given)
        field = Field("name", "Name", "That it is to have.", preset=one.topic.name)
        fields = many((hidden({"topic": one.topic.topic_id.hex()}), controls([field], given, errors)))
        return Form(f"Bring topic {one.topic.name} back", self.here, fields)

    async def plan(self, given: Given) -> Plan:
        """All of it, as it was."""
        parts, one = self._parts, self._found(given)
        topic_id = one.topic.topic_id
        name = given.get("name", "").strip() or one.topic.name
        its = parts.replica.state.tables_by_topic.get(topic_id)

        def look() -> object:
            state = parts.replica.state
            return topic_id in state.deleted, name in state.topics, state.tables_by_topic.get(topic_id)

        async def do(rehearse: bool) -> Sequence[Refusal]:
            return await _do(parts, one, name, rehearse=rehearse)

        return Plan(
            f"Bring topic {one.topic.name} back",
            {"topic": topic_id.hex(), "name": name},
            [
                ("Topic", f"deleted {moment(one.deleted_ms)}", name),
                ("Partitions", 0, number(len(one.topic.partitions))),
                ("Size", size(0), size(one.size_bytes)),
                *([] if its is None else [("Table", f"{'.'.join(its)}, not written", "is written on")]),
            ],
            look,
            look(),
            do,
            (f"Topic {name}", url("/console/topics/{}", name)),
            fields=dict.fromkeys(
                (Code.TOPIC_ALREADY_EXISTS, Code.INVALID_TOPIC_EXCEPTION, Code.INVALID_CONFIG), "name"
            ),
        )

    def _found(self, given: Given) -> DeletedTopic:
        require(self._parts, DESCRIBE_CLUSTER)
        return found_by(self._parts.replica.state, given.get("topic", ""))


async def _do(parts: Parts, one: DeletedTopic, name: str, *, rehearse: bool) -> Sequence[Refusal]:
    try:
        require(parts, ALTER_CLUSTER)
    except Problem as problem:
        told = f"{problem.message}: {problem.remedy}"
        return [Refusal("", Code.CLUSTER_AUTHORIZATION_FAILED, told)]
    state = parts.replica.state
    misread = ids_refusal(state, one)
    refused = misread or refusal(state, one, name)
    if misread is None and not rehearse:
        result = await submit(parts, command(UndeleteTopic(topic_id=one.topic.topic_id, name=name)))
        refused = result if isinstance(result, Refused) else None
    return [] if refused is None else [Refusal("", refused.code, refused.message)]
