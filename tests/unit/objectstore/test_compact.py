"""Compaction of batches: the newest record of a key stays, where it was, as it was."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import pytest

from objectstore.batch import (
    DELETE_HORIZON,
    HEADER_BYTES,
    NewRecord,
    Record,
    build,
    check_crc,
    patch,
    peek,
    records,
    seal,
    split,
)
from objectstore.compact import HORIZON_MS_MAX, Pass, Rules
from objectstore.compression import Compression
from objectstore.offset_map import OffsetMap
from objectstore.transactions import Aborted, Transactions

DAY = 86_400_000
NOW = 1_700_000_000_000
LONG_MAX = (1 << 63) - 1


def at(base: int, *pairs: tuple[bytes | None, bytes | None], **more: object) -> bytes:
    """A batch at `base` of (key, value) records with headers, one ms apart."""
    rows = [
        NewRecord(1000 + base + n, key, value, [("h", b"%d" % (base + n)), ("h", None)])
        for n, (key, value) in enumerate(pairs)
    ]
    return build(rows, base_offset=base, **more)  # type: ignore[arg-type]  # the keywords of build


def one_pass(
    log: Sequence[bytes],
    now_ms: int = NOW,
    keys_max: int = 1000,
    delete_retention_ms: int = DAY,
    **more: object,
) -> tuple[list[bytes], Pass]:
    """The log after one pass over everything."""
    run = Pass(OffsetMap(keys_max), Rules(now_ms, delete_retention_ms), **more)  # type: ignore[arg-type]  # only what Pass takes
    for each in log:
        if not run.learn(each):
            break
    kept = [bytes(batch) for batch in run.clean(b"".join(log))] if log else []
    for batch in kept:
        if batch in log:
            continue
        assert check_crc(batch, 0, len(batch))
        header = peek(batch)
        assert header.record_count == len(list(records(batch)))
        deltas = [record.offset - header.base_offset for record in records(batch)]
        assert deltas == sorted(set(deltas))
        assert not deltas or deltas[-1] <= header.last_offset_delta
    return kept, run


def rows(log: Sequence[bytes]) -> list[Record]:
    """All records of a log, headers as a list."""
    return [row._replace(headers=list(row.headers)) for batch in log for row in records(batch)]


@pytest.mark.parametrize("codec", list(Compression))
def test_only_the_newest_record_of_a_key_stays_and_is_as_it_was(codec: Compression) -> None:
    log = [
        at(
            0,
            (b"a", b"1"),
            (b"b", b"1"),
            (b"c", b"1"),
            compression=codec,
            producer_id=9,
            producer_epoch=3,
            base_sequence=7,
        ),
        at(3, (b"a", b"2"), (b"a" * 40, b"long"), (b"", b"empty"), compression=codec),
        at(6, (b"b", b"3"), (b"d", b"3"), compression=codec),
    ]
    kept, run = one_pass(log)
    before = {row.offset: row for row in rows(log)}
    assert [row.offset for row in rows(kept)] == [2, 3, 4, 5, 6, 7]
    assert rows(kept) == [before[row.offset] for row in rows(kept)]
    assert kept[1:] == log[1:], "a batch that stays whole stays byte for byte"
    old, new = peek(log[0]), peek(kept[0])
    same = (
        "base_offset",
        "last_offset_delta",
        "attributes",
        "producer_id",
        "producer_epoch",
        "base_sequence",
    )
    assert [getattr(new, name) for name in same] == [getattr(old, name) for name in same]
    assert (new.record_count, new.max_timestamp, run.offsets.latest) == (1, 1002, 7)
    assert (run.counts.records_in, run.counts.records_out) == (8, 6)
    assert run.counts.bytes_in == sum(map(len, log))
    assert run.counts.bytes_out == sum(map(len, kept))


def test_a_batch_of_which_nothing_stays_goes_and_its_offsets_are_not_given_again() -> None:
    log = [at(0, (b"a", b"1"), (b"b", b"1")), at(2, (b"a", b"2"), (b"b", b"2"))]
    kept, _ = one_pass(log)
    assert kept == [log[1]]


def test_the_maximum_timestamp_is_that_of_what_stays_unless_it_is_the_append_time() -> None:
    raw = build([NewRecord(500, b"a", b"x"), NewRecord(900, b"b", b"x"), NewRecord(0, b"c", b"x")])
    newer = at(3, (b"b", b"y"), (b"a", b"y"))
    kept, _ = one_pass([raw, newer])
    assert (peek(kept[0]).max_timestamp, rows(kept)[0].timestamp) == (0, 0)
    stamped = seal(peek(raw)._replace(attributes=0x08, max_timestamp=7777), raw[HEADER_BYTES:])
    kept, _ = one_pass([stamped, newer])
    assert (peek(kept[0]).max_timestamp, rows(kept)[0].timestamp) == (7777, 7777)


def test_tombstones_stay_for_a_time_counted_from_the_first_pass_that_kept_them() -> None:
    log = [at(0, (b"a", b"1"), (b"b", b"1")), at(2, (b"a", None), (b"c", b"1")), at(4, (b"z", b"1"))]
    once, _ = one_pass(log, NOW)
    assert [(row.offset, row.value) for row in rows(once)] == [(1, b"1"), (2, None), (3, b"1"), (4, b"1")]
    header = peek(once[1])
    assert header.attributes & DELETE_HORIZON
    assert (header.delete_horizon_ms, header.max_timestamp) == (NOW + DAY, 1003)
    assert rows(once)[1:] == rows(log)[2:], "timestamps and headers survive the new base timestamp"
    assert peek(once[0]).delete_horizon_ms is None, "no tombstone, no horizon"
    again, _ = one_pass(once, NOW + DAY - 1)
    assert again == once, "the horizon is not moved"
    late, _ = one_pass(once, NOW + DAY)
    assert [row.offset for row in rows(late)] == [1, 3, 4]
    assert peek(late[1]).delete_horizon_ms == NOW + DAY


def test_a_tombstone_that_is_not_the_newest_goes_at_once() -> None:
    kept, _ = one_pass([at(0, (b"a", None)), at(1, (b"a", b"2"))])
    assert [(row.offset, row.value) for row in rows(kept)] == [(1, b"2")]


def test_the_end_of_the_log_keeps_a_record() -> None:
    """A reader must be able to reach the high watermark, whatever goes."""
    log = [at(0, (b"a", b"1")), at(1, (b"a", None), (b"b", None))]
    once, _ = one_pass(log, delete_retention_ms=0)
    assert [row.offset for row in rows(once)] == [1, 2]
    late, _ = one_pass(once, NOW + 1, delete_retention_ms=0)
    assert [row.offset for row in rows(late)] == [2]
    after, _ = one_pass([*late, at(3, (b"c", b"1"))], NOW + 1)
    assert [row.offset for row in rows(after)] == [3]


def test_records_without_keys_go_but_for_the_end() -> None:
    kept, _ = one_pass([at(0, (None, b"1"), (b"k", b"1")), at(2, (None, b"2"), (None, b"3"))])
    assert [row.offset for row in rows(kept)] == [1, 3]


def test_what_does_not_fit_the_map_is_left_for_the_next_pass() -> None:
    log = [at(2 * n, (b"a%d" % n, b"x"), (b"same", b"%d" % n)) for n in range(5)]
    kept, run = one_pass(log, keys_max=4)
    assert (run.full, run.offsets.latest, len(run.offsets)) == (True, 3, 3)
    assert [row.offset for row in rows(kept)] == [0, 2, 3, 4, 5, 6, 7, 8, 9], "behind the range all stays"
    assert kept[1:] == log[1:]
    _, run = one_pass(log, keys_max=1)
    assert run.offsets.latest == 1, "the first batch is always taken: else there would be no progress"


def _broken() -> dict[str, bytes]:
    """Batches under a good CRC that cannot be read, at offset 1."""
    sound = at(1, (b"a", b"1"), (b"b", b"2"))
    header, body = peek(sound), sound[HEADER_BYTES:]
    twice = bytearray(body)
    second = 1 + body[0] // 2
    assert twice[second + 3] == 2, "the offset delta of the second record, as a zigzag number"
    for value in (0, 4):
        twice[second + 3] = value
    return {
        "not gzip": seal(header._replace(attributes=1), b"\x55" * 50),
        "offsets beyond the batch": seal(header, bytes(twice)),
        "cut short": seal(header, body[:-3]),
        "a length that is negative": seal(header, b"\x01" + body[1:]),
        "more than counted": seal(header._replace(record_count=1), body),
    }


@pytest.mark.parametrize("name", _broken())
def test_a_batch_that_cannot_be_opened_stays_as_it_is(name: str) -> None:
    broken = _broken()[name]
    log = [at(0, (b"a", b"0")), broken, at(3, (b"a", b"3"), (b"x", None))]
    kept, run = one_pass(log)
    assert kept[0] == broken, "and the record before it went, since a newer one is known"
    assert run.counts.unreadable == 1
    assert run.offsets.latest == 4


def marker(base: int, producer: int, commit: bool) -> bytes:
    """A control batch as brokers write it: version 0, type 0 abort or 1 commit."""
    raw = build(
        [NewRecord(NOW, struct.pack(">hh", 0, int(commit)), struct.pack(">hi", 0, 0))],
        base_offset=base, producer_id=producer, producer_epoch=0, transactional=True,
    )  # fmt: skip
    return seal(peek(raw)._replace(attributes=0x30), raw[HEADER_BYTES:])


def test_aborted_records_go_and_markers_stay_as_long_as_readers_need_them() -> None:
    def sent(base: int, producer: int, key: bytes) -> bytes:
        return at(
            base,
            (key, b"%d" % base),
            transactional=True,
            producer_id=producer,
            producer_epoch=0,
            base_sequence=0,
        )

    log = [
        at(0, (b"a", b"old")),
        sent(1, 7, b"a"),
        sent(2, 8, b"b"),
        marker(3, 7, commit=False),
        marker(4, 8, commit=True),
        sent(5, 7, b"c"),
        marker(6, 7, commit=True),
        at(7, (b"b", b"new"), (b"end", b"")),
    ]
    aborted = [Aborted(7, 1, 3)]
    once, _ = one_pass(log, NOW, transactions=Transactions(aborted))
    assert once == [log[0], *log[3:]], "the aborted record went and superseded nothing"
    twice, _ = one_pass(once, NOW, transactions=Transactions(aborted))
    assert [peek(batch).base_offset for batch in twice] == [0, 3, 4, 5, 6, 7]
    horizons = [peek(batch).delete_horizon_ms for batch in twice]
    assert horizons == [None, NOW + DAY, NOW + DAY, None, None, None]
    late, _ = one_pass(twice, NOW + DAY, transactions=Transactions(aborted))
    assert [peek(batch).base_offset for batch in late] == [0, 5, 6, 7]
    assert [rows([batch])[0].timestamp for batch in twice[1:3]] == [NOW, NOW]


def test_the_last_marker_stays() -> None:
    log = [at(0, (b"a", b"1")), marker(1, 5, commit=True)]
    kept = log
    for later in range(3):
        kept, _ = one_pass(kept, NOW + later * DAY)
    assert kept == log


def test_several_batches_in_one_buffer_are_taken_one_by_one() -> None:
    log = b"".join([at(0, (b"a", b"1")), at(1, (b"a", b"2"))])
    moved = bytearray(log)
    patch(moved, split(log)[1][0], 50)
    kept, run = one_pass([bytes(moved)])
    assert [row.offset for row in rows(kept)] == [50]
    assert run.offsets.latest == 50


@pytest.mark.parametrize("retention_ms", [LONG_MAX, LONG_MAX - NOW + 1, LONG_MAX - NOW])
def test_tombstones_that_are_kept_for_ever_get_no_horizon(retention_ms: int) -> None:
    """now + delete.retention.ms leaves an int64: Kafka's sum is negative then, and sets no horizon either."""
    log = [
        at(0, (b"a", b"1"), (b"b", b"1")),
        at(2, (b"a", None)),
        marker(3, 9, commit=False),
        at(4, (b"c", b"1")),
    ]
    kept, run = one_pass(log, delete_retention_ms=retention_ms)
    assert kept[1:] == log[1:]
    assert [(row.key, row.value) for row in rows(kept[:1])] == [(b"b", b"1")]
    assert [peek(batch).delete_horizon_ms for batch in kept] == [None] * 4
    assert run.counts.unreadable == 0
    again, _ = one_pass(kept, now_ms=NOW + 1000 * DAY, delete_retention_ms=retention_ms)
    assert again == kept


@pytest.mark.parametrize("oldest", [-1, 0, NOW, -(1 << 63)])
def test_the_latest_horizon_there_is(oldest: int) -> None:
    """A timestamp too far from it for an int64 leaves the batch as it is."""
    log = [build([NewRecord(oldest, b"a", None, [])], base_offset=0), at(1, (b"c", b"1"))]
    kept, run = one_pass(log, delete_retention_ms=HORIZON_MS_MAX - NOW)
    assert [row.timestamp for row in rows(kept[:1])] == [oldest]
    far = oldest < -1
    assert peek(kept[0]).delete_horizon_ms == (None if far else HORIZON_MS_MAX)
    assert run.counts.unreadable == far
