"""Comparisons of schemas take a core for a while: few at a time, however many ask."""

from __future__ import annotations

import asyncio
import threading

import pytest

from agent.http.registry import judging
from agent.http.registry.judging import COMPARED_AT_ONCE_MAX, Reader, Wanted
from schema.registry.parsed import Parsed

WANTED = Wanted("AVRO", Parsed(b'"int"', '"int"'), (), "", "", {})


async def test_comparisons_wait_for_a_place(monkeypatch: pytest.MonkeyPatch) -> None:
    running, most, lock = 0, 0, threading.Lock()
    both = threading.Barrier(COMPARED_AT_ONCE_MAX)

    def compared(*_: object) -> list[str]:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        both.wait(10)  # as many as may be are there at once
        with lock:
            running -= 1
        return []

    monkeypatch.setattr(judging, "compared", compared)
    reader = Reader()
    asked = [reader.compared(WANTED, [], "FULL") for _ in range(3 * COMPARED_AT_ONCE_MAX)]
    assert await asyncio.gather(*asked) == [[]] * len(asked)
    assert most == COMPARED_AT_ONCE_MAX
