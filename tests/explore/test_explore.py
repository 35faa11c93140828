"""The quick part of `make explore`: small scopes are clean, every broken rule is caught, stories happen."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import pytest

from coordination.state import ChunkCommitted, Done, Refused
from tests.explore.agents import Scope
from tests.explore.groups import Groups
from tests.explore.language import Commits
from tests.explore.produce import Produce
from tests.explore.scopes import CONTROLS, ORDER, RACE, SCOPES, Control, Named
from tests.explore.search import Outcome, explore
from tests.explore.speakers import Speaks, reader, speaker
from tests.explore.transaction_worlds import Chances
from tests.explore.transactions import Transactions
from tests.explore.world import Budget, World

STATES_MAX = 100_000  # more than any of these has: a scope that grew beyond it is no quick one


@pytest.mark.parametrize("scope", [scope for scope in SCOPES if scope.quick], ids=lambda scope: scope.name)
def test_nothing_is_found_in_a_small_scope(scope: Named) -> None:
    outcome = explore(scope.make(), STATES_MAX)
    assert not outcome.found, outcome.story
    assert outcome.complete


@pytest.mark.parametrize("control", CONTROLS, ids=lambda control: control.name)
def test_a_broken_rule_is_caught_by_its_anomaly(control: Control) -> None:
    with control.broken():
        outcome = explore(control.make(), STATES_MAX)
    assert outcome.found, f"not found in {outcome.states} states"
    assert outcome.found[0].startswith(control.anomaly), outcome.found
    assert outcome.story


def ends(scope: Scope) -> tuple[Outcome, set[Hashable]]:
    """How it comes out: what every client was told, and what stands in the partitions."""
    model = Produce(scope)
    seen: set[Hashable] = set()

    def note(world: World) -> None:
        node = model.history[world.etcd.head]
        language = Commits(scope.targets, dedup=True, exact=False)
        logs = tuple(
            tuple(
                record
                for _, records in language._log(node.state, handle, node.notes or {})
                for record in records
            )
            for handle in range(scope.partitions)
        )
        seen.add((tuple(each.acked for each in world.clients), logs))

    return explore(model, STATES_MAX, at_end=note), seen


@pytest.mark.parametrize(
    ("budget", "targets"),
    [
        (Budget(refused=1), RACE),
        (Budget(refused=1), ORDER),
        (Budget(refused=1, messages=1, requests=1), ((0, 0),)),
        (Budget(refused=1, messages=1, appends=1), RACE),
        (Budget(refused=1, leases=1), ((0,),)),
        (Budget(refused=1, puts_failed=1), ((0, 0),)),
        (Budget(refused=1, crashes=1), ((0,),)),
        (Budget(refused=1, messages=1, appends=1, leases=1), ((0,),)),
        (Budget(refused=1, trims=1), RACE),
        (Budget(messages=2, requests=2), ((0,),)),
    ],
    ids=[
        *("race", "order", "requests", "appends", "leases", "puts"),
        *("crashes", "append and lease", "trims", "two requests"),
    ],
)
def test_orders_left_out_make_no_difference(budget: Budget, targets: tuple[tuple[int, ...], ...]) -> None:
    whole, all_ends = ends(Scope(budget, targets=targets, reduced=False))
    assert whole.complete
    assert not whole.found
    for alone in (False, True):
        reduced, kept_ends = ends(Scope(budget, targets=targets, reduced=True, alone=alone))
        assert reduced.complete
        assert not reduced.found
        assert kept_ends == all_ends
        assert reduced.states < whole.states


class Told(Transactions):
    """Remembers of every world what its clients were told, and what became of what stands in the log; and of
    every request how it was answered over which log."""

    seen: set[Hashable]

    def findings(self, world: Any) -> list[str]:
        """The model's own."""
        told = tuple(tuple((each.acked, each.outcome) for each in client.told) for client in world.clients)
        self.seen.add((told, self.fates(world.head)))
        return super().findings(world)

    def fates(self, head: int) -> Hashable:
        """Of each transaction, by partition."""
        fates = self.checker.fates_of(head)
        return tuple(sorted((who, tuple(sorted(of.items()))) for who, of in fates.items()))

    def _result(self, head: int) -> Done | Refused | ChunkCommitted:
        result = super()._result(head)
        content = self.history[head].content
        assert content is not None
        ((kind, client, fields),) = content[2]
        what = fields[:3] if isinstance(fields, tuple) and kind not in ("init", "topic") else ()
        code = result.code if isinstance(result, Refused) else tuple(getattr(result, "errors", ()))
        self.seen.add((kind, client, what, code, self.fates(head)))
        return result


def all_told(speaks: tuple[Speaks, ...], chances: Chances, *, reduced: bool) -> tuple[Outcome, set[Hashable]]:
    """What can be told."""
    Told.seen = set()
    model = Told(speaks, chances, reduced=reduced)
    return explore(model, STATES_MAX), model.seen


ADD, FIRST = ("add", 0), ("send", 0)
SHORT_V1, SHORT_V2 = (ADD, FIRST, ("end", 1)), (FIRST, ("end", 0))


@pytest.mark.parametrize(
    ("speaks", "chances"),
    [
        ((speaker(True, ends=(True,), positions=True),), Chances(2)),
        ((speaker(True, ends=(True, True)),), Chances(1, 1, 1)),
        ((speaker(False, ends=(True, True), positions=True),), Chances(1)),
        ((speaker(False, ends=(True, True)),), Chances(1, 0, 1)),
        ((Speaks(False, (SHORT_V1, SHORT_V1)),), Chances(1, 1, 1)),
        ((speaker(False, ends=(True, False)),), Chances(1)),
        ((Speaks(False, (SHORT_V1, SHORT_V1), asks=False),), Chances(1, stays=1)),
        pytest.param((reader(((3,), True), ((1,), True), apart=0),), Chances(2), marks=pytest.mark.thorough),
        pytest.param(
            (reader(((1,), True), ((2,), True), apart=1),),
            Chances(1, 0, 1, 1, 1),
            marks=pytest.mark.thorough,
        ),
        (
            (speaker(False, ends=(True,)), speaker(True, ends=(False,))),
            Chances(0, 1),
        ),
        ((Speaks(False, (SHORT_V1,)), Speaks(True, (SHORT_V2,))), Chances(1)),
    ],
    ids=[
        *("v2, messages", "v2, all", "v1, a message", "v1, an abort", "v1, all"),
        *(
            "v1, the second aborted",
            "v1 without ApiVersions",
            "v1, positions apart",
            "v1, positions apart, all",
            "v1 and v2, a timeout",
            "v1 and v2, a message",
        ),
    ],
)
def test_worlds_of_transactions_taken_for_one_are_one(speaks: tuple[Speaks, ...], chances: Chances) -> None:
    """The other side leaves no order out, and tells two worlds apart by their whole logs."""
    whole, all_of_it = all_told(speaks, chances, reduced=False)
    reduced, kept = all_told(speaks, chances, reduced=True)
    assert whole.complete
    assert reduced.complete
    assert not whole.found, whole.story
    assert not reduced.found, reduced.story
    assert kept == all_of_it
    assert reduced.states < whole.states


@pytest.mark.parametrize("broken", ["no dedup", "ack before PUT", "collect of the living"])
def test_what_is_wrong_is_found_with_and_without_them(broken: str) -> None:
    budget = Budget(messages=1, requests=1, refused=1)
    for reduced in (True, False):
        outcome = explore(Produce(Scope(budget, targets=RACE, reduced=reduced, broken=broken)), STATES_MAX)
        assert outcome.found, f"reduced: {reduced}"


STORIES: list[tuple[str, Any]] = [
    (
        "answer lost, entry applied, snapshotted and trimmed, then the retry",
        lambda: Produce(Scope(Budget(messages=1, appends=1, trims=1), targets=RACE)),
    ),
    (
        "an incarnation that never counted leaves an entry parked",
        lambda: Produce(Scope(Budget(messages=1, appends=1, leases=2), targets=((0,),))),
    ),
    (
        "fenced and its chunk collected between PUT and append",
        lambda: Produce(Scope(Budget(leases=1), targets=((0,),))),
    ),
    (
        "a snapshot is loaded while the log is trimmed behind it",
        lambda: Produce(Scope(Budget(trims=2), targets=RACE)),
    ),
    (
        "a PUT fails between two that succeed",
        lambda: Produce(Scope(Budget(puts_failed=1), targets=ORDER)),
    ),
    ("two agents coordinate one group", lambda: Groups(2, 0, 1)),
    (
        "a late EndTxn arrives in the next transaction",
        lambda: Transactions((speaker(True, ends=(True, True)),), Chances(1)),
    ),
    (
        "the fence sends a late EndTxn away",
        lambda: Transactions((speaker(False, ends=(True, True)),), Chances(1)),
    ),
    (
        "what proves nothing is to come again",
        lambda: Transactions((Speaks(False, (SHORT_V1, SHORT_V1), asks=False),), Chances(1)),
    ),
]


@pytest.mark.parametrize(("story", "make"), STORIES, ids=[name for name, _ in STORIES])
def test_the_stories_that_must_be_in_it_happen(story: str, make: Any) -> None:
    outcome = explore(make(), STATES_MAX)
    assert outcome.complete
    assert not outcome.found, outcome.story
    assert outcome.stories[story]
