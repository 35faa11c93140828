"""Batches of producers on one connection: none is taken before one that failed and comes again.

Where a producer is not known in a partition, any sequence may begin (KIP-360), so that a batch that was on
its way when the one before it was refused would be taken first, and the one before it never. This remembers
where each producer that is not known begins, and what had failed by then. A partition is called as its
requests call it: a first batch may be refused because the partition itself is not known yet.

Where a producer is known, its sequence numbers keep its order, but a batch behind one that was refused would
be told of a gap. librdkafka then takes its next epoch and numbers all anew that is not acknowledged. What
was refused here may still be under way at another agent, to which it was sent before, and be stored late: it
would be there twice. So what is behind a refused batch is sent again as well.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from agent.config import ProduceConfig
from coordination.state.types import Partition, ProducerEntry
from objectstore.batch import BatchHeader

_MASK = (1 << 31) - 1
_HALF = 1 << 30

Failures = tuple[int, int]
"""What had failed when a batch came, see Client.failures."""

Named = tuple[str | bytes, int]
"""A partition in a request's words: its topic's name, or from Produce 13 on its id, and its number."""


class First(NamedTuple):
    """A batch, perhaps its producer's first one: where, in what the topic was found to be, and which."""

    named: Named
    partition: Partition
    header: BatchHeader


Key = tuple[Named, int, int]
"""A partition, producer id and epoch."""


class _Kept(NamedTuple):
    """The lowest sequence that is waited for, its partition's handle, what had failed, and since when."""

    sequence: int
    handle: int
    failures: Failures
    at_s: float


class _Beginnings:
    """The lowest sequence by key, as many as the config says; the oldest is forgotten first."""

    def __init__(self, most: int, wait_s: float) -> None:
        self._most, self._wait_s = most, wait_s
        self.kept: dict[Key, _Kept] = {}

    def before(self, key: Key, sequence: int, now_s: float) -> _Kept | None:
        """What a batch of that sequence has to wait for, if anything; not for ever."""
        kept = self.kept.get(key)
        if kept is None or now_s - kept.at_s > self._wait_s or not _behind(sequence, kept.sequence):
            return None
        return kept

    def keep(self, key: Key, new: _Kept) -> None:
        """Unless one before it is kept."""
        if self.before(key, new.sequence, new.at_s) is not None:
            return
        self.kept.pop(key, None)
        if len(self.kept) >= self._most:
            del self.kept[next(iter(self.kept))]
        self.kept[key] = new

    def drop(self, key: Key) -> None:
        """It is waited for no longer."""
        self.kept.pop(key, None)


class Firsts:
    """Of one connection: where producers begin that partitions do not know, and what was refused.

    Each is waited for as long as the config says: what was on its way with it has come by then, or its
    connection ended. A producer that left a batch out for good may go on then.
    """

    def __init__(self, config: ProduceConfig) -> None:
        bounds = config.first_batches_max, config.first_batch_ms_max / 1000
        self._taken, self._refused = _Beginnings(*bounds), _Beginnings(*bounds)

    def in_order(self, batches: Iterable[First], failures: Failures, now_s: float) -> bool:
        """Whether none is behind one that failed, or a first one that may have. Call it before `note`."""
        if not (self._taken.kept or self._refused.kept):
            return True
        return all(self._in_order(batch, failures, now_s) for batch in batches)

    def _in_order(self, batch: First, failures: Failures, now_s: float) -> bool:
        header, handle = batch.header, batch.partition.handle
        if header.producer_id < 0:
            return True
        key, sequence = (batch.named, header.producer_id, header.producer_epoch), header.base_sequence
        known = batch.partition.producers.get(header.producer_id)
        if known is not None:
            self._taken.drop(key)
            if _continues(known, header):
                self._refused.drop(key)
        if self._refused.before(key, sequence, now_s) is not None:
            return False
        first = self._taken.before(key, sequence, now_s)
        # Of another handle: a topic that is gone, and this one has its name.
        return first is None or first.handle != handle or first.failures == failures

    def note(self, batches: Iterable[First], failures: Failures, now_s: float) -> None:
        """They are taken; if that fails, the failures change, and they are told to `refuse`."""
        for batch in batches:
            header = batch.header
            if header.producer_id < 0:
                continue
            known = header.producer_id in batch.partition.producers
            if known and not self._refused.kept:
                continue
            key = batch.named, header.producer_id, header.producer_epoch
            self._refused.drop(key)
            if not known:
                kept = _Kept(header.base_sequence, batch.partition.handle, failures, now_s)
                self._taken.keep(key, kept)

    def refuse(self, named: Named, header: BatchHeader, now_s: float) -> None:
        """It failed with a code upon which its client sends it again: what is behind it waits for it."""
        if header.producer_id >= 0:
            key = named, header.producer_id, header.producer_epoch
            self._refused.keep(key, _Kept(header.base_sequence, -1, (-1, -1), now_s))


def _continues(known: ProducerEntry, header: BatchHeader) -> bool:
    """Whether the batch is the one that the partition expects next: what was refused came by another way."""
    follows = (known.last_sequence + 1) & _MASK
    return known.epoch == header.producer_epoch and header.base_sequence == follows


def _behind(sequence: int, first: int) -> bool:
    """Whether the sequence comes after the first one, with wrap-around."""
    return 0 < (sequence - first) & _MASK < _HALF
