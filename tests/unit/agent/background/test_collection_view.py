"""The collector's look at the state: asked for each object that it finds, after a barrier for each page."""

from __future__ import annotations

from typing import Any, NoReturn

from agent.background.collection import StateView
from objectstore.naming import ChunkId
from tests.unit.agent.background.test_merging import fill
from tests.unit.agent.kafka.test_handlers_produce_fetch import create
from tests.unit.agent.rig import Agent


class Unwalked(dict[Any, Any]):
    """A dict in which things are looked up; whoever goes over it fails."""

    def _refuse(self, *_: object) -> NoReturn:
        raise AssertionError("this goes over everything that there is")

    __iter__ = items = keys = values = _refuse  # type: ignore[assignment]  # each of them fails


async def test_a_page_costs_what_is_on_it(agent: Agent) -> None:
    """Not what the cluster has: with millions of chunks the event loop stood still at every page."""
    await create(agent)
    await fill(agent, 2)
    replica = agent.services.replica
    chunks = [chunk.id for chunk in replica.state.chunks.by_serial.values()]
    for table in (replica.state.chunks, replica.state):
        for name in ("by_serial", "serials", "manifest_garbage", "whole_garbage"):
            if hasattr(table, name):
                setattr(table, name, Unwalked(getattr(table, name)))
    view = StateView(replica)
    await view.catch_up()
    assert chunks
    assert all(map(view.is_referenced, chunks))
    assert not view.is_referenced(ChunkId(chunks[0].incarnation, 1 << 40))
    assert not view.let_go_whole(0)
