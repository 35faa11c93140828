"""The plans that are kept are clean, and their stories still happen.

`make test` has every fifth, and every sixth broken rule; `make thorough` the others.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from objectstore import native
from tests.equipment.thorough import asked, one_in
from tests.sim import child

PLANS = sorted((Path(__file__).parent / "plans").glob("*.json"))
SECONDS_MAX = 1800  # of a machine that does other things; ten seconds of a quiet core
WITHOUT_NATIVE_CODE = ("agent_dies_between_put_and_append", "held_end_arrives_a_transaction_late")
BROKEN = (
    ("member_stands_still_until_others_have_its_keys", "no-generation-check", "copied-twice"),
    ("member_stands_still_between_its_positions_and_its_end", "pending-counts-as-stable", "copied-twice"),
    ("positions_of_the_transaction_before_arrive", "late-positions-are-taken", "position-foreign"),
    ("topic_is_bound_while_records_are_on_their_way", "bound-meanwhile", "binding-broken"),
    ("topic_is_bound_while_records_are_on_their_way", "spans-lag", "span-wrong"),
    ("topic_is_bound_while_records_are_on_their_way", "decoded-by-now", "columns-wrong"),
    ("topic_is_bound_while_records_are_on_their_way", "frames-ignored", "columns-wrong"),
    ("producers_begin_while_their_topic_is_bound", "overtaken-while-bound", "sequence-lost"),
    ("topic_of_a_flat_table_is_bound_while_records_come", "decoded-by-now", "columns-wrong"),
    ("versions_are_hidden_while_records_name_them", "judged-once", "incompatible-version"),
    ("versions_are_hidden_while_records_name_them", "looked-up-at-home", "registry-stale"),
    ("versions_are_hidden_while_records_name_them", "hidden-unnoticed", "frame-of-no-version"),
    ("versions_are_hidden_while_records_name_them", "decoded-by-newest", "columns-wrong"),
    ("puts_land_behind_their_hedges", "hedge-has-another-name", "unreadable-chunk"),
    ("bad_records_are_set_aside_while_agents_die", "aside-of-no-transaction", "aside-aborted"),
    ("agents_start_at_a_member_with_another_log", "states-not-compared", "state-differs"),
    ("bad_records_are_set_aside_while_agents_die", "replay-then-position", "replay-doubled"),
    ("copy_is_kept_at_any_step_of_a_round", "copy-says-too-much", "promoted-behind"),
    ("queues_are_copied_while_copiers_fence_each_other", "queue-positions-first", "queue-lost"),
    ("queues_are_copied_while_copiers_fence_each_other", "queue-without-fence", "queue-doubled"),
    ("copy_is_kept_at_any_step_of_a_round", "promoted-without-segments", "promoted-lost"),
    ("replica_gets_its_bucket_in_another_order", "replica-goes-over-gaps", "replica-poisoned"),
    ("segment_comes_after_the_log_that_names_it", "segments-not-looked-for", "promoted-incomplete"),
    ("objects_are_held_by_their_store", "kept-objects-keep-others", "garbage-stays"),
    ("archive_is_written_from_a_member_with_another_log", "read-before-not-asked", "archive-differs"),
)
"""Of a plan, a control and the anomaly that shows it."""
pytestmark = pytest.mark.timeout(SECONDS_MAX)


def _told(*arguments: str) -> dict[str, Any]:
    """Runs in a process of their own, by name."""
    done = child.run("tests.sim.stories", *arguments, seconds_max=SECONDS_MAX)
    assert done.returncode == 0, done.stdout + done.stderr
    return {each["name"]: each for each in map(json.loads, done.stdout.splitlines())}


@pytest.fixture(scope="module")
def runs(request: pytest.FixtureRequest) -> dict[str, Any]:
    """All that are asked for, in one go: importing an agent takes as long as a run."""
    plans = [path.stem for path in asked(request, "path")]
    return _told(*dict.fromkeys([*plans, *asked(request, "name")]))


@pytest.mark.parametrize("path", one_in(5, PLANS), ids=lambda path: path.stem)
def test_a_kept_story_happens_and_ends_well(path: Path, runs: dict[str, Any]) -> None:
    run, kept = runs[path.stem], json.loads(path.read_text())
    assert kept["story"], "a plan says what it is kept for"
    assert kept["needs"], "and by what one sees that it happened"
    assert run["valid"], run["report"]
    assert not run["missing"], f"{kept['story']} happened too rarely: {run['missing']} of {kept['needs']}"
    assert run["acknowledged"] > 20


@pytest.fixture(scope="module")
def runs_without_native_code() -> dict[str, Any]:
    """Some of them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(native.VARIABLE, "0")
        return _told(*WITHOUT_NATIVE_CODE)


@pytest.mark.parametrize("name", WITHOUT_NATIVE_CODE)
def test_a_story_goes_the_same_way_without_native_code(
    name: str, runs: dict[str, Any], runs_without_native_code: dict[str, Any]
) -> None:
    """To the last count. The golden stories are told both ways too."""
    assert runs_without_native_code[name] == runs[name]


@pytest.fixture(scope="module")
def broken(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Those of the rules below that are asked for."""
    return _told(*map(":".join, asked(request, "rule")))


@pytest.mark.parametrize("rule", one_in(6, BROKEN), ids="-".join)
def test_a_rule_that_is_broken_shows_in_its_story(rule: tuple[str, str, str], broken: dict[str, Any]) -> None:
    """What the member that stood still had read is copied twice; a record breaks its binding."""
    run, (_, _, anomaly) = broken[":".join(rule)], rule
    assert not run["valid"]
    assert f"{anomaly} (fail)" in run["report"], run["report"]
