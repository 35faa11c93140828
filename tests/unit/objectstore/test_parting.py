"""What is left of a batch when records are taken out of it is what log compaction would have left."""

from __future__ import annotations

import random

import pytest

from objectstore import columns, parting
from objectstore.batch import (
    HEADER_BYTES,
    NO_TIMESTAMP,
    CorruptBatch,
    NewRecord,
    build,
    check_crc,
    patch_all,
    peek,
    records,
    with_append_time,
)
from objectstore.compact import Pass, Rules
from objectstore.compression import Compression
from objectstore.offset_map import OffsetMap
from objectstore.parting import part

T0 = 1_700_000_000_000
ROOM = 1 << 20


def batch(count: int, compression: Compression = Compression.NONE) -> bytes:
    made = [
        NewRecord(
            T0 + at * 7 % 11,
            None if at % 3 else b"k%d" % at,
            b"v" * (at * 7),
            [("h", b"%d" % at), ("n", None)],
        )
        for at in range(count)
    ]
    return build(
        made, compression=compression, producer_id=7, producer_epoch=2, base_sequence=40, transactional=True
    )


@pytest.mark.parametrize("compression", list(Compression))
@pytest.mark.parametrize("seed", range(4))
def test_what_stays_keeps_its_offsets_and_what_goes_is_whole(compression: Compression, seed: int) -> None:
    count = 40
    sent = batch(count, compression)
    before = list(records(sent))
    out = sorted(random.Random(seed).sample(range(count), 9))
    left, taken = part(sent, out, ROOM)
    assert taken == [before[at] for at in out]
    assert list(records(left)) == [each for at, each in enumerate(before) if at not in out]
    assert check_crc(left, 0, len(left))
    header, old = peek(left), peek(sent)
    assert header.record_count == count - 9
    assert header.compression is compression
    for name in ("base_offset", "last_offset_delta", "producer_id", "producer_epoch", "base_sequence"):
        assert getattr(header, name) == getattr(old, name)
    assert header.transactional
    newest = max(each.timestamp for each in records(left))
    assert header.max_timestamp == newest


@pytest.mark.parametrize("append_time", [False, True])
def test_the_native_walk_and_the_codec_part_alike(monkeypatch: pytest.MonkeyPatch, append_time: bool) -> None:
    """Where nobody compiled the walk, or it does not take a record, the codec does the same."""
    sent = with_append_time(batch(40), T0 + 99) if append_time else batch(40)
    for out in ([0], [39], [0, 1, 2, 38, 39], [*range(1, 40)], [*range(0, 40, 2)], []):
        natively = part(sent, out, ROOM)
        with monkeypatch.context() as patched:
            patched.setattr(parting, "single", lambda *_: None)
            patched.setattr(parting, "passed", lambda *_: None)
            assert part(sent, out, ROOM) == natively
        assert [each.offset for each in natively[1]] == out


@pytest.mark.parametrize("compression", list(Compression))
def test_a_batch_of_which_nothing_stays_is_its_header(compression: Compression) -> None:
    sent = batch(3, compression)
    left, taken = part(sent, range(3), ROOM)
    assert len(taken) == 3
    assert list(records(left)) == []
    header = peek(left)
    assert (header.record_count, header.last_offset, header.max_timestamp) == (0, 2, NO_TIMESTAMP)
    assert (header.producer_id, header.base_sequence, header.transactional) == (7, 40, True)
    assert header.compression is Compression.NONE, "there is nothing to decompress"
    assert check_crc(left, 0, len(left))


def test_the_append_time_stays_the_batch_s() -> None:
    append_time = T0 + 99
    left, taken = part(with_append_time(batch(3), append_time), [2], ROOM)
    assert peek(left).max_timestamp == append_time
    assert [each.timestamp for each in taken] == [append_time]


def test_what_cannot_be_read_is_not_parted() -> None:
    sent = batch(3, Compression.GZIP)
    with pytest.raises(CorruptBatch):
        part(sent[:-4], [1], ROOM)
    with pytest.raises(CorruptBatch):
        part(sent, [1], 10)


def test_log_compaction_takes_what_was_parted() -> None:
    """Records of a key go for newer ones wherever holes are; an empty batch goes but for the last."""
    older, _ = part(batch(3), [1], ROOM)
    nothing, _ = part(batch(3), [0, 1, 2], ROOM)
    newer, _ = part(batch(6), [0, 2], ROOM)
    log = bytearray(older + nothing + newer + nothing)
    end = patch_all(log, 100)
    assert end == 115
    compaction = Pass(OffsetMap(100), Rules(T0, 1000))
    assert compaction.learn(log)
    kept = [each for part_ in compaction.clean(log) for each in records(part_)]
    assert [(each.offset, each.key) for each in kept] == [(100, b"k0"), (109, b"k3")]
    last = compaction.clean(log)[-1]
    assert (peek(last).record_count, peek(last).last_offset) == (0, 114)
    assert compaction.counts.unreadable == 0


def test_records_that_are_passed_over_tell_their_newest_time_and_their_end() -> None:
    """Where the walk is compiled; elsewhere nothing is known of them."""
    rng = random.Random(1)
    given = [NewRecord(T0 + rng.randrange(-500, 500), None, bytes(rng.randrange(300)), ()) for _ in range(60)]
    sent = memoryview(build(given))
    header = peek(sent)
    at, done = HEADER_BYTES, 0
    assert (columns.passed(sent, at, 1, header) is not None) == columns.NATIVE
    while columns.NATIVE and done < len(given):
        some = min(rng.randrange(1, 9), len(given) - done)
        over, held = columns.passed(sent, at, some, header), columns.stretch(sent, at, some, header)
        assert over is not None
        assert held is not None
        assert over == (max(each.timestamp for each in given[done : done + some]), held[1])
        at, done = over[1], done + some
    assert at == (len(sent) if columns.NATIVE else HEADER_BYTES)
    assert columns.passed(sent, HEADER_BYTES, len(given) + 1, header) is None
