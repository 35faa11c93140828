"""Rule 15: no agent's clock moves the log's clock by itself, so none deletes anything before its time."""

from __future__ import annotations

import random

import pytest

from coordination.commands import (
    AbortTransaction,
    CommitOffsets,
    ExpireOffsets,
    ExpireProducers,
    ExpireTransactions,
    FenceIncarnation,
    Heartbeat,
    MoveLogStart,
    SetFeatureLevel,
)
from coordination.kafka_codes import Code
from coordination.snapshot import canonical_digest
from coordination.state import Done, Refused
from coordination.state.agreed_time import APART_MS, ROUNDS, SKEW_MS, STEP_MS, TRUST_MS, agreed_ms, apart_ms
from tests.unit.coordination.kit import DAY_MS, START_MS, A, B, Producer, Script

C, D = 13, 14
YEAR_MS = 365 * DAY_MS


def commit(script: Script, author: int = A) -> None:
    """A position of group g."""
    script.one(author, CommitOffsets(group="g", generation=-1, partition=[0], offset=[5]))


class Clocks:
    """Agents whose clocks are off by `off`, over one script."""

    def __init__(self, script: Script, **off_ms: int) -> None:
        self.script = script
        self.true_ms = script.now_ms
        self.off = {{"a": A, "b": B, "c": C, "d": D}[name]: off for name, off in off_ms.items()}

    def says(self, author: int) -> None:
        """The agent's heartbeat."""
        self.script.now_ms = self.true_ms + self.off[author]
        self.script.apply(author, Heartbeat())

    def beat(self, milliseconds: int = 5_000, times: int = 1) -> None:
        """All agents say something, so many milliseconds later."""
        for _ in range(times):
            self.true_ms += milliseconds
            for author in self.off:
                self.says(author)

    @property
    def early_ms(self) -> int:
        """How far the log's clock is ahead of the true time."""
        return self.script.state.clock_ms - self.true_ms


@pytest.fixture
def three(script: Script) -> Script:
    """A log with three agents."""
    script.register(C)
    return script


@pytest.mark.parametrize("off", [STEP_MS, 8 * DAY_MS, YEAR_MS, 1 << 62])
def test_one_of_three_that_is_ahead_moves_nothing(three: Script, off: int) -> None:
    clocks = Clocks(three, a=0, b=0, c=off)
    clocks.beat(times=50)
    assert 0 <= clocks.early_ms <= SKEW_MS
    assert [apart_ms(three.state, one) for one in (A, B)] == [0, 0]
    assert apart_ms(three.state, C) == off
    three.through_snapshot()
    clocks.beat(times=3)
    assert 0 <= clocks.early_ms <= SKEW_MS


def test_one_that_creeps_ahead_takes_the_log_s_clock_along_by_the_stated_skew(three: Script) -> None:
    clocks = Clocks(three, a=0, b=0, c=0)
    for _ in range(200):
        clocks.off[C] += 1_000
        clocks.beat()
        assert clocks.early_ms <= SKEW_MS


@pytest.mark.parametrize("off", [-STEP_MS, -8 * DAY_MS, -YEAR_MS, -(1 << 62)])
def test_one_of_two_that_is_behind_holds_nothing_up(script: Script, off: int) -> None:
    clocks = Clocks(script, a=0, b=off)
    clocks.beat(times=50)
    assert clocks.early_ms == 0
    assert (apart_ms(script.state, A), apart_ms(script.state, B)) == (0, off)


def test_one_of_two_that_is_ahead_is_the_one_that_is_apart(script: Script) -> None:
    """What the log's clock was until then tells which of the two it is."""
    clocks = Clocks(script, a=0, b=8 * DAY_MS)
    clocks.beat(times=50)
    assert 0 <= clocks.early_ms <= SKEW_MS
    assert (apart_ms(script.state, A), apart_ms(script.state, B)) == (0, 8 * DAY_MS)
    clocks.off[B] = 0
    clocks.beat()
    assert (apart_ms(script.state, A), apart_ms(script.state, B)) == (0, 0)


def test_after_an_outage_of_all_most_agents_are_believed_soon(three: Script) -> None:
    clocks = Clocks(three, a=0, b=0, c=YEAR_MS)
    clocks.true_ms += 3 * DAY_MS
    clocks.says(A)
    assert clocks.early_ms == -3 * DAY_MS, "one is not most of them"
    clocks.says(C)
    clocks.says(B)
    clocks.beat(times=ROUNDS // 2)
    assert clocks.early_ms < -2 * DAY_MS
    three.through_snapshot()
    clocks.beat(times=ROUNDS // 2 + 1)
    assert 0 <= clocks.early_ms <= SKEW_MS
    assert YEAR_MS - SKEW_MS <= apart_ms(three.state, C) <= YEAR_MS


def test_the_only_agent_is_believed_once_its_step_has_stood_for_long() -> None:
    script = Script()
    script.register(A)
    clocks = Clocks(script, a=0)
    clocks.beat(times=10)
    clocks.off[A] = YEAR_MS
    clocks.beat(times=12)
    assert clocks.early_ms <= STEP_MS, "a day ahead for a minute: survived"
    script.through_snapshot()
    clocks.off[A] = 0
    clocks.beat(STEP_MS, times=3)
    assert script.state.clock_doubt_ms == 0
    assert clocks.early_ms == 0
    clocks.true_ms += 3 * DAY_MS  # an outage, for the log the same as a clock that jumped
    clocks.beat(STEP_MS, times=TRUST_MS // STEP_MS - 2)
    assert clocks.early_ms < -2 * DAY_MS
    clocks.beat(STEP_MS, times=2)
    assert clocks.early_ms == 0


def test_what_the_only_agent_has_stood_for_is_forgotten_once_another_speaks() -> None:
    """Alone again, it has to stand for its step as long as ever."""
    script = Script()
    script.register(A)
    clocks = Clocks(script, a=YEAR_MS)
    clocks.beat(STEP_MS, times=TRUST_MS // STEP_MS - 2)
    assert script.state.clock_doubt_ms > 0
    script.now_ms = clocks.true_ms
    script.register(B)
    clocks.off = {A: YEAR_MS, B: 0}
    clocks.beat(times=2)
    assert script.state.clock_doubt_ms == 0
    clocks.off = {A: YEAR_MS}
    script.one(A, FenceIncarnation(incarnation=B))
    clocks.beat(STEP_MS, times=3)
    assert 0 <= clocks.early_ms <= STEP_MS


def test_a_first_agent_that_is_ahead_is_found_out_by_the_third() -> None:
    """Of two nobody can tell who is right: whoever joins is told, says so, and works no job until a third."""
    script = Script()
    script.now_ms += 8 * DAY_MS
    script.register(A)
    clocks = Clocks(script, a=0)
    clocks.true_ms -= 8 * DAY_MS
    clocks.off[A] = 8 * DAY_MS
    clocks.beat(times=3)
    ahead_ms = clocks.early_ms
    assert ahead_ms > 7 * DAY_MS, "the log knows no other time"
    script.now_ms = clocks.true_ms
    script.register(B)
    clocks.off[B] = 0
    clocks.beat(times=3)
    assert (apart_ms(script.state, A) == 0, apart_ms(script.state, B) < -7 * DAY_MS) == (True, True)
    assert clocks.early_ms <= ahead_ms + SKEW_MS, "no further ahead than it was"
    script.now_ms = clocks.true_ms
    script.register(C)
    clocks.off[C] = 0
    clocks.beat(times=3)
    assert agreed_ms(script.state) <= clocks.true_ms + SKEW_MS, (
        "nothing goes by the first one's clock any more"
    )
    assert apart_ms(script.state, A) > 7 * DAY_MS
    assert (apart_ms(script.state, B), apart_ms(script.state, C)) == (0, 0)


def test_the_log_s_clock_waits_for_agents_that_were_ahead_and_deletes_by_what_they_say(
    script: Script,
) -> None:
    """It never goes back; what goes by age goes by what most agents say, if that is less."""
    clocks = Clocks(script, a=DAY_MS, b=DAY_MS)
    clocks.beat(times=ROUNDS + 1)
    clocks.off = {A: 0, B: 0}
    clocks.beat(times=3)
    assert DAY_MS - 60_000 < clocks.early_ms <= DAY_MS
    assert agreed_ms(script.state) == clocks.true_ms + SKEW_MS
    assert (apart_ms(script.state, A), apart_ms(script.state, B)) == (0, 0)


def test_the_last_that_goes_on_is_heard_when_the_others_are_fenced(three: Script) -> None:
    clocks = Clocks(three, a=0)
    for other in (B, C):
        three.one(A, FenceIncarnation(incarnation=other))
    clocks.beat(times=100)
    assert clocks.early_ms == 0


def test_nothing_goes_before_its_time_by_an_agent_that_is_ahead(three: Script) -> None:
    """Log start, position, producer, transactional id, transaction: by an agent that is 8 days ahead."""
    three.topic(A, "t")
    three.commit(A, (0, 3, 7, 0, 0))
    commit(three)
    open_one, idle = Producer(three, A, "open"), Producer(three, A, "idle")
    open_one.init(timeout_ms=60_000)
    open_one.send(0)
    idle.init()
    clocks = Clocks(three, a=0, b=0, c=8 * DAY_MS)
    clocks.beat(times=2)
    three.now_ms = clocks.true_ms + clocks.off[C]
    moved = three.one(C, MoveLogStart(partition=[0], offset=[3], judged_ms=three.now_ms))
    assert isinstance(moved, Refused)
    assert moved.code is Code.INVALID_REQUEST
    assert "set the author's clock right" in moved.message
    assert three.one(C, ExpireOffsets(group=["g"], retention_ms=7 * DAY_MS)) == Done((0, 0))
    assert three.one(C, ExpireProducers(idle_since_ms=three.now_ms - DAY_MS)) == Done(0)
    expire = ExpireTransactions(idle_since_ms=three.now_ms - 7 * DAY_MS, transactional_id=["idle"])
    assert three.one(C, expire) == Done(0)
    assert isinstance(three.one(C, AbortTransaction(transactional_id="open", number=1)), Refused)
    assert len(three.state.groups["g"].offsets) == 1
    assert three.state.partitions[0].log_start == 0  # type: ignore[union-attr]  # it exists
    assert canonical_digest(three.replayed()) == canonical_digest(three.state)


def test_what_an_agent_that_is_behind_writes_does_not_look_old(three: Script) -> None:
    """Stamps in the state are the log's, not the author's."""
    three.topic(A, "t")
    clocks = Clocks(three, a=0, b=0, c=-8 * DAY_MS)
    clocks.beat(times=2)
    three.now_ms = clocks.true_ms + clocks.off[C]
    three.commit(C, (0, 3, 7, 0, 0))
    commit(three, C)
    clocks.beat()
    assert three.one(A, ExpireOffsets(group=["g"], retention_ms=7 * DAY_MS)) == Done((0, 0))
    assert three.one(A, ExpireProducers(idle_since_ms=three.now_ms - DAY_MS)) == Done(0)


def test_below_its_level_a_stamp_counts_as_it_did() -> None:
    script = Script()
    script.register(A, level=1)
    script.register(B, level=1)
    script.topic(A, "t")
    script.commit(A, (0, 3))
    script.now_ms += YEAR_MS
    assert script.one(A, MoveLogStart(partition=[0], offset=[3], judged_ms=1 << 60)) == Done((3,))
    assert script.state.clock_ms == START_MS + YEAR_MS


def test_raising_the_level_forgets_a_highest_stamp_that_nobody_says_any_more() -> None:
    script = Script()
    for author in (A, B):
        script.register(author, level=1)
    script.state.incarnations[A].feature_max = script.state.incarnations[B].feature_max = 2
    script.now_ms += YEAR_MS
    script.apply(A, Heartbeat())
    script.now_ms -= YEAR_MS
    script.apply(A, Heartbeat())
    script.apply(B, SetFeatureLevel(level=2))
    assert script.state.clock_ms == START_MS + SKEW_MS


@pytest.mark.parametrize("agents", [(A, B), (A, B, C, D)])
def test_raising_the_level_believes_no_agent_that_is_ahead(agents: tuple[int, ...]) -> None:
    """Half of the agents made the highest stamp that the level below went by: it is no witness for them."""
    script, ahead = Script(), agents[len(agents) // 2 :]
    for author in agents:
        script.register(author, level=1)
        script.state.incarnations[author].feature_max = 2
    script.topic(A, "t")
    script.commit(A, (0, 3))
    clocks = Clocks(script, **{"abcd"[author - A]: 8 * DAY_MS * (author in ahead) for author in agents})
    clocks.beat()
    script.now_ms = clocks.true_ms
    script.apply(A, SetFeatureLevel(level=2))
    assert clocks.early_ms <= SKEW_MS
    clocks.beat(times=3)
    script.now_ms = clocks.true_ms + 8 * DAY_MS
    moved = script.one(ahead[0], MoveLogStart(partition=[0], offset=[3], judged_ms=script.now_ms))
    assert isinstance(moved, Refused)
    assert 0 <= clocks.early_ms <= SKEW_MS
    assert [apart_ms(script.state, author) > 0 for author in agents] == [one in ahead for one in agents]


def test_an_agent_counts_up_to_a_distance(three: Script) -> None:
    clocks = Clocks(three, a=0, b=0, c=APART_MS)
    clocks.beat()
    assert apart_ms(three.state, C) <= APART_MS
    clocks.off[C] = APART_MS + SKEW_MS + 1
    clocks.beat()
    assert apart_ms(three.state, C) > APART_MS


@pytest.mark.parametrize("seed", range(30))
def test_whatever_one_of_three_says_the_log_s_clock_is_right(three: Script, seed: int) -> None:
    """It jumps at random, both ways: never back, never ahead by more than the stated skew."""
    draw = random.Random(seed)
    clocks, liar, before = Clocks(three, a=0, b=0, c=0), draw.choice([A, B, C]), 0
    for _ in range(150):
        if draw.random() < 0.3:
            clocks.off[liar] = draw.choice([0, 1, -1]) * draw.randrange(1 << draw.randrange(1, 45))
        clocks.true_ms += draw.randrange(2_000)
        clocks.says(draw.choice([A, B, C]))
        if draw.random() < 0.1:
            three.through_snapshot()
        assert three.state.clock_ms >= before
        assert clocks.early_ms <= SKEW_MS
        before = three.state.clock_ms
    clocks.beat(times=2)
    assert clocks.early_ms >= 0


@pytest.mark.parametrize("agents", [(A, B), (A, B, C)])
def test_two_that_are_wrong_by_turns_are_no_witnesses_for_each_other(agents: tuple[int, ...]) -> None:
    """Seed 2842 of the simulation: one is set right and has not spoken yet when the other goes wrong."""
    script = Script()
    for author in agents:
        script.register(author)
    clocks = Clocks(script, **{"abc"[author - A]: 0 for author in agents})
    clocks.beat(times=3)
    clocks.off[B] = YEAR_MS
    clocks.says(B)
    clocks.off |= {A: 8 * DAY_MS, B: 0}
    for _ in range(20):
        clocks.true_ms += 100
        clocks.says(A)
        script.through_snapshot()
    assert clocks.early_ms <= SKEW_MS
    clocks.says(B)
    assert clocks.early_ms <= SKEW_MS
    assert apart_ms(script.state, A) > 7 * DAY_MS
    clocks.off[B] = YEAR_MS  # and once more: what was said before B was right does not count any more
    clocks.off[A] = 0
    clocks.says(B)
    assert clocks.early_ms <= SKEW_MS


def test_two_that_are_far_are_believed_when_both_stand_by_it(script: Script) -> None:
    """One alone may say so as often as it likes."""
    clocks = Clocks(script, a=0, b=0)
    clocks.beat(times=3)
    clocks.true_ms += 3 * DAY_MS
    clocks.says(B)
    for _ in range(5 * ROUNDS):
        clocks.says(A)
    assert clocks.early_ms == -3 * DAY_MS
    for _ in range(ROUNDS):
        clocks.says(B)
        clocks.says(A)
    assert clocks.early_ms == 0
    assert (script.state.clock_doubt_rounds, script.state.clock_doubt_revision) == (0, 0)


@pytest.mark.parametrize("agents", [(A, B), (A, B, C)])
@pytest.mark.parametrize("seed", range(60))
def test_whichever_is_wrong_at_the_time_the_log_s_clock_is_right(agents: tuple[int, ...], seed: int) -> None:
    """One at a time, by minutes to years, both ways; the one before may not have spoken since it is right."""
    draw, script = random.Random(seed), Script()
    for author in agents:
        script.register(author)
    clocks = Clocks(script, **{"abc"[author - A]: 0 for author in agents})
    clocks.beat(times=2)
    for _ in range(400):
        if draw.random() < 0.15:
            clocks.off |= dict.fromkeys(agents, 0)
            far = draw.randrange(2 * APART_MS, draw.choice([STEP_MS, DAY_MS, YEAR_MS]))
            clocks.off[draw.choice(agents)] = draw.choice([0, 1, 1, -1]) * far
        clocks.true_ms += draw.randrange(1_000)
        clocks.says(draw.choice(agents))
        if draw.random() < 0.05:
            script.through_snapshot()
        assert clocks.early_ms <= SKEW_MS
    clocks.off |= dict.fromkeys(agents, 0)
    clocks.beat(times=2)
    assert clocks.early_ms >= 0
