"""Rules of quarantines and of their replay, broken (docs/schemas.md).

What left a batch is stored with it or not at all, and once: with its sequence, with its transaction, under
the policy at its place in the log. What is replayed and how far is one transaction.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from agent.cli import replaying
from agent.kafka.produce import driver
from agent.kafka.produce.buffer import commit_command
from coordination.state import companions, transaction_batches
from coordination.state.data import FEATURE_LEVEL_MAX
from tests.sim.controls import Control
from tests.sim.controls_of_bindings import JUDGED_FOR_EVER
from tests.sim.patching import altered, patched
from tests.sim.plan import Plan

Change = tuple[Any, str, Any]


def _again_with_a_duplicate() -> Change:
    """What left a batch is appended whenever the batch comes, though the batch was there already."""
    real = companions.append

    def append(state: Any, message: Any, transaction: Any, at: Any, answer: Any) -> int:
        told = SimpleNamespace(errors=answer.errors, base_offsets=answer.base_offsets, duplicates=[])
        return real(state, message, transaction, at, told)  # type: ignore[arg-type]  # as far as it looks

    return companions, "append", append


def _of_no_transaction() -> Change:
    """What left a batch of a transaction is a batch like others: nobody ends it."""
    return companions, "transaction_batches", altered(transaction_batches, written=lambda *_: None)


def _by_the_view() -> Change:
    """A record is set aside by the policy that the agent knows of, whatever is in force at its place."""

    def unnamed(flush: Any) -> Any:
        command = commit_command(flush)
        command.commit_chunk.judged_revision = JUDGED_FOR_EVER
        return command

    return driver, "commit_command", unnamed


def positions_afterwards() -> Change:
    """A replay commits its position when the records are there, as consumers do."""
    real = replaying._together

    async def together(producer: Any, given: Any, where: Any, records: Any, replayed: Any) -> None:
        late: list[Any] = []

        async def note(offsets: Any, group: str) -> None:
            late.append((offsets, group))

        own = producer.send_offsets_to_transaction
        producer.send_offsets_to_transaction = note
        try:
            await real(producer, given, where, records, replayed)
        finally:
            producer.send_offsets_to_transaction = own
        async with producer.transaction():
            for each in late:
                await own(*each)

    return replaying, "_together", together


def _with_a_gate(plan: Plan) -> Plan:
    return replace(plan, gated=True)


def _with_lost_answers(plan: Plan) -> Plan:
    """Connections are closed again and again, with answers on their way."""
    times = range(1, int(plan.seconds))
    resets = tuple((float(at), 0.1, "reset", tuple(range(plan.agents))) for at in times)
    return replace(plan, gated=True, faults=resets)


def _control(
    name: str,
    rule: str,
    anomaly: str,
    change: Callable[[], Change],
    told: Callable[[Plan], Plan] = _with_a_gate,
) -> Control:
    return Control(
        name,
        rule,
        frozenset({anomaly}),
        lambda: patched(change()),
        lambda plan: plan.level == FEATURE_LEVEL_MAX,
        told,
    )


QUARANTINE = (
    _control(
        "aside-with-duplicates",
        "2: what left a batch is there once, however often it is sent",
        "aside-doubled",
        _again_with_a_duplicate,
        _with_lost_answers,
    ),
    _control(
        "aside-of-no-transaction",
        "7: what left a transaction's batch is committed or aborted with it",
        "aside-aborted",
        _of_no_transaction,
    ),
    _control(
        "aside-by-the-view",
        "19: a record is set aside by the policy at its place",
        "aside-unasked",
        _by_the_view,
    ),
    _control(
        "replay-then-position",
        "a replay's records and its position are one transaction",
        "replay-doubled",
        positions_afterwards,
    ),
)
