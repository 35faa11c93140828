"""What transactions cost apply: two batches on two partitions and the end of the transaction that they are.

Beside it the same batches without a transaction, in the same run.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Iterable

from google.protobuf.message import Message

from coordination.commands import CommitChunk, EndTransaction, InitTransactions
from coordination.log import LogEntry
from coordination.state import Done, Result
from tests.bench.bench_apply import PARTITIONS, entry, prepared
from tests.bench.figure import Figure

TRANSACTIONS = 10_000
PRODUCERS = 50
ROUNDS = 3


def _chunk(number: int, producer: int, epoch: int, transaction: int) -> CommitChunk:
    chunk = CommitChunk(number=number, size=1 << 20, first_position=64)
    for place in range(2):
        chunk.partition.append((2 * producer + place) % PARTITIONS)
        chunk.length.append(1000)
        chunk.offsets.append(1)
        chunk.max_timestamp_ms.append(1_700_000_000_000)
        chunk.producer_id.append(producer)
        chunk.producer_epoch.append(epoch)
        chunk.base_sequence.append(0)
        if transaction:
            chunk.transaction.append(transaction)
    return chunk


def _load(transactional: bool) -> list[LogEntry]:
    """One entry for the batches of a transaction and one for its end, of 50 producers in turn."""
    made: list[LogEntry] = []
    for number in range(TRANSACTIONS):
        producer, epoch = number % PRODUCERS, number // PRODUCERS
        commands: list[list[Message]] = [[_chunk(number, producer, epoch, 2 if transactional else 0)]]
        if transactional:
            end = EndTransaction(
                transactional_id=f"t{producer}",
                producer_id=producer,
                producer_epoch=epoch,
                commit=number % 10 != 0,
                bumps_epoch=True,
            )
            commands.append([end])
        made += [entry(3 + PRODUCERS + len(made) + at, each) for at, each in enumerate(commands)]
    return made


def _measure(transactional: bool) -> float:
    """Transactions' worth of batches applied per CPU second of one core, median of the rounds."""
    entries = _load(transactional)
    rates = []
    for _ in range(ROUNDS):
        state = prepared()
        for producer in range(PRODUCERS):
            init = InitTransactions(
                transactional_id=f"t{producer}", timeout_ms=60_000, producer_id=-1, producer_epoch=-1
            )
            state.apply(entry(3 + producer, [init]))
        gc.collect()
        started = time.process_time()
        results: tuple[Result, ...] = ()
        for one in entries:
            results = state.apply(one).results
        rates.append(TRANSACTIONS / (time.process_time() - started))
        if transactional and not isinstance(results[0], Done):
            raise SystemExit(f"the load was not accepted: {results}")
    return statistics.median(rates)


def figures() -> Iterable[Figure]:
    """Transactions of two batches, and the batches alone."""
    plain = _measure(transactional=False)
    rate = _measure(transactional=True)
    yield Figure(
        "apply, transactions of two batches", rate, "transactions/s/core", "the batches alone", plain
    )


if __name__ == "__main__":
    for figure in figures():
        print(figure.line())
