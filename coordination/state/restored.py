"""What a restored state must not give out, or answer, as the lost log may have done.

`floe restore cluster` makes a state from a snapshot, archived entries and chunks; what the lost log decided
behind them is not known, but clients may hold it: producer ids, pairs of transactional ids, ids of schemas,
leader epochs. None of these may come to mean something else, or go back. No command does this: it is done
once, to the state of which the first snapshot of a new log is made.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from coordination.state import bounds
from coordination.state.data import StateData
from coordination.state.deleted import existing
from coordination.state.transaction_types import Phase

PRODUCER_IDS_PASSED = 1 << 32  # that the lost log may have given out since: far more than it can have
SCHEMA_IDS_PASSED = 1 << 16
LEADER_EPOCHS_PASSED = 1 << 16


class PositionCut(NamedTuple):
    """A group's position that lay beyond the end of its partition, and was set to that end."""

    group: str
    topic: str
    partition: int
    offset: int
    end: int


def may_have_given(state: StateData, producer_id: int) -> bool:
    """Whether the lost log may have given the id out behind what the state knows: ids are given in order.

    A batch may have any: clients that make theirs up are served, and what they make up says nothing.
    """
    return producer_id < state.next_producer_id + PRODUCER_IDS_PASSED


def settle(state: StateData, highest_producer_id: int) -> list[PositionCut]:
    """Make the state fit to begin a new log; nobody is live, nothing ongoing. The positions that were cut.

    `highest_producer_id`: of those that `may_have_given` in any batch that the state did not know; -1: none.
    """
    assert not state.live, "every author of the lost log is fenced"
    passed = max(state.next_producer_id, highest_producer_id + 1) + PRODUCER_IDS_PASSED
    state.next_producer_id = min(passed, bounds.PRODUCER_ID_MAX)
    state.next_schema_id = min(state.next_schema_id + SCHEMA_IDS_PASSED, bounds.SCHEMA_ID_MAX)
    state.leader_epoch = bounds.LEADER_EPOCH.cut(state.leader_epoch + LEADER_EPOCHS_PASSED)
    _new_pairs(state)
    state.snapshots = []  # of the lost log: they are not what the new one is trimmed behind
    state.trimmed_through = state.revision
    return list(_cut(state))


def _new_pairs(state: StateData) -> None:
    """Every transactional id gets a producer id that nobody has.

    A client that ends a transaction of which the state knows nothing must not hear that it is committed; and
    no epoch that the state would give next may be one that the lost log gave. Who has the last pair that the
    state knows may ask for the new one (KIP-360), everybody else is fenced.
    """
    state.transactions_by_producer = {}
    for transaction in state.transactions.values():
        assert not transaction.ongoing, "what was ongoing is aborted"
        transaction.previous = transaction.current
        transaction.producer_id, transaction.epoch = state.next_producer_id, 0
        state.next_producer_id += 1
        transaction.phase, transaction.timed_out, transaction.last_end = Phase.EMPTY, False, None
        state.transactions_by_producer[transaction.producer_id] = transaction


def _cut(state: StateData) -> Iterator[PositionCut]:
    """Positions beyond the end would pass over whatever is written up to there."""
    for group in state.groups.values():
        table = group.offsets
        for place, handle in enumerate(table.handles):
            partition = existing(state, handle)
            if partition is None or table.offsets[place] <= partition.high_watermark:
                continue
            yield PositionCut(
                group.group_id,
                partition.topic.name,
                partition.index,
                table.offsets[place],
                partition.high_watermark,
            )
            table.offsets[place] = partition.high_watermark
