"""Which batches belong to aborted transactions."""

from __future__ import annotations

import pytest

from objectstore.batch import BatchHeader, NewRecord, build, peek
from objectstore.transactions import Aborted, Transactions

MINE, OTHERS = 7, 8


@pytest.fixture(scope="module")
def sent() -> BatchHeader:
    """A batch of the producer's, in a transaction."""
    raw = build(
        [NewRecord(0, None, b"v")], producer_id=MINE, producer_epoch=0, base_sequence=0, transactional=True
    )
    return peek(memoryview(raw))


@pytest.mark.parametrize("turned", [False, True])
def test_a_batch_is_of_the_transaction_that_it_lies_in(sent: BatchHeader, turned: bool) -> None:
    """Aborted from 10k to 10k + 4, committed behind that; another producer's lie in between."""
    mine = [Aborted(MINE, 10 * n, 10 * n + 4) for n in range(50)]
    others = [Aborted(OTHERS, 10 * n + 5, 10 * n + 9) for n in range(50)]
    known = Transactions([*reversed(mine), *others] if turned else [*mine, *others])
    for offset in range(520):
        due = offset < 500 and offset % 10 < 4
        assert known.aborted(sent._replace(base_offset=offset)) is due, offset


def test_what_is_no_record_of_a_transaction_never_is(sent: BatchHeader) -> None:
    known = Transactions([Aborted(MINE, 0, 9)])
    assert known.aborted(sent)
    assert not known.aborted(sent._replace(attributes=0)), "outside of transactions"
    assert not known.aborted(sent._replace(attributes=0x30)), "a marker"
    assert not known.aborted(sent._replace(producer_id=OTHERS))
    assert not Transactions().aborted(sent)
