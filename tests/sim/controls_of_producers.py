"""Rules of idempotent producers broken: what is sent again is found, and nothing is taken before its turn."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from agent.kafka.produce.firsts import Firsts
from agent.kafka.produce.gaps import Gaps
from coordination.replica.proposals import Proposals
from coordination.state import chunks, producers
from tests.sim.controls import Control
from tests.sim.patching import patched
from tests.sim.plan import Plan


def _no_dedup() -> Any:
    real = producers.admit

    def admit(partition: Any, entry: Any, producer_id: int, epoch: int, sequence: int, count: int) -> Any:
        if entry is not None and epoch == entry.epoch:
            return entry, 0, partition.high_watermark
        return real(partition, entry, producer_id, epoch, sequence, count)

    return patched((producers, "admit", admit))


def _remembers_one_batch() -> Any:
    return patched((chunks, "REMEMBERED", 2))


def _begins_anywhere() -> Any:
    """Of a producer that a partition does not know, any batch is the first, also behind one that failed."""
    return patched((Firsts, "in_order", lambda *_: True))


def _refused_are_forgotten() -> Any:
    """A first batch that was refused, as its topic was not known yet, leaves no trace."""
    return patched((Firsts, "refuse", lambda *_: None))


def _gaps_are_told_at_once() -> Any:
    """Also what another agent is about to fill."""
    return patched((Gaps, "waits", lambda *_, **__: False))


def _what_is_behind_goes_on() -> Any:
    """What a full log refuses takes nothing with it."""
    return patched((Proposals, "refused", Proposals.fail))


def _room_comes_and_goes(plan: Plan) -> Plan:
    """The log is full for a moment, again and again, and so far away that appends wait for each other."""
    full = tuple((2.0 + 0.5 * number, 0.25, "fill-log", tuple(range(plan.agents))) for number in range(34))
    return replace(plan, pipeliners=3, rate=12.0, log_s=(0.03, 0.09), mortal=True, live_keys=10, faults=full)


def _topics_come_late(plan: Plan) -> Plan:
    """Topics are made and found while agents cannot follow the log; producers, alone there, do not wait."""
    cuts = tuple((2.0 + 1.5 * number, 1.0, "cut-log", (number % plan.agents,)) for number in range(11))
    alone = replace(
        plan, writers=0, relay="", members=0, modern=0, keepers=False, upsert=False, changes=False
    )
    return replace(
        alone, operator=False, binder=False, hurt=False, mortal=True, pipeliners=6, rate=16.0, faults=cuts
    )


def _puts_take_long_at_one(plan: Plan) -> Plan:
    """One agent after the other stores late while leaders move; producers are alone there."""
    slow = tuple((2.0 + 3.0 * number, 3.0, "far-away", (number % plan.agents,)) for number in range(5))
    alone = replace(
        plan, writers=0, relay="", members=0, modern=0, keepers=False, upsert=False, changes=False
    )
    return replace(alone, operator=False, binder=False, hurt=False, pipeliners=6, rate=16.0, faults=slow)


def _pipelines(plan: Plan) -> bool:
    return plan.pipeliners > 0


PRODUCERS: tuple[Control, ...] = (
    Control("no-dedup", "4: a retry is recognised wherever it lands", frozenset({"duplicate"}), _no_dedup),
    Control(
        "remembers-one-batch",
        "4: a retry is recognised wherever it lands",
        frozenset({"sequence-lost", "duplicate"}),
        _remembers_one_batch,
        _pipelines,
    ),
    Control(
        "refused-are-forgotten",
        "a later batch never overtakes one that its client sends again",
        frozenset({"sequence-lost"}),
        _refused_are_forgotten,
        told=_topics_come_late,
    ),
    Control(
        "gaps-are-told-at-once",
        "a gap is told of when nothing can fill it any more",
        frozenset({"duplicate", "sequence-lost"}),
        _gaps_are_told_at_once,
        told=_puts_take_long_at_one,
    ),
    Control(
        "what-is-behind-a-full-log-goes-on",
        "a later batch never overtakes one that its client sends again",
        frozenset({"sequence-lost"}),
        _what_is_behind_goes_on,
        told=_room_comes_and_goes,
    ),
    Control(
        "begins-anywhere",
        "a later batch never overtakes one that its client sends again",
        frozenset({"sequence-lost"}),
        _begins_anywhere,
        told=_topics_come_late,
    ),
)
"""Beside CONTROLS of controls.py."""
