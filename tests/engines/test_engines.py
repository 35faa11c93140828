"""Engines that the house has are asked anew; docs/engines.md says what is kept of all."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.engines import lake, page
from tests.engines.engines import ENGINES, RESULTS, Engine, answers, outcome
from tests.engines.lake import Lake

pytestmark = pytest.mark.services
OWN = [each for each in ENGINES if each.own]


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Lake]:
    """The lake, and its catalog."""
    async with lake.served(tmp_path) as found:
        yield found


async def test_every_value_is_what_was_produced(served: Lake) -> None:
    kept = json.loads(RESULTS.read_text())
    assert kept["questions"] == {each.name: each.what for each in served.questions}, "run `make engines`"
    for engine in OWN:
        given = await answers(engine, served.url, served.questions)
        found = {each.name: outcome(engine, each, given[each.name]) for each in served.questions}
        assert found == kept["engines"][engine.name], engine.name


async def test_a_wrong_value_is_told(served: Lake) -> None:
    question = served.questions[0]
    wrong = json.loads(json.dumps(question.expected))
    wrong[0][0] *= 1 + 1e-15
    engine = Engine("e", "", (), "")
    assert outcome(engine, question, json.loads(json.dumps(question.expected))) == "passed"
    assert outcome(engine, question, wrong).startswith("answered ")
    assert outcome(engine, question, {"error": "x"}).startswith("answered ")
    known = Engine("e", "", (), "", known={question.name: "why"})
    assert outcome(known, question, wrong) == "known: why"
    assert outcome(known, question, question.expected).startswith("passed, though")


def test_the_page_says_what_is_kept() -> None:
    assert page.PAGE.read_text() == page.render(), "run `python -m tests.engines.page`"
