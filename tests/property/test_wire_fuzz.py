"""Hostile bytes end in WireError or in a message, never in another exception or in much memory."""

from __future__ import annotations

import random
import tracemalloc
from collections import Counter
from collections.abc import Iterator

import pytest

from agent.net.wire.api import APIS
from agent.net.wire.errors import WireError
from agent.net.wire.generated import fetch, metadata, produce
from agent.net.wire.primitives import PLAIN_BYTES_MAX, REQUEST_ELEMENTS_MAX
from tests import fuzz_wire

MIB = 1024 * 1024


@pytest.fixture
def traced() -> Iterator[None]:
    tracemalloc.start()
    yield
    tracemalloc.stop()


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_broken_messages_are_refused_within_the_memory_bound(seed: int, traced: None) -> None:
    rng, counts = random.Random(seed), Counter[str]()
    for case in fuzz_wire.cases(rng, 2):
        outcome, peak = fuzz_wire.measured(case)
        counts[outcome] += 1
        counts[fuzz_wire.feed_header(rng, case)] += 1
        assert peak <= fuzz_wire.memory_bound(case.kind, len(case.data)), str(case)
    assert counts["refused"] > 300
    assert counts["ok"] > 100
    assert counts["header refused"] > 100


@pytest.mark.parametrize(
    ("name", "data", "reason"),
    [
        ("huge array", b"\0\0" + b"\0" * 6 + b"\x7f\xff\xff\xff", "elements"),
        ("negative array", b"\0\0" + b"\0" * 6 + b"\xff\xff\xff\xfe", "negative"),
        ("negative string", b"\xff\xfe" + b"\0" * 20, "transactional_id"),
        ("string beyond the end", b"\x7f\xff" + b"\0" * 20, "announced"),
        ("not UTF-8", b"\0\x02\xff\xfe" + b"\0" * 20, "UTF-8"),
        ("nothing", b"", "too early"),
    ],
)
def test_the_error_says_what_is_wrong(name: str, data: bytes, reason: str) -> None:
    with pytest.raises(WireError, match=rf"Produce request v8: .*{reason}"):
        produce.decode_request(data, 8)


def test_every_truncation_of_a_message_is_refused() -> None:
    rng = random.Random(0)
    for api in fuzz_wire.APIS:
        codec = APIS[api.key].codec()
        version = api.versions.high
        whole = b"".join(
            codec.encode_request(fuzz_wire.random_message(rng, api, "request", version), version)
        )
        for length in range(len(whole)):
            with pytest.raises(WireError):
                codec.decode_request(whole[:length], version)


def test_unknown_tags_are_skipped_wherever_they_stand() -> None:
    plain = fetch.FetchRequest(
        topics=[fetch.FetchTopic(topic_id=b"i" * 16, partitions=[fetch.FetchPartition(7)])]
    )
    data = b"".join(fetch.encode_request(plain, 17))
    # Ends: partition's tags, topic's tags, forgotten topics, rack, request's tags.
    assert data.endswith(b"\0\0\1\1\0")
    tag = b"\x01\xe8\x07\x03abc"
    data = data[:-5] + tag + tag + b"\1\1" + tag
    assert fetch.decode_request(data, 17) == plain


@pytest.mark.parametrize(
    "value", [b"\x01\xe8\x07\x7f", b"\xff\xff\xff\xff\x0f", b"\x01\xff\xff\xff\xff\xff\xff\x01"]
)
def test_tags_that_lie_about_their_size_are_refused(value: bytes) -> None:
    data = b"".join(fetch.encode_request(fetch.FetchRequest(), 17))[:-1]
    with pytest.raises(WireError, match="Fetch request v17"):
        fetch.decode_request(data + value, 17)


def test_a_known_tag_must_end_where_it_says() -> None:
    data = b"".join(fetch.encode_request(fetch.FetchRequest(), 17))[:-1]
    with pytest.raises(WireError, match="tagged field 0"):
        fetch.decode_request(data + b"\x01\x00\x05\x02a" + b"\0" * 10, 17)


def test_the_largest_hostile_messages_stay_within_the_bound(traced: None) -> None:
    elements = REQUEST_ELEMENTS_MAX
    topics = (elements + 1).to_bytes(4, "big") + b"\0\0" * (elements + 1)
    case = fuzz_wire.Case(fuzz_wire.APIS[3], "request", 0, topics)
    assert case.api.name == "Metadata"
    outcome, peak = fuzz_wire.measured(case)
    assert (outcome, peak < MIB) == ("refused", True)
    case.data = elements.to_bytes(4, "big") + b"\0\0" * elements
    outcome, peak = fuzz_wire.measured(case)
    assert outcome == "ok"
    assert peak < fuzz_wire.memory_bound("request", len(case.data)) < 150 * MIB


def test_a_message_without_records_has_a_size_of_its_own() -> None:
    with pytest.raises(WireError, match="more than the"):
        metadata.decode_request(bytes(PLAIN_BYTES_MAX + 1), 0)


def test_elements_are_counted_over_all_arrays_of_a_message() -> None:
    topic = b"\0\x01t" + (600).to_bytes(4, "big") + (b"\0" * 4 + b"\xff" * 4) * 600
    count = REQUEST_ELEMENTS_MAX // 600 + 1
    data = b"\0\x01" + b"\0" * 4 + count.to_bytes(4, "big") + topic * count
    with pytest.raises(WireError, match="more than one message may hold"):
        produce.decode_request(data, 0)
