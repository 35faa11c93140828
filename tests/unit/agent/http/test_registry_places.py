"""Comparisons of schemas take a core for a while: few at a time, however many ask."""

from __future__ import annotations

import asyncio

import pytest

from agent.http.registry.judging import COMPARED_AT_ONCE_MAX, Law, Reader, Wanted
from schema.registry.parsed import Parsed

WANTED = Wanted("AVRO", Parsed(b'"int"', '"int"'), (), "", "", {})


async def test_comparisons_wait_for_a_place(monkeypatch: pytest.MonkeyPatch) -> None:
    running, most, go_on = 0, 0, asyncio.Event()

    async def in_a_thread(*_: object) -> list[str]:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await go_on.wait()
        running -= 1
        return []

    monkeypatch.setattr(asyncio, "to_thread", in_a_thread)
    reader = Reader()
    asked = [asyncio.ensure_future(reader.compared(WANTED, [], Law("FULL", ""))) for _ in range(10)]
    for _ in range(20):
        await asyncio.sleep(0)
    assert running == COMPARED_AT_ONCE_MAX
    go_on.set()
    assert await asyncio.gather(*asked) == [[]] * len(asked)
    assert most == COMPARED_AT_ONCE_MAX
