"""The first batches of producers on one connection: none is taken before one that failed and comes again.

Where a producer is known in a partition, its sequence numbers keep its order. Where it is not, any sequence
may begin (KIP-360), so that a batch that was on its way when the one before it was refused would be taken
first, and the one before it never. This remembers where each producer that is not known begins, and what had
failed by then.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from agent.config import ProduceConfig
from agent.kafka.produce.buffer import Offered
from coordination.state.types import Partition
from objectstore.batch import BatchHeader

_MASK = (1 << 31) - 1
_HALF = 1 << 30

Failures = tuple[int, int]
"""What had failed when a batch came, see Client.failures."""


class Firsts:
    """Of one connection: by partition (handle), producer and epoch, its first sequence, failures and time.

    A beginning is waited for as long as the config says: what was on its way with it has come by then, or its
    connection ended. A producer that left its first batch out for good may go on then.
    """

    def __init__(self, config: ProduceConfig) -> None:
        self._most, self._wait_s = config.first_batches_max, config.first_batch_ms_max / 1000
        self._first: dict[tuple[int, int, int], tuple[int, Failures, float]] = {}

    def in_order(
        self, offered: Sequence[Offered], partitions: Sequence[Partition], failures: Failures, now_s: float
    ) -> bool:
        """Whether none is behind a first batch that may have failed. Call it before `note`."""
        return all(
            self._in_order(batch, partition, failures, now_s)
            for batch, partition in zip(offered, partitions, strict=True)
        )

    def _in_order(self, batch: Offered, partition: Partition, failures: Failures, now_s: float) -> bool:
        header = batch.header
        if header.producer_id < 0:
            return True
        key = batch.handle, header.producer_id, header.producer_epoch
        if header.producer_id in partition.producers:
            self._first.pop(key, None)
            return True
        kept = self._first.get(key)
        if kept is None:
            return True
        first, then, at_s = kept
        return then == failures or now_s - at_s > self._wait_s or not _behind(header.base_sequence, first)

    def note(
        self, batches: Iterable[tuple[Partition, BatchHeader]], failures: Failures, now_s: float
    ) -> None:
        """They are taken, or refused to be sent again; a refusal must change the failures afterwards."""
        for partition, header in batches:
            producer = header.producer_id
            if producer < 0 or producer in partition.producers:
                continue
            key = partition.handle, producer, header.producer_epoch
            kept = self._first.get(key)
            stale = kept is not None and now_s - kept[2] > self._wait_s
            if kept is not None and not stale and _behind(header.base_sequence, kept[0]):
                continue
            self._first.pop(key, None)
            if len(self._first) >= self._most:
                del self._first[next(iter(self._first))]
            self._first[key] = header.base_sequence, failures, now_s


def _behind(sequence: int, first: int) -> bool:
    """Whether the sequence comes after the first one, with wrap-around."""
    return 0 < (sequence - first) & _MASK < _HALF
