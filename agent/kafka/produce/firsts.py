"""The first batches of producers on one connection: none is taken before one that failed and comes again.

Where a producer is known in a partition, its sequence numbers keep its order. Where it is not, any sequence
may begin (KIP-360), so that a batch that was on its way when the one before it was refused would be taken
first, and the one before it never. This remembers where each producer that is not known begins, and what had
failed by then. A partition is called as its requests call it: a first batch may be refused because the
partition itself is not known yet.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from agent.config import ProduceConfig
from coordination.state.types import Partition
from objectstore.batch import BatchHeader

_MASK = (1 << 31) - 1
_HALF = 1 << 30

Failures = tuple[int, int]
"""What had failed when a batch came, see Client.failures."""

Named = tuple[str | bytes, int]
"""A partition in a request's own words: its topic's name, or from Produce 13 on its id, and its number."""


class First(NamedTuple):
    """A batch that may be its producer's first one: where, in what the topic was found to be, and which."""

    named: Named
    partition: Partition
    header: BatchHeader


_REFUSED = -1, (-1, -1)
"""Instead of handle and failures, of a first batch that was refused: whatever is behind it came too early."""


class Firsts:
    """Of one connection: by partition, producer and epoch, its first sequence, what had failed, and the time.

    A beginning is waited for as long as the config says: what was on its way with it has come by then, or its
    connection ended. A producer that left its first batch out for good may go on then.
    """

    def __init__(self, config: ProduceConfig) -> None:
        self._most, self._wait_s = config.first_batches_max, config.first_batch_ms_max / 1000
        self._first: dict[tuple[Named, int, int], tuple[int, tuple[int, Failures], float]] = {}

    def in_order(self, batches: Iterable[First], failures: Failures, now_s: float) -> bool:
        """Whether none is behind a first batch that may have failed. Call it before `note`."""
        return all(self._in_order(batch, failures, now_s) for batch in batches)

    def _in_order(self, batch: First, failures: Failures, now_s: float) -> bool:
        header, handle = batch.header, batch.partition.handle
        if header.producer_id < 0:
            return True
        key = batch.named, header.producer_id, header.producer_epoch
        if header.producer_id in batch.partition.producers:
            self._first.pop(key, None)
            return True
        kept = self._first.get(key)
        if kept is None:
            return True
        first, then, at_s = kept
        if then[0] not in (handle, _REFUSED[0]):
            return True  # of a topic that is gone: another one has its name
        return (
            then == (handle, failures)
            or now_s - at_s > self._wait_s
            or not _behind(header.base_sequence, first)
        )

    def note(self, batches: Iterable[First], failures: Failures, now_s: float) -> None:
        """They are taken; if that fails, the failures change."""
        for batch in batches:
            if batch.header.producer_id not in batch.partition.producers:
                self._keep(batch.named, batch.header, (batch.partition.handle, failures), now_s)

    def refuse(self, named: Named, header: BatchHeader, now_s: float) -> None:
        """It is refused with a code upon which its client sends it again: what is behind it waits for it."""
        self._keep(named, header, _REFUSED, now_s)

    def _keep(self, named: Named, header: BatchHeader, then: tuple[int, Failures], now_s: float) -> None:
        if header.producer_id < 0:
            return
        key = named, header.producer_id, header.producer_epoch
        kept = self._first.get(key)
        stale = kept is not None and now_s - kept[2] > self._wait_s
        if kept is not None and not stale and _behind(header.base_sequence, kept[0]):
            return
        self._first.pop(key, None)
        if len(self._first) >= self._most:
            del self._first[next(iter(self._first))]
        self._first[key] = header.base_sequence, then, now_s


def _behind(sequence: int, first: int) -> bool:
    """Whether the sequence comes after the first one, with wrap-around."""
    return 0 < (sequence - first) & _MASK < _HALF
