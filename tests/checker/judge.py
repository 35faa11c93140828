"""The judgement over a history: every anomaly of the table in docs/correctness terms. Start reading here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

from tests.checker import cycles, order, progress, records
from tests.checker.findings import Finding, Judgement
from tests.checker.operations import History
from tests.checker.versions import Versions, versions

Check = Callable[[History, Versions], Iterator[Finding]]

CHECKS: tuple[Check, ...] = (
    records.inconsistent_offsets,
    records.duplicates,
    records.lost_writes,
    records.unseen,
    records.aborted_reads,
    records.precommitted_reads,
    records.torn_transactions,
    records.phantom_reads,
    order.external_polls,
    order.internal_polls,
    order.external_sends,
    order.internal_sends,
    cycles.cycles,
)


def judge(
    history: History, *, healed_ns: int | None = None, patience: progress.Patience = progress.PATIENCE
) -> Judgement:
    """Judge a history that ended with final reads by fresh clients.

    With `healed_ns` (when the last fault ended, on the history's clock) consumers that are stuck longer than
    their patience after it count too.
    """
    known = versions(history)
    judgement = Judgement(operations=Counter(op.outcome for op in history.operations))
    for op in history.of("ok"):
        judgement.acknowledged += sum(1 for _ in op.sends)
        judgement.read += sum(len(r) for poll in op.polls for r in poll.records.values())
    for check in CHECKS:
        judgement.findings += check(history, known)
    if healed_ns is not None:
        judgement.findings += progress.stuck(history, known, healed_ns=healed_ns, patience=patience)
    return judgement
