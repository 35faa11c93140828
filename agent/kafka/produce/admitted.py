"""What of one Produce request was admitted, batch by batch."""

from __future__ import annotations

from collections.abc import Iterator

from agent.kafka.produce.buffer import Offered
from agent.kafka.produce.firsts import First, Named
from agent.net.wire.generated.produce import PartitionProduceResponse
from coordination.state.types import Partition


class Admitted:
    """A request's admitted batches and where their answers go. `size`: record bytes of all batches."""

    __slots__ = ("answers", "named", "offered", "partitions", "size")

    def __init__(self) -> None:
        self.offered: list[Offered] = []
        self.answers: list[PartitionProduceResponse] = []
        self.partitions: list[Partition] = []
        self.named: list[Named] = []
        self.size = 0

    def add(
        self, offered: Offered, answer: PartitionProduceResponse, partition: Partition, named: Named
    ) -> None:
        """One more."""
        self.offered.append(offered)
        self.answers.append(answer)
        self.partitions.append(partition)
        self.named.append(named)
        self.size += offered.size

    def firsts(self) -> Iterator[First]:
        """What may be a producer's first batch, made as it is asked for: nearly always none is waited for."""
        rows = zip(self.named, self.partitions, self.offered, strict=True)
        return (First(named, partition, each.header) for named, partition, each in rows)

    def drop(self, at: int) -> None:
        """Take one out: its answer is another one."""
        self.size -= self.offered[at].size
        del self.offered[at], self.answers[at], self.partitions[at], self.named[at]
