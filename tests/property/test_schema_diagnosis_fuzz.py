"""The diagnosis agrees with google.protobuf's own parser on what is broken."""

from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet
from hypothesis import given, settings
from hypothesis import strategies as st

from schema import diagnosis
from tests.unit.schema import samples

FLIGHT = samples.message_type(samples.FLIGHTS, "nyc.Flight")
ALL = samples.message_type(samples.ZOO, "zoo.All")
SEEDS = [
    FLIGHT.message_class(year=2013, carrier="UA", dep_delay=1.5, tailnum="N1").SerializeToString(),
    ALL.message_class(
        leaf={"name": "n", "numbers": [1, 300]}, by_name={"k": {"name": "v"}}, at={"seconds": 5}, f_string="é"
    ).SerializeToString(),
]


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """A valid record with a few bytes replaced, dropped or added."""
    payload = bytearray(draw(st.sampled_from(SEEDS)))
    for _ in range(draw(st.integers(1, 4))):
        position = draw(st.integers(0, max(0, len(payload) - 1)))
        match draw(st.integers(0, 2)):
            case 0:
                payload[position : position + 1] = bytes([draw(st.integers(0, 255))])
            case 1:
                del payload[position : position + draw(st.integers(1, 4))]
            case _:
                payload[position:position] = draw(st.binary(min_size=1, max_size=4))
    return bytes(payload)


@given(payload=mutated(), kind=st.sampled_from([FLIGHT, ALL]))
@settings(max_examples=1500, deadline=None)
def test_a_reason_is_found_exactly_when_the_parser_refuses(payload: bytes, kind: object) -> None:
    assert kind in (FLIGHT, ALL)
    message_type = FLIGHT if kind is FLIGHT else ALL
    reason = diagnosis.why_unparsable(payload, message_type.descriptor)
    found = not reason.startswith("cannot be parsed")
    try:
        message = message_type.message_class.FromString(payload)
    except DecodeError:
        assert found, payload.hex()
        return
    assert not found, (payload.hex(), reason)
    if message_type is FLIGHT and len(UnknownFieldSet(message)):
        assert not diagnosis.why_unknown(payload, message_type.descriptor).startswith("has fields")
