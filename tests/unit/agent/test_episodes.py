"""What goes on for a while is a few lines of the log: its beginning, now and then a sign, its end."""

from __future__ import annotations

from structlog.testing import capture_logs

from agent.telemetry.episodes import AGAIN_S, Episodes
from agent.telemetry.logs import logger
from objectstore.episodes import EPISODES_MAX

PER_S = 1024


def test_a_thousand_meetings_a_second_are_a_line_a_minute_and_an_end() -> None:
    now = [0.0]
    told = Episodes(logger("peers"), lambda: now[0], begins="it is away", ends="it is back")
    with capture_logs() as lines:
        for _ in range(178 * PER_S):
            told.met("p", peer="p")
            now[0] += 1 / PER_S
        told.over("p", peer="p")
        told.over("p", peer="p")
    *going_on, end = lines
    assert [line.get("times", 1) for line in going_on] == [1, 60 * PER_S + 1, 120 * PER_S + 1]
    assert [line.get("for_s", 0) for line in going_on] == [0, AGAIN_S, 2 * AGAIN_S]
    assert end == {
        "event": "it is back",
        "peer": "p",
        "times": 178 * PER_S,
        "lasted_s": 178.0,
        "log_level": "info",
    }


def test_each_has_its_own_episode_and_so_many_are_remembered() -> None:
    told = Episodes(logger("peers"), lambda: 0.0, begins="away", ends="back", level="info")
    with capture_logs() as lines:
        for number in range(EPISODES_MAX + 1):
            told.met(str(number))
        told.over("0")
        told.over("1")
    assert len(lines) == EPISODES_MAX + 2, "one end: the first episode was forgotten"
    assert not told.going_on("1")
    assert told.going_on("2")
