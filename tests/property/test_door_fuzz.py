"""Broken logins and handshakes let nobody in, and end in refusals (tests/fuzz_door.py)."""

from __future__ import annotations

import random

import pytest

from tests.fuzz_door import attack

ROUNDS = 60


@pytest.mark.parametrize("seed", range(3))
async def test_strangers_at_the_door(seed: int) -> None:
    counts = await attack(random.Random(seed), 3_600, ROUNDS)
    assert counts["login refused"] + counts["login let in"] == ROUNDS
    assert counts["login let in"] > 0, "some are who they say"
    assert counts["handshake shook hands"] > 0
    assert counts["handshake refused"] + counts["handshake unfinished"] > 0
