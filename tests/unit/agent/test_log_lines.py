"""Log lines of one kind are bounded, whichever way they are written, and what is left out is told."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest
import structlog

from agent.config import LoggingConfig
from agent.telemetry import logs
from agent.telemetry.limit import LineLimit
from objectstore import tasks
from objectstore.episodes import Episodes, through

LINES_MAX, PERIOD_S, KINDS_MAX = 7, 3.0, 200
CONFIG = LoggingConfig(
    format="json", level="debug", lines_max=LINES_MAX, period_ms=int(PERIOD_S * 1000), kinds_max=KINDS_MAX
)


class Lines:
    """A process's log, and time."""

    def __init__(self) -> None:
        self.now = 0.0
        self.stream = io.StringIO()
        logs.configure(CONFIG, self.stream, now=lambda: self.now)

    def written(self) -> list[dict[str, object]]:
        text = self.stream.getvalue()
        self.stream.seek(0)
        self.stream.truncate()
        return [json.loads(line) for line in text.splitlines()]


@pytest.fixture
def lines() -> Iterator[Lines]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield Lines()
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()


def test_of_a_kind_the_first_are_written_and_the_rest_are_counted(lines: Lines) -> None:
    for number in range(1000):
        logs.logger("peers").info("a peer is late", peer=number)
        logging.getLogger("floe.chain").warning("append %d failed", number)
    written = lines.written()
    assert len(written) == 2 * LINES_MAX
    assert written[0]["peer"] == 0
    lines.now += PERIOD_S - 0.1
    logs.logger("peers").info("a peer is late", peer=4000)
    assert not lines.written()
    lines.now += 0.1
    logs.logger("peers").info("a peer is late", peer=5000)
    logging.getLogger("floe.chain").warning("append %d failed", 5000)
    first, second = lines.written()
    assert (first["event"], first["left_out"]) == ("a peer is late", 1001 - LINES_MAX)
    assert second["event"] == f"append 5000 failed (and {1000 - LINES_MAX} more of this kind before)"
    logs.logger("peers").info("a peer is late", peer=5001)
    assert "left_out" not in lines.written()[0], "told once"


def test_other_kinds_are_not_held_up(lines: Lines) -> None:
    for number in range(100):
        logs.logger("peers").info("a peer is late", peer=number)
        logs.logger("peers").info(f"event {number}")
    events = [line["event"] for line in lines.written()]
    assert events.count("a peer is late") == LINES_MAX
    assert len(events) == LINES_MAX + 100


def test_what_stops_an_agent_and_what_was_asked_for_is_written(lines: Lines) -> None:
    for _ in range(100):
        logs.logger("replica").critical("this agent stops")
        logs.logger("replica").debug("a detail")
    assert len(lines.written()) == 200


def test_kinds_are_bounded() -> None:
    limit = LineLimit(CONFIG, lambda: 0.0)
    for number in range(2 * KINDS_MAX):
        assert limit.filter(logging.LogRecord("x", logging.INFO, "", 0, f"kind {number}", (), None))
    assert len(limit._kinds) == KINDS_MAX


def test_a_line_from_below_the_agent_has_fields_too(lines: Lines) -> None:
    told = Episodes(
        through(logging.getLogger("floe.chain")), lambda: lines.now, begins="it fails", ends="it works again"
    )
    told.met("", incarnation="00ff", error="UNAVAILABLE")
    lines.now += 178.0
    told.met("", incarnation="00ff", error="UNAVAILABLE")
    told.over("", incarnation="00ff")
    begun, again, ended = lines.written()
    assert (begun["event"], begun["error"], begun["level"]) == ("it fails", "UNAVAILABLE", "warning")
    assert (again["times"], again["for_s"]) == (2, 178.0)
    assert (ended["event"], ended["lasted_s"], ended["incarnation"]) == ("it works again", 178.0, "00ff")


def test_what_is_left_out_of_such_lines_is_told_in_a_field(lines: Lines) -> None:
    tell = through(logging.getLogger("floe.chain"))
    for number in range(2 * LINES_MAX):
        tell("info", "it works again", {"number": number})
    lines.now += PERIOD_S
    tell("info", "it works again", {"number": -1})
    last = lines.written()[-1]
    assert (last["event"], last["left_out"]) == ("it works again", LINES_MAX)


async def test_a_line_of_a_request_names_it_and_work_for_all_names_none(lines: Lines) -> None:
    async def work() -> None:
        logging.getLogger("floe.chain").warning("at work")

    logs.request_id.set("7-42")
    await tasks.start(work(), "of the request")
    await tasks.start(work(), "of everybody", apart=True)
    await tasks.kept(work, "for ever")
    of_request, of_all, kept = lines.written()
    assert of_request["request"] == "7-42"
    assert "request" not in of_all
    assert "request" not in kept
