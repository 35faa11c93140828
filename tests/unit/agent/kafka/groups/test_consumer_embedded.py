"""The embedded consumer protocol: every version is read, and nonsense is BadEmbedded, nothing else."""

from __future__ import annotations

import contextlib
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.kafka.groups.consumer.embedded import (
    BadEmbedded,
    read_assignment,
    read_subscription,
    write_assignment,
)

names = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=20)


@given(st.dictionaries(names, st.lists(st.integers(0, 2**31 - 1))), st.integers(0, 9))
def test_an_assignment_is_read_as_it_was_written(partitions: dict[str, list[int]], version: int) -> None:
    written = write_assignment(version, partitions)
    assert read_assignment(written) == {name: tuple(row) for name, row in partitions.items()}
    assert written[:2] == struct.pack(">h", min(version, 3))


@given(st.binary(max_size=64))
def test_nonsense_is_told(data: bytes) -> None:
    for read in (read_subscription, read_assignment):
        with contextlib.suppress(BadEmbedded):
            read(data)


def test_a_subscription_of_version_3_is_read_whole() -> None:
    data = struct.pack(">hi", 3, 1) + struct.pack(">h1s", 1, b"a") + struct.pack(">i2s", 2, b"ud")
    data += (
        struct.pack(">ih1siii", 1, 1, b"a", 2, 4, 5) + struct.pack(">i", 7) + struct.pack(">h2s", 2, b"r1")
    )
    said = read_subscription(data)
    assert (said.version, said.topics, said.owned, said.rack) == (3, ("a",), {"a": (4, 5)}, "r1")
    assert said.user_data == b"ud"


@pytest.mark.parametrize("cut", range(2, 12))
def test_what_is_cut_off_is_told(cut: int) -> None:
    whole = struct.pack(">hi", 0, 1) + struct.pack(">h1s", 1, b"a") + struct.pack(">i", -1)
    with pytest.raises(BadEmbedded):
        read_subscription(whole[:cut])
