"""Transactional ids: what each is at, and one of them with its partitions and groups."""

from __future__ import annotations

from collections import defaultdict
from itertools import islice
from typing import Final

from starlette.requests import Request

from agent.http.answers import Problem
from agent.http.asking import may, require
from agent.http.console.listing import asked, form, listed, ways, word
from agent.http.console.markup import Content, link, many, pairs, table, tag, url
from agent.http.console.shell import Page
from agent.http.console.words import moment, number
from agent.http.needs import DESCRIBE_GROUP_QUIETLY, DESCRIBE_ID, DESCRIBE_ID_QUIETLY, DESCRIBE_QUIETLY
from agent.http.parts import Parts
from coordination.state.transaction_types import PHASE_NAMES, Transaction

HERE: Final = "/console/transactions"
PARTITIONS_MAX: Final = 10_000
"""Of a transaction that are looked at."""
TOPICS: Final = 100
"""Of a transaction that are shown."""


class Transactions:
    """Makes both pages."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    async def several(self, request: Request) -> Page:
        """Those that may be described."""
        parts, look = self._parts, asked(request)
        known = parts.replica.state.transactions
        found = await listed(known, look, lambda name: may(parts, DESCRIBE_ID_QUIETLY, name))
        rows = [self._row(known[name]) for name in found.names if name in known]
        heads = ("Transactional id", "State", "Producer#", "Epoch#", "Begun", "Timeout#", "Partitions#")
        live = many((ways(HERE, look, found), table(heads, rows, "no such transactional id")))
        return Page("Transactions", HERE, live, form(HERE, look, "transactional id"))

    def _row(self, one: Transaction) -> tuple[Content, ...]:
        to = link(one.transactional_id, url("/console/transaction", id=one.transactional_id))
        late = one.ongoing and self._parts.clock.now_ms() - one.started_ms > one.timeout_ms
        state = tag("span", PHASE_NAMES[one.phase], class_="bad" if late else None)
        begun = moment(one.started_ms) if one.ongoing else None
        timeout = f"{number(one.timeout_ms)} ms"
        return to, state, one.producer_id, one.epoch, begun, timeout, number(len(one.partitions))

    async def one(self, request: Request) -> Page:
        """Of an id that may be described; topics and groups in it are for whom they may be described to."""
        parts, name = self._parts, word(request, "id")
        require(parts, DESCRIBE_ID, name)
        known = parts.replica.state.transactions.get(name)
        if known is None:
            raise Problem(404, f"transactional id {name!r} does not exist", "see the list of transactions")
        facts: dict[str, Content] = {
            "State": PHASE_NAMES[known.phase],
            "Producer id": known.producer_id,
            "Epoch": known.epoch,
            "Timeout": f"{number(known.timeout_ms)} ms",
            "Begun": moment(known.started_ms) if known.ongoing else None,
            "Last changed": moment(known.updated_ms),
            "Partitions": number(len(known.partitions)),
        }
        topics = self._topics(known)
        rows = ((link(each, url("/console/topics/{}", each)), _told(topics[each])) for each in topics)
        groups = [
            (each,) for each in islice(known.groups, TOPICS) if may(parts, DESCRIBE_GROUP_QUIETLY, each)
        ]
        live = many(
            (
                pairs(facts),
                tag("h2", "What it writes to"),
                table(("Topic", "Partitions"), rows),
                tag("h2", "Groups whose positions it commits"),
                table(("Group",), groups),
            )
        )
        return Page(f"Transaction {name}", HERE, live)

    def _topics(self, known: Transaction) -> dict[str, list[int]]:
        found: defaultdict[str, list[int]] = defaultdict(list)
        partitions = self._parts.replica.state.partitions
        for handle in islice(known.partitions, PARTITIONS_MAX):
            partition = partitions[handle]
            if partition is not None:
                found[partition.topic.name].append(partition.index)
        seen = (each for each in sorted(found) if may(self._parts, DESCRIBE_QUIETLY, each))
        return {each: found[each] for each in islice(seen, TOPICS)}


def _told(indexes: list[int]) -> str:
    more = f" and {len(indexes) - 100} more" if len(indexes) > 100 else ""
    return ", ".join(map(str, sorted(indexes)[:100])) + more
