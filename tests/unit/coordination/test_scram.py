"""Credentials of SCRAM in the replicated state: what is taken, what is refused, what snapshots keep."""

from __future__ import annotations

from typing import Any

import pytest

from coordination.commands import DeleteScramCredential, PutScramCredential
from coordination.kafka_codes import Code
from coordination.state import Done, Refused, scram
from coordination.state.levels import SCRAM
from tests.unit.coordination.kit import A, Script

FIELDS: dict[str, Any] = {
    "user": "alice",
    "mechanism": 1,
    "iterations": 4096,
    "salt": b"salt",
    "stored_key": b"k" * 32,
    "server_key": b"l" * 32,
    "secret": b"1" * 32,
}


@pytest.fixture
def script() -> Script:
    script = Script()
    script.register(A)
    return script


def put(**fields: Any) -> PutScramCredential:
    return PutScramCredential(**{**FIELDS, **fields})


def test_a_credential_is_set_replaced_and_deleted(script: Script) -> None:
    assert script.one(A, put()) == Done()
    other = put(iterations=16384, secret=b"2" * 32)
    assert script.one(A, other) == Done()
    script.through_snapshot()
    table = script.state.scram
    assert table.secret == b"1" * 32, "the first stays: salts of unknown users must not change"
    assert [(key, one.iterations) for key, one in table.credentials.items()] == [(("alice", 1), 16384)]
    delete = DeleteScramCredential(user="alice", mechanism=1)
    assert script.one(A, delete) == Done()
    assert script.one(A, delete) == Refused(Code.RESOURCE_NOT_FOUND, scram.UNKNOWN_USER)
    script.through_snapshot()
    assert script.state.scram.secret == b"1" * 32


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"mechanism": 0}, Code.UNSUPPORTED_SASL_MECHANISM),
        ({"mechanism": 3}, Code.UNSUPPORTED_SASL_MECHANISM),
        ({"user": ""}, Code.UNACCEPTABLE_CREDENTIAL),
        ({"user": "u" * 256}, Code.UNACCEPTABLE_CREDENTIAL),
        ({"iterations": 4095}, Code.UNACCEPTABLE_CREDENTIAL),
        ({"iterations": 16385}, Code.UNACCEPTABLE_CREDENTIAL),
        ({"salt": b""}, Code.UNACCEPTABLE_CREDENTIAL),
        ({"salt": b"s" * 257}, Code.UNACCEPTABLE_CREDENTIAL),
        ({"stored_key": b"k" * 64}, Code.UNACCEPTABLE_CREDENTIAL),
        ({"mechanism": 2}, Code.UNACCEPTABLE_CREDENTIAL),
        ({"secret": b""}, Code.INVALID_REQUEST),
    ],
    ids=str,
)
def test_what_is_no_credential_is_refused(script: Script, fields: dict[str, Any], code: Code) -> None:
    result = script.one(A, put(**fields))
    assert isinstance(result, Refused)
    assert result.code == code
    assert not script.state.scram.credentials


def test_there_is_a_most_but_those_that_are_there_can_be_changed(
    script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scram, "CREDENTIALS_MAX", 1)
    assert script.one(A, put()) == Done()
    assert script.one(A, put(iterations=5000)) == Done()
    refused = script.one(A, put(user="bob"))
    assert isinstance(refused, Refused)
    assert refused.code == Code.POLICY_VIOLATION


def test_below_its_level_it_is_refused(script: Script) -> None:
    script.state.feature_level = SCRAM - 1
    for message in (put(), DeleteScramCredential(user="alice", mechanism=1)):
        refused = script.one(A, message)
        assert isinstance(refused, Refused)
        assert refused.code == Code.UNSUPPORTED_VERSION


def test_what_is_kept_is_not_shown(script: Script) -> None:
    script.one(A, put(stored_key=b"stored-key".ljust(32), server_key=b"server-key".ljust(32)))
    shown = repr(script.state.scram)
    assert "alice" in shown
    for secret in ("stored-key", "server-key", "1" * 32):
        assert secret not in shown
