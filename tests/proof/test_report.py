"""The report over known runs: what fails is named where it belongs, and the page asks nobody else."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.checker.judge import judge
from tests.checker.operations import load
from tests.proof.catalogue import EXPERIMENTS
from tests.proof.prefixes import not_prefixes
from tests.proof.ran import Ran, judged_here, shifted
from tests.proof.report import Proof
from tests.proof.runs import RUNS

HISTORIES = Path(__file__).parents[1] / "checker" / "histories"


def ran(name: str, history: str, **more: Any) -> Ran:
    """A run whose clients saw one of the known histories."""
    made = Ran(name, load((HISTORIES / f"{history}.jsonl").read_text().splitlines()), **more)
    found = judge(made.history, healed_ns=0).findings
    made.pure = Counter(each.anomaly for each in found if each.weight == "fail")
    made.spark = Counter(made.pure)
    return made


def proof(*runs: Ran) -> Proof:
    return Proof({each.name: each for each in runs}, {"version": "0", "seed": 1})


def test_every_experiment_has_runs_and_every_run_an_experiment() -> None:
    named = {run for each in EXPERIMENTS for run in each.runs}
    assert named == RUNS.keys()
    assert len({(each.group, each.name) for each in EXPERIMENTS}) == len(EXPERIMENTS)
    twelve = [each for each in EXPERIMENTS if each.group.endswith("Redpanda 21.10.1")]
    assert [each.name.split(".")[0] for each in twelve] == [str(n) for n in range(1, 13)]


def test_a_sound_run_holds() -> None:
    told = proof(ran("queue-assign", "good/offsets-with-gaps")).machines()
    assert told["failed"] == []
    verdicts = {each["name"]: each["verdict"] for each in told["experiments"]}
    assert verdicts["queue, assign"] == "held"
    assert verdicts["queue, subscribe"] == "not run"
    assert verdicts["3. inconsistent offsets"] == "held in part"


@pytest.mark.parametrize(
    ("history", "run", "fails"),
    [
        ("bad/duplicate", "queue-assign", "2. duplicates with idempotence"),
        ("bad/lost-write", "queue-subscribe", "4. lost or stale tail"),
        ("bad/aborted-read", "transactions", "5. aborted read"),
        ("bad/g1c-wr", "aborts", "6. G1c of write-read edges"),
        ("bad/stuck", "queue-subscribe", "#1 stuck consumers"),
    ],
)
def test_what_fails_is_named_where_it_belongs(history: str, run: str, fails: str) -> None:
    made = proof(ran(run, history))
    verdicts = {each["name"]: each["verdict"] for each in made.machines()["experiments"]}
    assert verdicts[fails] == "failed"
    assert any(run in line for line in made.failed)


def test_a_failure_that_no_experiment_judges_fails_all_the_same() -> None:
    other = ran("brief-transactions", "good/offsets-with-gaps", findings=["agent-error: agent-0 said so"])
    assert proof(other).failed


def test_judges_that_disagree_are_a_finding() -> None:
    made = ran("queue-assign", "bad/duplicate", allowed=frozenset({"duplicate"}))
    assert proof(made).failed == []
    made.spark.clear()
    assert made.wrong == {"judges-disagree": 1}
    assert proof(made).failed


def test_what_settings_allow_is_counted_only() -> None:
    made = ran("vanlightly-kill-1", "bad/duplicate", allowed=frozenset({"duplicate"}))
    assert made.found["duplicate"] == 1
    assert proof(made).failed == []


def test_a_control_that_finds_nothing_fails() -> None:
    control = frozenset({"aborted-read"})
    assert proof(ran("late-ends-kafka", "bad/aborted-read", control=control)).failed == []
    assert proof(ran("late-ends-kafka", "good/offsets-with-gaps", control=control)).failed


def test_the_page_stands_alone() -> None:
    faults = [("SIGKILL <an agent>", 0, 2)]
    page = proof(ran("queue-assign", "bad/duplicate", happened=faults, findings=["duplicate: <x>"])).people()
    assert not re.search(r"(src|href)=\"(?!#)|https?:|@import|url\(|<script", page)
    assert "<svg" in page
    assert "&lt;an agent&gt;" in page
    assert "<x>" not in page
    json.dumps(proof(ran("queue-assign", "bad/duplicate")).machines())


def test_lists_are_prefixes_of_one() -> None:
    whole = [
        '{"process": 0, "f": "txn", "outcome": "ok", "value": [["send", "x", 0, 1]]}',
        '{"process": 1, "f": "txn", "outcome": "ok", "value": [["send", "x", 1, 2]]}',
        '{"process": 2, "f": "txn", "outcome": "ok", "value": [["poll", {"x": [[0, 1]]}]]}',
        '{"process": 3, "f": "txn", "outcome": "ok", "value": [["poll", {"x": [[0, 1], [1, 2]]}]]}',
    ]
    assert list(not_prefixes(load(whole))) == []
    headless = '{"process": 4, "f": "txn", "outcome": "ok", "value": [["poll", {"x": [[1, 2]]}]]}'
    assert len(list(not_prefixes(load([*whole, headless])))) == 1


def test_a_clock_is_set_back_and_the_judgement_stays() -> None:
    history = load((HISTORIES / "bad" / "stuck.jsonl").read_text().splitlines())
    later = shifted(history, -5_000)
    assert judge(shifted(later, 5_000), healed_ns=0).counts == judge(history, healed_ns=0).counts


@pytest.mark.services
def test_porcupine_judges_what_has_a_clock(tmp_path: Path) -> None:
    runs = [ran("queue-assign", "bad/duplicate"), ran("aborts", "bad/duplicate", clocked=False)]
    judged_here([*runs, ran("transactions", "good/offsets-with-gaps")], tmp_path)
    assert [each.porcupine for each in runs] == [["x"], []]
    assert runs[0].found["not-linearizable"] == 1
