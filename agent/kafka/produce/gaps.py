"""Batches whose producer left a gap before them: what is missing may be under way through another agent.

A client that is sent to another agent keeps what it has under way where it was sent: the batches behind it
come here first, and the log tells of a gap. Kafka's brokers may say so (OUT_OF_ORDER_SEQUENCE_NUMBER): what
is missing was refused by the one that leads no more. Here any agent stores it, perhaps a moment later. Told
of the gap, librdkafka takes its next epoch and numbers all anew that is not acknowledged (Java's producer
likewise, where the batch is its oldest): what is stored late would be there twice. So such a batch is to be
sent again; what is missing comes before it, by one way or the other.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict

from agent.config import ProduceConfig
from agent.kafka.produce.buffer import Outcome
from coordination.kafka_codes import Code
from coordination.state.types import Partition
from objectstore.batch import BatchHeader

_MASK = (1 << 31) - 1
_HALF = 1 << 30

BEHIND_A_GAP = Outcome(
    Code.NOT_ENOUGH_REPLICAS,
    message="What the producer sent before may be under way through another agent: send again.",
)

_Key = tuple[int, int, int]
"""A partition's handle, producer id and epoch."""


class Gaps:
    """Of one agent. Each is waited for as long as the config says: what was under way is stored by then, or
    given up. A producer that left a batch out for good is told so then.
    """

    def __init__(self, config: ProduceConfig) -> None:
        self._most, self._wait_s = config.first_batches_max, config.first_batch_ms_max / 1000
        self._since: OrderedDict[_Key, float] = OrderedDict()

    def judged(self, partition: Partition, header: BatchHeader, refused: Outcome, *, others: bool) -> Outcome:
        """What is told of a batch that was refused for its sequence, just now; see `waits`."""
        now_s = asyncio.get_running_loop().time()
        return BEHIND_A_GAP if self.waits(partition, header, now_s, others=others) else refused

    def waits(self, partition: Partition, header: BatchHeader, now_s: float, *, others: bool) -> bool:
        """Whether a batch that was refused for its sequence is behind a gap, and may come again.

        `others`: whether there are agents through which what is missing may come.
        """
        ahead = _ahead(partition, header)
        if not ahead:  # none is missing any more: it was stored while this one was refused
            return ahead == 0
        if not others:
            return False
        key = partition.handle, header.producer_id, header.producer_epoch
        since = self._since.get(key)
        if since is None:
            since = self._since[key] = now_s
            if len(self._since) > self._most:
                self._since.popitem(last=False)
        return now_s - since <= self._wait_s

    def stored(self, partition: Partition, header: BatchHeader) -> None:
        """A batch of the producer was taken: there is no gap before it."""
        if self._since:
            self._since.pop((partition.handle, header.producer_id, header.producer_epoch), None)


def _ahead(partition: Partition, header: BatchHeader) -> int | None:
    """How many records are missing before the batch, by what the partition has of its producer by now.

    None: there is no gap, and something else is wrong with it.
    """
    known = partition.producers.get(header.producer_id)
    if known is None:  # forgotten: any sequence may begin
        return 0
    if header.producer_epoch > known.epoch:
        return header.base_sequence
    missing = (header.base_sequence - known.last_sequence - 1) & _MASK
    return missing if header.producer_epoch == known.epoch and missing < _HALF else None
