"""Requests of Kafka's in the name of whoever asks, and what their answers say, in words."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import fields, is_dataclass
from typing import Any, Final

from agent.http.answers import Problem
from agent.http.asking import asks
from agent.http.console.changing.plans import Refusal
from agent.http.needs import CHANGES
from agent.http.parts import KafkaAsked, Parts
from agent.telemetry.trail import http_actor
from coordination.kafka_codes import Code
from coordination.state.acl_types import spoken

CREATE_TOPICS, DELETE_TOPICS, CREATE_PARTITIONS, ALTER_CONFIGS = 19, 20, 37, 44
DELETE_RECORDS, OFFSET_COMMIT, DELETE_GROUPS, CREATE_ACLS, DELETE_ACLS = 21, 8, 42, 30, 31
"""Kafka's API keys."""
TIMEOUT_MS: Final = 10_000
"""Of requests that say how long they may wait for the log."""
_NAMES: Final = ("name", "resource_name", "group_id", "partition_index")
_DENIED: Final = "_AUTHORIZATION_FAILED"
_HAS_MEMBERS: Final = "the group has members: stop them, and wait until they have left"
_WORDS: Final = {
    Code.NON_EMPTY_GROUP: _HAS_MEMBERS,
    Code.UNKNOWN_MEMBER_ID: _HAS_MEMBERS,
    Code.REBALANCE_IN_PROGRESS: _HAS_MEMBERS,
    Code.UNKNOWN_TOPIC_OR_PARTITION: "there is no such topic or partition",
    Code.UNKNOWN_TOPIC_ID: "the topic is not there any more",
    Code.GROUP_ID_NOT_FOUND: "there is no such group",
    Code.OFFSET_OUT_OF_RANGE: "the offset is none of the partition's",
    Code.POLICY_VIOLATION: "the topic is compacted only: its records go by key (cleanup.policy)",
    Code.COORDINATOR_NOT_AVAILABLE: "the log is not reached: nothing was changed",
    Code.LEADER_NOT_AVAILABLE: "the log is not reached: nothing was changed",
    Code.REQUEST_TIMED_OUT: "the outcome is not known yet: look at it before you ask again",
    Code.THROTTLING_QUOTA_EXCEEDED: "the quota of changes is used up: try again in a moment",
}
"""Where Kafka's answer has no words."""


def kafka_of(parts: Parts) -> KafkaAsked:
    """Raises Problem 503 until clients are served."""
    kafka = parts.asked()
    if kafka is None:
        raise Problem(503, "this agent does not serve clients yet", "try again, or ask another agent")
    return kafka


def asker(
    parts: Parts, kind: str, key: int, made: Callable[[], Any], about: str = ""
) -> Callable[[bool], Awaitable[Sequence[Refusal]]]:
    """What does a plan by one request, which `made` makes anew each time: guards take rows out.

    `about`: the group, of requests that its coordinator answers.
    """

    async def do(rehearse: bool) -> Sequence[Refusal]:
        kafka, actor = kafka_of(parts), http_actor.get()
        response = await kafka.ask(actor, key, made(), rehearse=rehearse)
        told = (_told(parts, kafka, kind, each, about) for each in _refusals(response))
        return list(dict.fromkeys(told))  # one for a group, of whose partitions each says it

    return do


def _denied(kind: str, what: str, code: Code) -> Refusal:
    """Words for whoever may not: the change's operation, on what the code is about."""
    need = CHANGES[kind][1].need
    assert need is not None, kind
    resource = code.name.removesuffix(_DENIED).lower()
    asked = f"{spoken(need.operation.name)} on the {resource}"
    who = f"User:{http_actor.get().principal}"
    return Refusal(what, code, f"{who} may not: this asks for {asked}; an ACL has to allow it")


def _refusals(response: Any, of: str = "") -> Iterator[Refusal]:
    """Every row of a response that has an error, with the names above it."""
    names = (getattr(response, each, None) for each in _NAMES)
    own = " ".join([of, *(str(each) for each in names if each not in (None, ""))]).strip()
    code = getattr(response, "error_code", 0)
    if code:
        yield Refusal(own, Code(code), getattr(response, "error_message", None) or "")
    for each in fields(response):
        inner = getattr(response, each.name)
        for row in inner if isinstance(inner, list) else ():
            if is_dataclass(row):
                yield from _refusals(row, own)


def _told(parts: Parts, kafka: KafkaAsked, kind: str, one: Refusal, about: str) -> Refusal:
    if one.code.name.endswith(_DENIED) and asks(parts):
        return _denied(kind, about if one.code is Code.GROUP_AUTHORIZATION_FAILED else one.what, one.code)
    if one.code is Code.NOT_COORDINATOR:
        broker = parts.replica.state.brokers.get(kafka.coordinator(about))
        where = "another agent" if broker is None else f"agent {broker.name} (HTTP {broker.http_address})"
        return Refusal(about, one.code, f"{where} looks after this group: change it on its console")
    return one._replace(message=one.message or _WORDS.get(one.code, ""))
