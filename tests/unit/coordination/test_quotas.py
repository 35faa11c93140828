"""Quotas of clients in the replicated state: what is taken, what is refused, what snapshots keep."""

from __future__ import annotations

import math
from typing import Any

import pytest

from coordination.commands import AlterClientQuotas
from coordination.kafka_codes import Code
from coordination.state import Done, Refused, quotas
from coordination.state.levels import QUOTAS
from coordination.state.quota_types import QuotaEntity
from tests.unit.coordination.kit import A, Script

ALICE = {"user": "alice"}
RATE = {"producer_byte_rate": 1024.0}


@pytest.fixture
def script() -> Script:
    script = Script()
    script.register(A)
    return script


def alter(who: dict[str, str], values: dict[str, float | None]) -> AlterClientQuotas:
    changes = [
        AlterClientQuotas.Change(key=key, value=value or 0, remove=value is None)
        for key, value in values.items()
    ]
    return AlterClientQuotas(**who, changes=changes)  # type: ignore[arg-type]  # fields by name


def test_quotas_are_set_changed_and_removed(script: Script) -> None:
    assert script.one(A, alter(ALICE, RATE | {"request_percentage": 12.5})) == Done()
    assert script.one(A, alter({"user": "", "client_id": ""}, RATE)) == Done()
    assert script.one(A, alter({"ip": "10.0.0.1"}, {"connection_creation_rate": 5.0})) == Done()
    assert script.one(A, alter(ALICE, {"request_percentage": None, "consumer_byte_rate": 7.0})) == Done()
    script.through_snapshot()
    assert script.state.quotas.entities == {
        QuotaEntity(user="alice"): {"producer_byte_rate": 1024.0, "consumer_byte_rate": 7.0},
        QuotaEntity(user="", client_id=""): RATE,
        QuotaEntity(ip="10.0.0.1"): {"connection_creation_rate": 5.0},
    }
    assert script.state.quotas.changes == 4
    none = {"producer_byte_rate": None, "consumer_byte_rate": None, "no_such": None}
    assert script.one(A, alter(ALICE, none)) == Done()
    assert QuotaEntity(user="alice") not in script.state.quotas.entities
    script.through_snapshot()


def test_what_changes_nothing_is_no_change(script: Script) -> None:
    assert script.one(A, alter(ALICE, RATE)) == Done()
    assert script.one(A, alter(ALICE, RATE)) == Done()
    assert script.one(A, alter({"user": "bob"}, {"producer_byte_rate": None})) == Done()
    assert script.state.quotas.changes == 1


def test_that_there_were_quotas_outlasts_them(script: Script) -> None:
    script.one(A, alter(ALICE, RATE))
    script.one(A, alter(ALICE, {"producer_byte_rate": None}))
    script.through_snapshot()
    assert script.state.quotas.changes == 2


@pytest.mark.parametrize(
    ("who", "values", "why"),
    [
        ({}, RATE, "Invalid empty client quota entity"),
        (ALICE | {"ip": "1.2.3.4"}, RATE, "IP entity shouldnot be combined"),
        ({"ip": "nowhere"}, {"connection_creation_rate": 1.0}, "nowhere is not a valid IP"),
        ({"ip": "1.2.3.4"}, RATE, "Invalid configuration key producer_byte_rate"),
        (ALICE, {"connection_creation_rate": 1.0}, "Invalid configuration key connection_creation_rate"),
        (ALICE, {"bytes": 1.0}, "Invalid configuration key bytes"),
        (ALICE, {"producer_byte_rate": -1.0}, "Quota producer_byte_rate must be greater than 0"),
        (ALICE, {"request_percentage": 1e-320 * 0}, "Quota request_percentage must be greater than 0"),
        (ALICE, {"request_percentage": math.nan}, "Quota request_percentage must be greater than 0"),
        (ALICE, {"request_percentage": math.inf}, "Quota request_percentage must be at most"),
        (ALICE, {"producer_byte_rate": 1.5}, "producer_byte_rate cannot be a fractional value."),
        (
            ALICE,
            {"consumer_byte_rate": 1e19},
            "consumer_byte_rate is too large for a LONG.",
        ),
        ({"ip": ""}, {"connection_creation_rate": 2.0**31}, "is too large for an INT."),
        ({"user": "u" * 256}, RATE, "user is longer than 255"),
    ],
    ids=str,
)
def test_what_is_no_quota_is_refused_whole(
    script: Script, who: dict[str, str], values: dict[str, Any], why: str
) -> None:
    good: dict[str, float | None] = {"controller_mutation_rate": 1.0} if "ip" not in who else {}
    refused = script.one(A, alter(who, good | values))
    assert isinstance(refused, Refused)
    assert refused.code == Code.INVALID_REQUEST
    assert why in (refused.message or "")
    assert not script.state.quotas.entities


def test_there_is_a_most_but_those_that_are_there_can_be_changed(
    script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quotas, "ENTITIES_MAX", 1)
    assert script.one(A, alter(ALICE, RATE)) == Done()
    assert script.one(A, alter(ALICE, {"request_percentage": 1.0})) == Done()
    refused = script.one(A, alter({"user": "bob"}, RATE))
    assert isinstance(refused, Refused)
    assert refused.code == Code.POLICY_VIOLATION


def test_below_its_level_it_is_refused(script: Script) -> None:
    script.state.feature_level = QUOTAS - 1
    refused = script.one(A, alter(ALICE, RATE))
    assert isinstance(refused, Refused)
    assert refused.code == Code.UNSUPPORTED_VERSION
