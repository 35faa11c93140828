"""What a scrub holds of large files: never one of more than its bound, and no second copy."""

from __future__ import annotations

import threading
import tracemalloc
from dataclasses import replace
from random import Random

import pytest

from agent.background.scrub import reading, scrubber
from agent.background.scrub.damage import Counts, Damage, Round
from agent.background.scrub.needs import Need
from agent.background.scrub.reading import Reader
from agent.background.scrub.scrubber import checked
from agent.background.scrub.spares import Spares
from agent.background.scrub.walks import always
from iceberg import contents
from iceberg.contents import Owners
from iceberg.sealed import Sums, sealed
from objectstore.adapters.memory import MemoryStore
from objectstore.steady import Steady
from objectstore.store import Buffer
from objectstore.turns import THREAD_BYTES_MIN
from tests.unit.agent.background.scrub_rig import Cluster, cluster
from tests.unit.agent.rig import Agent

PIECE = 1000
FOREIGN = "tables/floe/t/data/00000-0-of-another-engine.parquet"
BODY = b"PAR1" + Random(3).randbytes(3 * PIECE + 17) + b"PAR1"
OWN = sealed("tables/floe/t/data/own.parquet", BODY)


async def _sleep(_seconds: float) -> None:
    return None


class Asked(MemoryStore):
    """Notes what is read whole."""

    def __init__(self) -> None:
        super().__init__(lambda: 0)
        self.whole: list[str] = []

    async def get(self, key: str) -> bytes:
        self.whole.append(key)
        return await super().get(key)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "PIECE_BYTES", PIECE)
    monkeypatch.setattr(scrubber, "PIECE_BYTES", PIECE)


def reader(store: MemoryStore, whole_bytes_max: int) -> Reader:
    counts = Counts()
    return Reader(store, Steady(1e12, lambda: 0.0, _sleep), lambda: counts, whole_bytes_max)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("key", [FOREIGN, OWN])
@pytest.mark.parametrize("told", [len(BODY), 0])
async def test_a_file_above_the_bound_is_looked_at_in_pieces(key: str, told: int) -> None:
    """Also another engine's, whose name has no checksum, and also where nobody tells its size."""
    store = Asked()
    await store.put(key, [BODY])
    need = Need(key, always, told, leads=False)
    assert await checked(reader(store, len(BODY) - 1), need) == ("", None)
    assert store.whole == []
    assert await checked(reader(store, len(BODY)), need) == ("", BODY)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(
    ("key", "content", "problem"),
    [
        (FOREIGN, BODY[:-1], f"{len(BODY) - 1} bytes, its manifest says {len(BODY)}"),
        (FOREIGN, b"x" + BODY[1:], "not a Parquet file"),
        (FOREIGN, BODY[:-1] + b"x", "not a Parquet file"),
        (OWN, BODY[:PIECE] + b"x" + BODY[PIECE + 1 :], "do not have the checksum in its name"),
    ],
)
async def test_what_shows_in_pieces_is_told(key: str, content: bytes, problem: str) -> None:
    store = Asked()
    await store.put(key, [content])
    found, held = await checked(reader(store, PIECE), Need(key, always, len(BODY), leads=False))
    assert problem in found
    assert (held, store.whole) == (None, [])


@pytest.mark.usefixtures("small")
async def test_a_large_one_that_is_not_there_is_told() -> None:
    need = Need(FOREIGN, always, len(BODY), leads=False)
    assert await checked(reader(Asked(), PIECE), need) == ("it is not there", None)


async def test_what_is_held_is_held_once() -> None:
    size, store = 32 << 20, Zeros()
    tracemalloc.start()
    try:
        content = await reader(store, 0).whole("x", size)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(content) == size
    assert peak < 1.5 * size


class Zeros(MemoryStore):
    """An object of any size, made as it is read."""

    async def get_range(self, key: str, start: int, length: int) -> bytes:
        return bytes(length)


@pytest.mark.usefixtures("small")
async def test_damage_that_is_looked_at_again_is_held_no_more_than_before(
    agent: Agent, memory_store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: Cluster = await cluster(agent, memory_store)
    monkeypatch.setattr("agent.background.scrub.job.AGAIN_S", 0.0)
    await memory_store.put(FOREIGN, [BODY])
    at = Round(beyond={key: Damage(key, "data", "lost", table="floe.t") for key in (FOREIGN, OWN)})
    made.scrub.options = replace(made.scrub.options, whole_bytes_max=PIECE)
    made.scrub._round = at
    whole: list[str] = []
    monkeypatch.setattr(memory_store, "get", whole.append)
    await made.scrub._look_again()
    assert set(at.beyond) == {OWN}, "the other one is there again"
    assert whole == []


class Threads:
    """Notes in which threads something was done."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seen: set[int] = set()
        add, problem = Sums.add, contents.problem

        def adds(sums: Sums, data: Buffer, kind: str) -> None:
            self.seen.add(threading.get_ident())
            add(sums, data, kind)

        def problems(key: str, content: bytes) -> str:
            self.seen.add(threading.get_ident())
            return problem(key, content)

        monkeypatch.setattr(Sums, "add", adds)
        monkeypatch.setattr(contents, "problem", problems)


async def test_sums_of_large_objects_are_made_beside_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore()
    content = Random(4).randbytes(THREAD_BYTES_MIN)
    owner = sealed("tables/floe/t/data/owner.parquet", content)
    threads = Threads(monkeypatch)
    owners = Owners(store, "tables")
    assert await owners.of(content) == ""
    assert await owners.of(b"FLOECHNK" + content) == ""
    spares = Spares(store, owners, lambda _: True)
    await spares.put(owner, content)
    await store.put(FOREIGN, [content])
    await store.put(f"scrub/spare/{owner}", [content])
    await spares.restore()
    assert await spares.exchange(FOREIGN, content, write=False) is False
    assert threads.seen
    assert threading.get_ident() not in threads.seen
