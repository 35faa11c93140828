"""What happens between a guard's look and its handler's: nobody gains by it what he may not."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from agent.kafka.context import Context
from agent.kafka.fetch.sessions import Row
from agent.kafka.guards import GUARDS
from agent.kafka.guards.rows import opened
from agent.kafka.handlers import HANDLERS
from agent.kafka.handlers.fetch_rights import refusals
from agent.net.wire.api import APIS
from agent.net.wire.generated import delete_topics as dt
from agent.net.wire.generated import metadata as md
from agent.net.wire.generated import offset_fetch as of
from coordination.commands import UndeleteTopic
from coordination.kafka_codes import Code
from coordination.state.topics import NO_SUCH_ID, NO_SUCH_NAME
from coordination.state.types import Done
from tests.unit.agent.kafka.admin_calls import alter, create, topic
from tests.unit.agent.kafka.guards_rig import DELETE, DESCRIBE, GROUP, TOPIC, Guarded, guarded

NIL = bytes(16)
NO_TOPIC = Code.TOPIC_AUTHORIZATION_FAILED
Change = Callable[[], Awaitable[object]]


async def ask(there: Guarded, key: int, request: Any, version: int, meanwhile: Change) -> Any:
    """Alice's request; `meanwhile` happens when the guard has looked."""

    async def handle(ctx: Context, rest: Any, version: int) -> Any:
        await meanwhile()
        return await HANDLERS[key].handle(ctx, rest, version)

    ctx = Context(there.agent.services, there.alice, "test")
    answer = await GUARDS[key](ctx, request, version, handle)
    return await opened(APIS[key].codec(), answer, version)  # type: ignore[arg-type]  # modules are codecs


def topics(there: Guarded) -> dict[str, Any]:
    return there.agent.services.replica.state.topics


async def delete(there: Guarded, name: str) -> bytes:
    """By the administrator; the topic's id."""
    gone: bytes = topics(there)[name].topic_id
    request = dt.DeleteTopicsRequest([dt.DeleteTopicState(name)], timeout_ms=5000)
    answer = await there.agent.call("DeleteTopics", request, 6, there.root)
    assert [row.error_code for row in answer.responses] == [0]
    return gone


async def bring_back(there: Guarded, topic_id: bytes) -> None:
    result = await there.agent.services.replica.propose(UndeleteTopic(topic_id=topic_id))
    assert isinstance(result, Done), result


def deletion(*rows: tuple[str | None, bytes]) -> dt.DeleteTopicsRequest:
    return dt.DeleteTopicsRequest([dt.DeleteTopicState(*row) for row in rows], timeout_ms=5000)


def told(answer: dt.DeleteTopicsResponse) -> dict[tuple[str | None, bytes], tuple[int, str | None]]:
    return {(row.name, row.topic_id): (row.error_code, row.error_message) for row in answer.responses}


async def test_a_topic_that_is_made_meanwhile_is_not_deleted() -> None:
    async with guarded() as there:
        await there.allow(DELETE, TOPIC, "seen")
        await there.allow(DESCRIBE, TOPIC, "new")
        asked = deletion(("seen", NIL), ("new", NIL))
        answer = await ask(there, 20, asked, 6, lambda: create(there.agent, topic("new", 1)))
        assert told(answer)["new", NIL] == (NO_SUCH_NAME.code, NO_SUCH_NAME.message)
        assert told(answer)["seen", NIL] == (0, None)
        assert set(topics(there)) == {"hidden", "new"}


async def test_a_topic_that_is_brought_back_meanwhile_is_not_deleted() -> None:
    async with guarded() as there:
        await there.allow(DELETE, TOPIC, "seen")
        await there.allow(DESCRIBE, TOPIC, "hidden")
        gone = await delete(there, "hidden")
        asked = deletion(("seen", NIL), (None, gone))
        answer = await ask(there, 20, asked, 6, lambda: bring_back(there, gone))
        assert told(answer)[None, gone] == (NO_SUCH_ID.code, NO_SUCH_ID.message)
        assert set(topics(there)) == {"hidden"}


async def test_a_topic_that_goes_and_comes_back_meanwhile_is_not_deleted_by_an_id_given_twice() -> None:
    async with guarded() as there:
        known = topics(there)["hidden"].topic_id
        answer = await ask(
            there, 20, deletion((None, known), (None, known)), 6, lambda: delete(there, "hidden")
        )
        assert told(answer) == {(None, known): (Code.INVALID_REQUEST, "Duplicate topic id.")}
        await bring_back(there, known)
        again = await there.ask("DeleteTopics", deletion((None, known), (None, known)), 6)
        assert told(again) == told(answer), "it tells nobody the name"


async def test_name_and_id_of_one_topic_are_asked_for_each() -> None:
    """As one they would be refused for the other, which may have gone by then."""
    async with guarded() as there:
        known = topics(there)["hidden"].topic_id
        asked = deletion(("hidden", NIL), (None, known))
        answer = told(await there.ask("DeleteTopics", asked, 6))
        assert {row: code for row, (code, _) in answer.items()} == {
            ("hidden", NIL): NO_TOPIC,
            (None, known): NO_TOPIC,
        }
        await there.allow(DELETE, TOPIC, "hidden")
        answer = told(await there.ask("DeleteTopics", asked, 6))
        assert [code for code, _ in answer.values()] == [Code.INVALID_REQUEST]
        both = told(await there.ask("DeleteTopics", deletion(("other", known)), 6))
        assert list(both) == [("other", known)]


async def test_without_the_log_a_topic_that_is_not_known_is_as_one_that_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def away(*_: object) -> bool:
        return False

    async with guarded() as there:
        await there.allow(DESCRIBE, TOPIC, "new")
        await there.allow(DELETE, TOPIC, "own")
        monkeypatch.setattr(Context, "barrier", away)
        answer = await there.ask("DeleteTopics", deletion(("new", NIL), ("own", NIL), (None, b"?" * 16)), 6)
        assert {row: code for row, (code, _) in told(answer).items()} == {
            ("new", NIL): NO_TOPIC,
            ("own", NIL): Code.UNKNOWN_TOPIC_OR_PARTITION,
            (None, b"?" * 16): Code.UNKNOWN_TOPIC_ID,
        }


async def test_while_nobody_deletes_that_is_said_of_what_is_not_there() -> None:
    async with guarded() as there:
        await there.allow(DESCRIBE, TOPIC, "new")
        off = await alter(there.agent, 4, "", ("delete.topic.enable", 0, "false"))
        assert off.error_code == 0
        answer = await there.ask("DeleteTopics", deletion(("new", NIL)), 6)
        assert told(answer)["new", NIL] == (Code.TOPIC_DELETION_DISABLED, "Topic deletion is disabled.")


def named(*rows: tuple[bytes, str | None]) -> md.MetadataRequest:
    return md.MetadataRequest([md.MetadataRequestTopic(*row) for row in rows], True)


@pytest.mark.parametrize(("mode", "creates"), [("enforce", False), ("shadow", True)])
async def test_a_topic_that_is_deleted_meanwhile_is_not_made_anew(mode: str, creates: bool) -> None:
    async with guarded(mode) as there:
        await there.allow(DESCRIBE, TOPIC, "seen")
        answer = await ask(there, 3, named((NIL, "seen")), 12, lambda: delete(there, "seen"))
        assert [row.error_code for row in answer.topics] == [0 if creates else NO_TOPIC]
        assert ("seen" in topics(there)) == creates
        refused = there.agent.services.metrics.authorizer_refused.labels(mode, "create", "topic")
        assert refused._value.get() == 1
        answer = await there.ask("Metadata", named((NIL, "never")), 12)
        assert [row.error_code for row in answer.topics] == [0 if creates else NO_TOPIC]


async def test_a_name_beside_an_id_creates_nothing() -> None:
    async with guarded() as there:
        known = topics(there)["hidden"].topic_id
        answer = await there.ask("Metadata", named((b"?" * 16, "new"), (known, "other")), 12)
        assert [row.error_code for row in answer.topics] == [Code.UNKNOWN_TOPIC_ID, NO_TOPIC]
        await there.agent.call("Metadata", named((b"?" * 16, "new")), 12, there.root)
        assert set(topics(there)) == {"seen", "hidden"}


async def test_a_topic_that_is_brought_back_meanwhile_is_not_told_of() -> None:
    async with guarded() as there:
        await there.allow(DESCRIBE, GROUP, "g")
        await there.allow(DESCRIBE, TOPIC, "hidden")
        gone = await delete(there, "seen")
        both = [topics(there)["hidden"].topic_id, gone]
        answer = await ask(
            there, 3, named(*((each, None) for each in both)), 12, lambda: bring_back(there, gone)
        )
        assert {row.topic_id: (row.error_code, row.name) for row in answer.topics} == {
            both[0]: (0, "hidden"),
            gone: (Code.UNKNOWN_TOPIC_ID, None),
        }
        assert await delete(there, "seen") == gone
        rows = [of.OffsetFetchRequestTopics("", each, [0]) for each in both]
        request = of.OffsetFetchRequest(groups=[of.OffsetFetchRequestGroup("g", topics=rows)])
        answer = await ask(there, 9, request, 10, lambda: bring_back(there, gone))
        assert {row.topic_id: row.partitions[0].error_code for row in answer.groups[0].topics} == {
            both[0]: 0,
            gone: Code.UNKNOWN_TOPIC_ID,
        }


async def test_a_fetch_waits_for_no_topic_that_may_be_brought_back() -> None:
    async with guarded() as there:
        gone = await delete(there, "seen")
        ctx = Context(there.agent.services, there.alice, "test")
        assert await refusals(ctx, [Row("", gone, 0)], by_id=True) == {gone: Code.UNKNOWN_TOPIC_ID}
