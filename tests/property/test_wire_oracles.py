"""Our codecs against two that others wrote: what we encode they read as the same message, and back."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from agent.net.wire.generator.definition import Api
from tests.property.wire_messages import (
    APIS,
    ORACLE_PRODUCE_MIN,
    KafkaPython,
    Kio,
    codecs,
    difference,
    message_of,
    messages,
    module,
)

ORACLES: dict[str, Any] = {"kio": Kio(), "kafka-python": KafkaPython()}
ONLY_KIO = {
    "ConsumerGroupDescribe",
    "ConsumerGroupHeartbeat",
    "CreateDelegationToken",
    "DescribeDelegationToken",
    "ExpireDelegationToken",
    "RenewDelegationToken",
}
FEW = settings(
    max_examples=6,
    deadline=None,
    database=None,
    phases=[Phase.generate, Phase.shrink],
    suppress_health_check=list(HealthCheck),
)


def cases(oracle: str) -> list[Any]:
    """Each message in each version that the oracle knows."""
    return [
        pytest.param(api, kind, version, id=f"{api.name}-{kind}-v{version}")
        for api, kind in codecs()
        for version in range(ORACLE_PRODUCE_MIN if api.key == 0 else api.versions.low, api.versions.high + 1)
        if ORACLES[oracle].knows(api)
    ]


def test_the_oracles_know_what_they_should() -> None:
    assert all(ORACLES["kio"].knows(api) for api in APIS)
    assert {api.name for api in APIS if not ORACLES["kafka-python"].knows(api)} == ONLY_KIO


# Two tests, not one: each case of a test is a frame deeper in the plugins' wrappers around its function.
@pytest.mark.parametrize(("api", "kind", "version"), cases("kio"))
@FEW
@given(data=st.data())
def test_round_trip_with_kio(api: Api, kind: str, version: int, data: st.DataObject) -> None:
    round_trip("kio", api, kind, version, data)


@pytest.mark.parametrize(("api", "kind", "version"), cases("kafka-python"))
@FEW
@given(data=st.data())
def test_round_trip_with_kafka_python(api: Api, kind: str, version: int, data: st.DataObject) -> None:
    round_trip("kafka-python", api, kind, version, data)


def round_trip(oracle: str, api: Api, kind: str, version: int, data: st.DataObject) -> None:
    """Ours, read and written by the oracle, is ours again."""
    ours = data.draw(messages(api, kind, version))
    source, other = module(api), ORACLES[oracle]
    encoded = b"".join(getattr(source, f"encode_{kind}")(ours, version))
    theirs = other.decode(api, kind, version, encoded)
    assert difference(ours, theirs, other, message_of(api, kind).fields, version) is None
    back = other.encode(api, kind, version, theirs)
    assert getattr(source, f"decode_{kind}")(back, version) == ours
    assert getattr(source, f"decode_{kind}")(encoded, version) == ours
