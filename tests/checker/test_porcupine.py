"""porcupine refuses the histories that it can see through, takes all good ones, and is known to be blind."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.checker.judge import judge
from tests.checker.operations import History, Operation, Outcome, Poll, Send, load
from tests.checker.porcupine import REFUSED, linearizable, refused
from tests.checker.test_checker import BAD, GOOD, HISTORIES

pytestmark = pytest.mark.services
LINEAR = sorted((HISTORIES / "linear").glob("*.jsonl"))
RANDOM = 200
BLIND = {
    "internal-nonmonotonic-poll-of-an-indefinite-one", "internal-nonmonotonic-send",
    "internal-poll-skip-of-a-failed-transaction", "lost-write-of-info",
    "lost-write-of-info-whose-only-reader-failed", "lost-write-whose-only-reader-failed",
    "nonmonotonic-poll", "nonmonotonic-poll-to-a-failed-one", "poll-skip", "poll-skip-of-a-member",
    "poll-skip-to-an-indefinite-one", "precommitted-read", "precommitted-read-of-an-indefinite-one", "stuck",
    "stuck-after-a-new-assignment",
    "stuck-group", "torn-transaction", "unseen",
}  # fmt: skip
"""What README.md says that it cannot see: places of consumers, waiting, transactions, the end."""


def _refused(files: list[Path]) -> set[str]:
    return {path.stem for path, keys in linearizable(files).items() if REFUSED in keys.values()}


def test_known_histories() -> None:
    assert _refused(BAD) == {path.stem for path in BAD} - BLIND
    assert _refused(GOOD) == set()


def test_what_only_porcupine_sees() -> None:
    assert _refused(LINEAR) == {path.stem for path in LINEAR}
    for path in LINEAR:
        history = load(path.read_text().splitlines())
        assert judge(history).valid, f"{path.stem} is seen by the checker as well: it belongs to bad/"


def _made(seed: int) -> History:
    """A log that several clients write to at once, each read as far as it was at the time."""
    draw = random.Random(seed)
    ends: list[tuple[int, Operation]] = []
    at = 0
    for offset in range(draw.randint(2, 12)):
        at += draw.randint(1, 10)
        span = (at - draw.randint(0, 20), at + draw.randint(0, 20))
        outcome: Outcome = "info" if draw.random() < 0.2 else "ok"
        sent = Send("x", f"v{offset}", offset if outcome == "ok" else None)
        ends.append(
            (at, Operation(0, offset, "send", outcome, (sent,), invoked_ns=span[0], completed_ns=span[1]))
        )
        rows = tuple((o, f"v{o}") for o in range(draw.randint(0, offset), offset + 1))
        poll = Poll({"x": rows})
        ends.append(
            (
                at,
                Operation(0, 100, "poll", "ok", (poll,), invoked_ns=at, completed_ns=at + draw.randint(0, 9)),
            )
        )
    return History([op for _, op in ends])


def _swapped(history: History) -> History | None:
    """Two acknowledged sends of which one was over before the other began, each at the other's offset."""
    sends = [op for op in history.operations if op.f == "send"]
    told = [op for op in sends if op.outcome == "ok"]
    pairs = ((a, b) for a in told for b in told if a.completed_ns < b.invoked_ns)
    one, other = next(pairs, (None, None))
    if one is None or other is None:
        return None
    moved = {
        one.process: _at(one, next(other.sends).offset),
        other.process: _at(other, next(one.sends).offset),
    }
    return History([moved.get(op.process, op) for op in sends])


def _at(op: Operation, offset: int | None) -> Operation:
    sent = next(op.sends)
    micro = (Send(sent.key, sent.value, offset),)
    return Operation(
        op.index, op.process, op.f, op.outcome, micro, (), frozenset(), op.invoked_ns, op.completed_ns
    )


def test_logs_at_random_and_two_of_their_sends_swapped(tmp_path: Path) -> None:
    sound = {f"{seed}": _made(seed) for seed in range(RANDOM)}
    swapped = {seed: bad for seed, history in sound.items() if (bad := _swapped(history)) is not None}
    assert len(swapped) > RANDOM // 4
    assert {run for run, keys in refused(sound, tmp_path / "sound").items() if keys} == set()
    assert {run for run, keys in refused(swapped, tmp_path / "swapped").items() if not keys} == set()
