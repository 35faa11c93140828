"""Where batches are opened and rewritten: in this process, or in a helper with an interpreter of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from agent.background.rewriting.worker import Asking, ask, helper
from objectstore.compact import Counts, Pass, Rules
from objectstore.offset_map import OffsetMap
from objectstore.transactions import Aborted, Transactions

MODULE = "agent.background.rewriting.compaction.worker_process"


@dataclass(frozen=True, slots=True)
class Begin:
    """Start a pass; what was under way is forgotten. At most `keys_max` keys are kept in mind."""

    rules: Rules
    keys_max: int
    aborted: tuple[Aborted, ...] = ()


@dataclass(frozen=True, slots=True)
class Learn:
    """Take note of the batches that follow, from `from_offset` on."""

    from_offset: int


@dataclass(frozen=True, slots=True)
class Clean:
    """Send back what stays of the batches that follow."""


@dataclass(frozen=True, slots=True)
class Learned:
    """Everything up to offset `latest` is taken note of; `full`: there is no room for more."""

    latest: int
    full: bool


@dataclass(frozen=True, slots=True)
class Cleaned:
    """`changed`: something went or was rewritten."""

    changed: bool


class Worker(Protocol):
    """One pass at a time: begin, learn as often as needed, then clean."""

    async def begin(self, begin: Begin) -> None:
        """Start a pass. Raises Corrupt and HelperDied, as everything here."""
        ...

    async def learn(self, batches: Sequence[memoryview], from_offset: int) -> Learned:
        """Take note of whole batches."""
        ...

    async def clean(self, batches: Sequence[memoryview]) -> tuple[memoryview, bool]:
        """What stays of whole batches, and whether that is not what was given."""
        ...

    async def finish(self) -> Counts:
        """End the pass and give its memory back; what it saw and left."""
        ...

    async def close(self) -> None:
        """End the worker."""
        ...


class Session:
    """The worker's side of a pass, without I/O."""

    def __init__(self) -> None:
        self._run: Pass | None = None

    @property
    def run(self) -> Pass:
        """The pass under way."""
        assert self._run is not None, "a pass has begun"
        return self._run

    def answer(self, request: object, content: memoryview) -> tuple[object, list[memoryview]]:
        """The answer to a request and the bytes that follow it."""
        if isinstance(request, Begin):
            offsets = OffsetMap(request.keys_max)
            self._run = Pass(offsets, request.rules, Transactions(request.aborted))
            return Counts(), []
        if isinstance(request, Learn):
            full = not self.run.learn(content, request.from_offset)
            return Learned(self.run.offsets.latest, full), []
        if isinstance(request, Clean):
            kept = [memoryview(each) for each in self.run.clean(content)]
            length = sum(len(each) for each in kept)
            return Cleaned(length != len(content) or self.run.take_rewritten()), kept
        counts, self._run = self.run.counts, None
        return counts, []


class HelperWorker:
    """Works in a helper process, unless a test brings another `asking`."""

    def __init__(self, asking: Asking | None = None) -> None:
        self._helper = asking or helper(MODULE)

    @property
    def pid(self) -> int | None:
        """The helper's process id; None while there is none."""
        return self._helper.pid

    async def begin(self, begin: Begin) -> None:
        """See Worker."""
        await self._ask(begin)

    async def learn(self, batches: Sequence[memoryview], from_offset: int) -> Learned:
        """See Worker."""
        answer, _ = await self._ask(Learn(from_offset), batches)
        assert isinstance(answer, Learned)
        return answer

    async def clean(self, batches: Sequence[memoryview]) -> tuple[memoryview, bool]:
        """See Worker."""
        answer, content = await self._ask(Clean(), batches)
        assert isinstance(answer, Cleaned)
        return content, answer.changed

    async def finish(self) -> Counts:
        """See Worker."""
        answer, _ = await self._ask(None)
        assert isinstance(answer, Counts)
        return answer

    async def close(self) -> None:
        """See Worker."""
        await self._helper.close()

    async def _ask(self, request: object, parts: Sequence[memoryview] = ()) -> tuple[object, memoryview]:
        return await ask(self._helper, request, parts)
