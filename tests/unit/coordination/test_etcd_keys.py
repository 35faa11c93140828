"""The layout of the log in etcd: keys that sort as their numbers do, and values that read back."""

from __future__ import annotations

import pytest

from coordination.etcd import keys as requests
from coordination.etcd.keys import Keys, decode_key, encode_key, prefix_end
from coordination.etcd.proto import kv_pb2
from coordination.log import LogEntry, Member

KEYS = Keys("prod-1")
LARGEST = 2**63 - 1


def test_entry_keys_sort_by_incarnation_then_sequence() -> None:
    numbers = [(1, 1), (1, 2), (1, 255), (1, 4096), (2, 1), (255, 3), (LARGEST, LARGEST)]
    keys = [KEYS.entry(*number) for number in numbers]
    assert keys == sorted(keys)
    assert [KEYS.entry_id(key) for key in keys] == numbers
    assert all(KEYS.log < key < prefix_end(KEYS.log) for key in keys)


def test_an_incarnation_s_range_holds_its_entries_and_no_other() -> None:
    begin, end = KEYS.entries_of(1), prefix_end(KEYS.entries_of(1))
    assert begin < KEYS.entry(1, 1) < end
    assert begin < KEYS.entry(1, LARGEST) < end
    assert not begin <= KEYS.entry(2, 1) < end
    assert not begin <= KEYS.entry(16, 1) < end


def test_two_clusters_whose_names_begin_alike_share_no_key() -> None:
    other = Keys("prod-10")
    assert not KEYS.log <= other.entry(1, 1) < prefix_end(KEYS.log)
    assert not KEYS.agents <= other.agent(1) < prefix_end(KEYS.agents)


@pytest.mark.parametrize("name", ["", "a/b", "a b", "ä", "x" * 101])
def test_a_cluster_name_that_would_leave_its_prefix_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="cluster name"):
        Keys(name)


def test_values_read_back() -> None:
    assert decode_key(encode_key(LARGEST, b"\x00info")) == (LARGEST, b"\x00info")
    kv = kv_pb2.KeyValue(key=KEYS.agent(7), value=encode_key(3, b"i"), mod_revision=9, lease=5)
    assert KEYS.to_member(kv) == Member(7, b"i", 3)
    state = requests.key_state(kv)
    assert (state.owner, state.sequence, state.revision) == (5, 3, 9)
    entry = kv_pb2.KeyValue(key=KEYS.entry(7, 3), value=b"payload", mod_revision=9)
    assert KEYS.to_entry(entry) == LogEntry(9, 7, 3, b"payload")


def test_an_incarnation_key_of_a_newer_format_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="format 2"):
        decode_key(b"\x02" + bytes(8))


def test_the_marker_reads_back_and_its_absence_is_zero() -> None:
    found = [kv_pb2.KeyValue(value=requests.encode_marker(LARGEST))]
    assert requests.marker(found) == LARGEST
    assert requests.marker([]) == 0


def test_an_append_rests_on_one_compare_and_never_on_the_entry_s_key() -> None:
    request = requests.append(KEYS, 7, 3, b"payload", info=b"i", lease=5, expected=8)
    assert [(compare.key, compare.mod_revision) for compare in request.compare] == [(KEYS.agent(7), 8)]
    assert [put.request_put.key for put in request.success] == [KEYS.entry(7, 3), KEYS.agent(7)]
    assert request.success[0].request_put.lease == 0, "entries outlive their author"
    assert request.success[1].request_put.lease == 5
    assert [get.request_range.key for get in request.failure] == [KEYS.agent(7)]
