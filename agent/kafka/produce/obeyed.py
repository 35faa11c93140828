"""Evaluates the rules of a batch's messages and topic, and does what the topic's policy says with bad ones.

A batch comes here when all its records parse. Each policy is a way to dispose of it, a branch of `dispose`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from agent.kafka.produce.admission import Rejected
from agent.rules.messages import Bad, Findings
from agent.rules.pool import Busy, RulesPool, Unusable
from agent.telemetry.rule_figures import RuleFigures
from coordination.kafka_codes import Code
from coordination.topic_configs import OBSERVE, QUARANTINE, REJECT, RULES
from schema.quarantine import VIOLATIONS_MAX
from schema.rules.ruled import Ruled
from schema.strict import BAD_RECORDS_MAX

KEPT = "what it says is left out: the topic redacts, by floe.redact"
"""In place of what the log and /status would quote."""

_QUOTES = "; record "


def outside(message: str, *, quoted: bool) -> str:
    """What the log and /status say of a refused batch; without its records where nobody may quote them."""
    told, _, records = message.partition(_QUOTES)
    return message if quoted or not records else f"{told} ({KEPT})"


@dataclass(frozen=True, slots=True)
class Sent:
    """A batch and whose it is. `policies`: OBSERVE, REJECT or QUARANTINE by role (key, value, record).

    `quoted`: whether others than its producer may read what is told of its records, which may quote them.
    """

    topic: str
    partition: int
    batch: memoryview
    records: int
    policies: Mapping[str, str]
    client_id: str | None
    host: str
    quoted: bool = True


async def require_rules(pool: RulesPool, figures: RuleFigures, sent: Sent, ruled: Ruled) -> None:
    """Raises Rejected: INVALID_RECORD, and NOT_ENOUGH_REPLICAS where the batch is to be sent again."""
    await broken_rules(pool, figures, sent, ruled, BAD_RECORDS_MAX)


async def broken_rules(
    pool: RulesPool, figures: RuleFigures, sent: Sent, ruled: Ruled, bad_max: int
) -> Sequence[Bad]:
    """Records that are to be set aside, fewer than `bad_max`. Raises Rejected as `require_rules`."""
    if not ruled:  # all of them surely obey
        figures.count(sent.topic, sent.records, 0, {})
        return ()
    rejects = {role for role in ruled.roles if sent.policies[role] != OBSERVE}
    apart = QUARANTINE in sent.policies.values()
    try:
        found = await pool.check(
            sent.topic,
            sent.batch,
            ruled,
            sent.records,
            stop=rejects == ruled.roles and not apart,
            bad_max=bad_max,
            violations_max=VIOLATIONS_MAX if apart else 0,
        )
    except Busy as busy:
        raise Rejected(Code.NOT_ENOUGH_REPLICAS, f"Nothing was written: {busy}.") from None
    except Unusable as error:
        figures.failed(sent.topic)
        if rejects:
            raise Rejected(Code.INVALID_RECORD, f"Rules of topic {sent.topic}: {error}") from None
        _observed(figures, sent, 0, str(error))
        return ()
    figures.count(sent.topic, found.records, found.bad_records, found.broken)
    return dispose(figures, sent, found, bad_max) if found.bad else ()


def dispose(figures: RuleFigures, sent: Sent, found: Findings, bad_max: int) -> Sequence[Bad]:
    """What the policy says: gives those that are to be set aside. Raises Rejected for what is not kept."""
    by_policy: dict[str, list[Bad]] = {policy: [] for policy in RULES}
    for each in found.bad:
        by_policy[sent.policies[each.role]].append(each)
    refused, aside = by_policy[REJECT], by_policy[QUARANTINE]
    limit = ""
    if not refused and QUARANTINE in sent.policies.values() and len(found.bad) >= bad_max:
        refused, limit = found.bad, f"; {too_many(bad_max - 1)}"
    if refused:
        first = refused[0]
        raise Rejected(
            Code.INVALID_RECORD,
            f"{len(refused)} records break rules{limit}; record {first.index}: {first.reason}",
            tuple((each.index, each.reason) for each in refused[:BAD_RECORDS_MAX]),
        )
    if by_policy[OBSERVE]:
        first = by_policy[OBSERVE][0]
        records = found.bad_records if not aside else len({each.index for each in by_policy[OBSERVE]})
        told = first.reason if sent.quoted else f"{first.role} breaks rules ({KEPT})"
        _observed(figures, sent, records, f"record {first.index}: {told}")
    return aside


def too_many(limit: int) -> str:
    """Why a batch is refused of which too many records would be set aside."""
    what = f"no more than {limit} of a batch are set aside (produce.quarantine_records_max)"
    return f"{what}: send smaller batches"


def _observed(figures: RuleFigures, sent: Sent, records: int, message: str) -> None:
    figures.observed(sent.topic, sent.partition, records, message, sent.client_id, sent.host)
