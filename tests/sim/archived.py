"""What a run left of the log in the bucket: from each snapshot it must lead to the state that agents have.

No agent is asked for the archive: it is read as whoever has lost etcd would read it. Entries may be missing
only where the log was trimmed before they were archived, and only where a chain that begins there says so.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from coordination.archive import shelf
from coordination.archive.head import listed
from coordination.archive.shelf import Survey
from coordination.state import State
from coordination.state.errors import StateError
from objectstore.adapters.memory import MemoryStore, _Object
from objectstore.naming import LOG, MANIFESTS, SNAPSHOTS, log_folder, piece_key
from tests.checker.findings import Finding
from tests.sim import let_go
from tests.sim.node import AgentNode

IDENTITY = "memory:sim"
"""Of the log of each run (MemoryServer)."""
KEPT = (LOG, SNAPSHOTS, MANIFESTS)
BEHIND_S_MAX = 20.0
"""Within which the archive goes further than the newest snapshot, when all is healed."""


class Kept(dict[str, Any]):
    """What is deleted of the archive, snapshots and manifests, by key: a run is judged from its beginning.

    `gone`: what was deleted of records, and how far the archive went then.
    """

    def __init__(self, objects: MemoryStore, *, on: bool) -> None:
        super().__init__()
        self.gone: list[let_go.Gone] = []
        self._objects, self._delete = objects._objects, objects.delete
        if on:
            objects.delete = self._keeping  # type: ignore[method-assign]  # what goes is noted, and goes

    async def _keeping(self, keys: Sequence[str]) -> None:
        there = [key for key in keys if key in self._objects]
        self.gone += let_go.gone(there, {*self._objects, *self})
        self.update((key, self._objects[key]) for key in there if key.startswith(KEPT))
        await self._delete(keys)


async def judged(
    agents: Sequence[AgentNode], objects: MemoryStore, kept: Kept, first: Mapping[str, bytes]
) -> list[Finding]:
    """What is wrong with the archive, and with what it was: by what agents wrote first (`first`), where
    somebody damages objects (scrubbing.py). What was deleted while it was damaged is as it was, too.
    """
    app = agents[0].app
    assert app is not None, "healed before it is judged"
    folder, last = log_folder(IDENTITY), 0
    try:
        async with asyncio.timeout(BEHIND_S_MAX):
            while not (snapshots := app.replica.state.snapshots) or last < snapshots[-1].revision:
                await asyncio.sleep(0.2)
                last = max((each.id.last for each in await listed(objects, folder)), default=0)
    except TimeoutError:
        return [_wrong("archive-behind", f"it ends at {last}, {BEHIND_S_MAX:.0f} s long")]
    state, whole = app.replica.state, MemoryStore()
    whole._objects = {**kept, **objects._objects}
    for key in (key for key in first if key.startswith(KEPT)):
        whole._objects[key] = _Object(first[key], "", 0)
    counted = [each.revision for each in state.snapshots]
    now = await shelf.survey(objects, folder, counted)
    found = await shelf.survey(whole, folder, [0])
    findings = [*_broken(now), *_broken(found)]
    known = [0, *await shelf.snapshots(whole)]
    begun = [min(each for each in known if each >= line[0].header.first - 1) for line in found.lines]
    for revision in {*counted, *begun}:
        findings += await _differs(whole, found, revision, state)
    return findings or await let_go.judged(whole, found, begun, kept.gone)


async def _differs(objects: MemoryStore, found: Survey, revision: int, agents: State) -> list[Finding]:
    """What comes of the snapshot of a revision and the entries behind it, beside what agents have."""
    state = await let_go.snapshot_of(objects, revision)
    try:
        async for entry in shelf.entries_after(objects, found, revision):
            state.apply(entry)
    except StateError as error:
        return [_wrong("archive-differs", f"from {revision}: {error}")]
    hashed = agents.hash_at(state.revision)
    if hashed in (state.hash, None):  # an agent that came late knows no hash of before
        return []
    told = f"from {revision} through {state.revision}: {state.hash}, agents have {hashed}"
    return [_wrong("archive-differs", told)]


def _broken(found: Survey) -> Iterator[Finding]:
    """Damage, and breaks that no piece owns up to."""
    for stored, error in found.damaged:
        yield _wrong("archive-damaged", f"{piece_key(stored.id)}: {error}")
    begun = {line[0].header.first for line in found.lines if line[0].header.begins}
    for first, last in found.missing:
        if last + 1 not in begun:
            yield _wrong("archive-broken", f"{first} to {last} are in no piece, and nothing says why")


def _wrong(name: str, detail: str) -> Finding:
    return Finding(name, "", detail, ())
