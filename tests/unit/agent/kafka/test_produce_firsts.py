"""First batches of producers that a partition does not know: how many are remembered, and how long."""

from __future__ import annotations

from agent.config import ProduceConfig
from agent.kafka.produce.buffer import Offered
from agent.kafka.produce.firsts import Firsts
from coordination.state.chunk_table import ChunkTable
from coordination.state.slices import SliceIndex
from coordination.state.types import Partition, Topic
from objectstore.batch import NewRecord, build, peek

BEFORE, AFTER = (0, 0), (1, 0)  # what had failed when a first batch came, and since


def offered(producer: int, sequence: int) -> Offered:
    raw = build([NewRecord(1, None, b"v")], producer_id=producer, producer_epoch=0, base_sequence=sequence)
    return Offered(0, raw, peek(raw))


class Connection:
    """One connection's beginnings, and a partition that knows nobody."""

    def __init__(self, config: ProduceConfig) -> None:
        self.partition = Partition(0, Topic("t", bytes(16), {}, 0), 0, SliceIndex(ChunkTable()))
        self.firsts = Firsts(config)

    def begins(self, producer: int, now_s: float = 0.0) -> None:
        """Its first batch, with sequence 0, comes and fails."""
        self.firsts.note([(self.partition, offered(producer, 0).header)], BEFORE, now_s)

    def takes(self, producer: int, sequence: int, now_s: float = 0.0) -> bool:
        return self.firsts.in_order([offered(producer, sequence)], [self.partition], AFTER, now_s)


def test_nothing_is_taken_in_front_of_a_first_batch_that_failed() -> None:
    one = Connection(ProduceConfig())
    one.begins(7)
    assert not one.takes(7, 1)
    assert one.takes(7, 0), "it came again"
    assert one.takes(8, 5), "of another producer nothing is known"


def test_a_first_batch_is_waited_for_as_long_as_the_config_says() -> None:
    one = Connection(ProduceConfig(first_batch_ms_max=2_000))
    one.begins(7)
    assert not one.takes(7, 1, now_s=2.0)
    assert one.takes(7, 1, now_s=2.1)


def test_as_many_are_remembered_as_the_config_says() -> None:
    one = Connection(ProduceConfig(first_batches_max=2))
    for producer in (7, 8, 9):
        one.begins(producer)
    assert [one.takes(producer, 1) for producer in (7, 8, 9)] == [True, False, False]
