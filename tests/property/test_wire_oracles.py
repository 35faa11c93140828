"""Our codecs against two that others wrote: what we encode they read as the same message, and back."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from agent.wire.generator.definition import Api
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

ORACLES = {"kio": Kio(), "kafka-python": KafkaPython()}
ONLY_KIO = {"ConsumerGroupHeartbeat", "ConsumerGroupDescribe"}
FEW = settings(
    max_examples=6,
    deadline=None,
    database=None,
    phases=[Phase.generate, Phase.shrink],
    suppress_health_check=list(HealthCheck),
)
CASES = [
    pytest.param(oracle, api, kind, version, id=f"{oracle}-{api.name}-{kind}-v{version}")
    for api, kind in codecs()
    for version in range(ORACLE_PRODUCE_MIN if api.key == 0 else api.versions.low, api.versions.high + 1)
    for oracle in ORACLES
    if ORACLES[oracle].knows(api)
]


def test_the_oracles_know_what_they_should() -> None:
    assert all(ORACLES["kio"].knows(api) for api in APIS)
    assert {api.name for api in APIS if not ORACLES["kafka-python"].knows(api)} == ONLY_KIO


@pytest.mark.parametrize(("oracle", "api", "kind", "version"), CASES)
@FEW
@given(data=st.data())
def test_round_trip(oracle: str, api: Api, kind: str, version: int, data: st.DataObject) -> None:
    ours = data.draw(messages(api, kind, version))
    source, other = module(api), ORACLES[oracle]
    encoded = b"".join(getattr(source, f"encode_{kind}")(ours, version))
    theirs = other.decode(api, kind, version, encoded)
    assert difference(ours, theirs, other, message_of(api, kind).fields, version) is None
    back = other.encode(api, kind, version, theirs)
    assert getattr(source, f"decode_{kind}")(back, version) == ours
    assert getattr(source, f"decode_{kind}")(encoded, version) == ours
