"""Evaluates the rules of a batch's messages, and does what the topic's policy says with bad ones.

A batch comes here when all its records parse. Each policy is a way to dispose of it: another one (to keep bad
records elsewhere) is another branch of `dispose`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from agent.kafka.produce.admission import Rejected
from agent.rules.messages import Findings
from agent.rules.pool import Busy, RulesPool, Unusable
from agent.telemetry.rule_figures import RuleFigures
from coordination.kafka_codes import Code
from coordination.topic_configs import REJECT
from schema.rules.ruled import Ruled


@dataclass(frozen=True, slots=True)
class Sent:
    """A batch and whose it is. `policies`: OBSERVE or REJECT by role."""

    topic: str
    partition: int
    batch: memoryview
    records: int
    policies: Mapping[str, str]
    client_id: str | None
    host: str


async def require_rules(pool: RulesPool, figures: RuleFigures, sent: Sent, ruled: Ruled) -> None:
    """Raises Rejected: INVALID_RECORD, and NOT_ENOUGH_REPLICAS where the batch is to be sent again."""
    rejects = {role for role in ruled.roles if sent.policies[role] == REJECT}
    try:
        found = await pool.check(sent.topic, sent.batch, ruled, sent.records, stop=rejects == ruled.roles)
    except Busy as busy:
        raise Rejected(Code.NOT_ENOUGH_REPLICAS, f"Nothing was written: {busy}.") from None
    except Unusable as error:
        figures.failed(sent.topic)
        if rejects:
            raise Rejected(Code.INVALID_RECORD, f"Rules of topic {sent.topic}: {error}") from None
        _observed(figures, sent, 0, str(error))
        return
    figures.count(sent.topic, found.records, found.bad_records, found.broken)
    if found.bad:
        dispose(figures, sent, found, rejects)


def dispose(figures: RuleFigures, sent: Sent, found: Findings, rejects: set[str]) -> None:
    """What the policy says. Raises Rejected for what is not kept."""
    refused = [each for each in found.bad if each.role in rejects]
    if refused:
        first = refused[0]
        raise Rejected(
            Code.INVALID_RECORD,
            f"{len(refused)} records break rules; record {first.index}: {first.reason}",
            tuple((each.index, each.reason) for each in refused),
        )
    first = found.bad[0]
    _observed(figures, sent, found.bad_records, f"record {first.index}: {first.reason}")


def _observed(figures: RuleFigures, sent: Sent, records: int, message: str) -> None:
    figures.observed(sent.topic, sent.partition, records, message, sent.client_id, sent.host)
