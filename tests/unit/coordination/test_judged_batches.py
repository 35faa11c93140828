"""A chunk says by which bindings its records were judged; apply refuses those of topics bound anew since."""

from __future__ import annotations

import random

import pytest

from coordination.commands import BindSchema
from coordination.snapshot import canonical_digest
from coordination.state import ChunkCommitted, Done
from coordination.state.chunks import BOUND_ANEW
from tests.unit.coordination.kit import A, B, Script, chunk, tiles

P = 900


def bind(script: Script, topic: str = "t", message: str = "m", *, unbind: bool = False) -> int:
    """Bind the topic; the revision at which it is."""
    binding = BindSchema(topic=topic, descriptor_set=b"set", message=message, unbind=unbind)
    assert isinstance(script.one(B, binding), Done)
    return script.state.revision


def commit(script: Script, judged: int, *batches: tuple[int, ...]) -> ChunkCommitted:
    script.chunks[A] = script.chunks.get(A, 0) + 1
    message = chunk(script.chunks[A], *batches)
    message.judged_revision = judged
    result = script.one(A, message)
    assert isinstance(result, ChunkCommitted)
    tiles(script.state)
    return result


@pytest.fixture
def bound(script: Script) -> Script:
    """Topics t (handle 0) and u (1)."""
    script.topic(A, "t")
    script.topic(A, "u")
    return script


def test_batches_judged_before_are_refused_and_leave_no_trace(bound: Script) -> None:
    at = bind(bound)
    bound.through_snapshot()
    answer = commit(bound, at - 1, (0, 3, P, 0, 0), (1, 2, P, 0, 0), (0, 1))
    assert answer.errors == [BOUND_ANEW, 0, BOUND_ANEW]
    assert answer.base_offsets == [-1, 0, -1]
    t, u = bound.state.partitions
    assert t is not None
    assert (t.high_watermark, t.producers) == (0, {}), "its sequence can be sent again"
    assert u is not None
    assert u.high_watermark == 2
    assert commit(bound, at, (0, 3, P, 0, 0)).base_offsets == [0]
    assert canonical_digest(bound.replayed()) == canonical_digest(bound.state)


def test_a_binding_that_changes_nothing_is_none(bound: Script) -> None:
    at = bind(bound)
    bind(bound)
    assert commit(bound, at, (0, 1)).errors == [0]
    later = bind(bound, unbind=True)
    bind(bound, unbind=True)
    assert commit(bound, at, (0, 1)).errors == [BOUND_ANEW]
    assert commit(bound, later, (0, 1)).errors == [0]


def test_below_its_level_nobody_looks() -> None:
    script = Script()
    for author in (A, B):
        script.register(author, level=1)
    script.topic(A, "t")
    bind(script)
    assert commit(script, 0, (0, 1)).errors == [0]
    assert script.state.bound_revision == 0


@pytest.mark.parametrize("seed", range(20))
def test_whatever_is_accepted_was_judged_by_the_binding_at_its_place(bound: Script, seed: int) -> None:
    """Bindings and chunks at random, judged by older states: against the whole history."""
    draw = random.Random(seed)
    last = {0: 0, 1: 0}
    for number in range(60):
        handle = draw.randrange(2)
        if draw.random() < 0.3:
            last[handle] = bind(bound, "tu"[handle], message=f"m{number}")
        judged = draw.randrange(max(0, bound.state.revision - 8), bound.state.revision + 1)
        batches = [(draw.randrange(2), 1) for _ in range(draw.randrange(1, 4))]
        refused = [code == BOUND_ANEW for code in commit(bound, judged, *batches).errors]
        assert refused == [last[handle] > judged for handle, _ in batches]
