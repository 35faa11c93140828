"""The checker finds each anomaly in a history that has it, and nothing in those that only look bad.

A file of histories/ says in its second line what must be found: anomalies of weight `fail` by their bare
name, others with the weight behind it.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.checker.definition import defined
from tests.checker.findings import Judgement
from tests.checker.judge import judge
from tests.checker.made import made
from tests.checker.operations import BadHistory, dump, load
from tests.checker.progress import Patience

MADE = 1_000  # histories at random
HISTORIES = Path(__file__).parent / "histories"
BAD = sorted((HISTORIES / "bad").glob("*.jsonl"))
GOOD = sorted((HISTORIES / "good").glob("*.jsonl"))
FAILING = {
    "inconsistent-offset", "duplicate", "lost-write", "unseen", "aborted-read", "precommitted-read",
    "torn-transaction", "phantom-read", "poll-skip", "nonmonotonic-poll", "internal-poll-skip",
    "internal-nonmonotonic-poll", "nonmonotonic-send", "internal-nonmonotonic-send", "G1c-wr", "stuck",
}  # fmt: skip


def expected(path: Path) -> set[str]:
    line = path.read_text().splitlines()[1]
    assert line.startswith("# expect:"), f"{path.name} does not say what it expects"
    return {name.strip() for name in line.removeprefix("# expect:").split(",") if name.strip()}


def found(judgement: Judgement) -> set[str]:
    return {
        each.anomaly if each.weight == "fail" else f"{each.anomaly} ({each.weight})"
        for each in judgement.findings
    }


@pytest.mark.parametrize("path", BAD, ids=lambda path: path.stem)
def test_a_bad_history_is_called_by_its_name(path: Path) -> None:
    judgement = judge(load(path.read_text().splitlines()), healed_ns=0)
    assert found(judgement) == expected(path), judgement.report()
    assert not judgement.valid


@pytest.mark.parametrize("path", GOOD, ids=lambda path: path.stem)
def test_a_good_history_passes_however_bad_it_looks(path: Path) -> None:
    judgement = judge(load(path.read_text().splitlines()), healed_ns=0)
    assert found(judgement) == expected(path), judgement.report()
    assert judgement.valid


def test_the_checks_find_what_the_definition_says() -> None:
    """And nothing else: at random, and in every history of the folders, however they came about."""
    histories = {str(seed): made(seed) for seed in range(MADE)}
    histories |= {path.stem: load(path.read_text().splitlines()) for path in (*BAD, *GOOD)}
    seen: Counter[str] = Counter()
    for name, history in histories.items():
        findings = [each for each in judge(history).findings if each.anomaly != "G1c"]
        assert Counter((f.anomaly, f.weight, f.key) for f in findings) == defined(history), name
        seen.update(each.anomaly for each in findings)
    assert set(seen) >= FAILING - {"stuck"}, f"the histories show every anomaly: {seen}"


@pytest.mark.parametrize("name", ["stuck", "stuck-group"])
@pytest.mark.parametrize("patient", ["process", "group"])
def test_a_group_and_a_process_are_waited_for_by_their_own_patience(name: str, patient: str) -> None:
    history = load((HISTORIES / "bad" / f"{name}.jsonl").read_text().splitlines())
    patience = Patience(process_ns=1 << 62) if patient == "process" else Patience(group_ns=1 << 62)
    judgement = judge(history, healed_ns=0, patience=patience)
    assert judgement.valid == (patient == ("group" if name == "stuck-group" else "process"))


def test_who_began_where_its_group_stood_may_have_nothing_to_read() -> None:
    history = load((HISTORIES / "bad" / "stuck.jsonl").read_text().splitlines())
    pollers = frozenset(op.process for op in history.operations if op.f == "poll")
    assert judge(history, healed_ns=0, patience=Patience(resumed=pollers)).valid
    assert not judge(history, healed_ns=0, patience=Patience(resumed=frozenset())).valid


def test_every_anomaly_that_fails_has_a_history_of_its_own() -> None:
    assert set().union(*(expected(path) for path in BAD)) == FAILING


@pytest.mark.parametrize("path", BAD + GOOD, ids=lambda path: path.stem)
def test_a_history_survives_being_written(path: Path) -> None:
    history = load(path.read_text().splitlines())
    again = load(dump(history))
    assert [(o.micro, o.keys, o.f, o.outcome) for o in again.operations] == [
        (o.micro, o.keys, o.f, o.outcome) for o in history.operations
    ]


@pytest.mark.parametrize(
    "line",
    [
        '{"process": 1, "f": "sned", "outcome": "ok"}',
        '{"process": 1, "f": "send", "outcome": "maybe"}',
        '{"f": "send", "outcome": "ok"}',
        '{"process": 1, "f": "send", "outcome": "ok", "value": [["push", "x", 1, 1]]}',
        "not json",
    ],
)
def test_a_line_that_says_nothing_is_named(line: str) -> None:
    with pytest.raises(BadHistory, match="line 1"):
        load([line])


def test_a_long_clean_history_is_judged_in_linear_steps() -> None:
    """50,000 operations: recursion or quadratic work would show as an error or a timeout."""
    lines = [
        f'{{"process": {n % 7}, "f": "txn", "outcome": "ok", "value": [["send", "k{n % 7}", {n}, {n}]]}}'
        for n in range(50_000)
    ]
    reads = {f"k{k}": [[n, n] for n in range(k, 50_000, 7)] for k in range(7)}
    lines.append(
        f'{{"process": 99, "f": "poll", "outcome": "ok", "value": [["poll", {reads}]]}}'.replace("'", '"')
    )
    judgement = judge(load(lines))
    assert judgement.valid, judgement.report()
    assert (judgement.acknowledged, judgement.read) == (50_000, 50_000)
