"""Delegation tokens in the replicated state: who may do what with them, until when by the log's clock."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf.message import Message

from coordination.commands import CreateDelegationToken, ExpireDelegationToken, RenewDelegationToken
from coordination.kafka_codes import Code
from coordination.state import Done, Refused, delegation
from coordination.state.levels import DELEGATION
from tests.unit.coordination.kit import A, Script

FIELDS: dict[str, Any] = {
    "token_id": "t1",
    "owner": "alice",
    "requester": "root",
    "renewers": ["bob"],
    "lifetime_ms": 100_000,
    "renew_ms": 30_000,
}


@pytest.fixture
def script() -> Script:
    script = Script()
    script.register(A)
    return script


def create(**fields: Any) -> CreateDelegationToken:
    return CreateDelegationToken(**{**FIELDS, **fields})


def renew(principal: str, renew_ms: int = 50_000, token_id: str = "t1") -> RenewDelegationToken:
    return RenewDelegationToken(token_id=token_id, principal=principal, renew_ms=renew_ms)


def expire(principal: str, period_ms: int, token_id: str = "t1") -> ExpireDelegationToken:
    return ExpireDelegationToken(token_id=token_id, principal=principal, period_ms=period_ms)


def code(script: Script, message: Message) -> Code:
    result = script.one(A, message)
    return result.code if isinstance(result, Refused) else Code.NONE


def test_a_token_is_made_renewed_and_ended(script: Script) -> None:
    assert script.one(A, create()) == Done()
    token = script.state.delegation_tokens["t1"]
    made = script.state.clock_ms
    assert token == ("alice", "root", ("bob",), made, made + 30_000, made + 100_000)
    assert script.one(A, renew("bob")) == Done(script.state.clock_ms + 50_000)
    assert script.one(A, renew("alice", 200_000)) == Done(token.ends_ms), "never beyond its lifetime"
    script.through_snapshot()
    assert script.state.delegation_tokens["t1"].expires_ms == token.ends_ms
    assert script.one(A, expire("bob", 10_000)) == Done(script.state.clock_ms + 10_000)
    assert script.one(A, expire("alice", -1)) == Done(script.state.clock_ms)
    assert not script.state.delegation_tokens
    script.through_snapshot()


def test_only_the_owner_and_the_renewers(script: Script) -> None:
    script.one(A, create())
    for who in ("root", "carol", "", "User:alice"):
        assert code(script, renew(who)) == Code.DELEGATION_TOKEN_OWNER_MISMATCH
        assert code(script, expire(who, -1)) == Code.DELEGATION_TOKEN_OWNER_MISMATCH
    for message in (renew("alice", token_id="t2"), expire("alice", -1, token_id="")):
        assert code(script, message) == Code.DELEGATION_TOKEN_NOT_FOUND
    assert "t1" in script.state.delegation_tokens


def test_what_is_over_comes_to_life_by_nothing_and_is_forgotten(script: Script) -> None:
    script.one(A, create())
    assert script.one(A, expire("alice", 0)) == Done(script.state.clock_ms)
    assert code(script, renew("alice")) == Code.DELEGATION_TOKEN_EXPIRED
    assert code(script, expire("alice", 1_000)) == Code.DELEGATION_TOKEN_EXPIRED
    assert script.one(A, create(token_id="t2")) == Done()
    assert list(script.state.delegation_tokens) == ["t2"]
    script.one(A, create(token_id="t3"))
    script.one(A, expire("alice", 0, "t3"))
    assert code(script, expire("alice", -1, "t3")) == Code.NONE, "it may go all the same"


@pytest.mark.parametrize(
    ("fields", "wanted"),
    [
        ({"owner": ""}, Code.INVALID_PRINCIPAL_TYPE),
        ({"owner": "a" * 256}, Code.INVALID_PRINCIPAL_TYPE),
        ({"requester": ""}, Code.INVALID_PRINCIPAL_TYPE),
        ({"renewers": ["bob", ""]}, Code.INVALID_PRINCIPAL_TYPE),
        ({"renewers": ["bob"] * 65}, Code.INVALID_REQUEST),
        ({"token_id": ""}, Code.INVALID_REQUEST),
        ({"token_id": "t" * 65}, Code.INVALID_REQUEST),
        ({"lifetime_ms": 0}, Code.INVALID_TIMESTAMP),
        ({"renew_ms": -1}, Code.INVALID_TIMESTAMP),
        ({"lifetime_ms": delegation.PERIOD_MS_MAX + 1}, Code.INVALID_TIMESTAMP),
    ],
    ids=str,
)
def test_what_is_no_token(script: Script, fields: dict[str, Any], wanted: Code) -> None:
    assert code(script, create(**fields)) == wanted
    assert not script.state.delegation_tokens
    script.one(A, create())
    assert code(script, create()) == Code.INVALID_REQUEST, "an id is used once"
    for period_ms in (0, delegation.PERIOD_MS_MAX + 1):
        assert code(script, renew("alice", period_ms)) == Code.INVALID_TIMESTAMP


def test_there_is_a_most_of_all_and_of_one(script: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delegation, "TOKENS_MAX", 3)
    monkeypatch.setattr(delegation, "TOKENS_OF_ONE_MAX", 2)
    for number in (1, 2):
        assert code(script, create(token_id=str(number))) == Code.NONE
    assert code(script, create(token_id="3")) == Code.POLICY_VIOLATION
    assert code(script, create(token_id="3", requester="carol")) == Code.NONE
    assert code(script, create(token_id="4", requester="dave")) == Code.POLICY_VIOLATION
    script.one(A, expire("alice", -1, "1"))
    assert code(script, create(token_id="4", requester="dave")) == Code.NONE


def test_below_its_level_it_is_refused(script: Script) -> None:
    script.state.feature_level = DELEGATION - 1
    for message in (create(), renew("alice"), expire("alice", -1)):
        assert code(script, message) == Code.UNSUPPORTED_VERSION
