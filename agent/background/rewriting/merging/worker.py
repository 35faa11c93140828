"""Where record bytes are checked, numbered and put together: in a helper process with its own interpreter.

The agent reads spans of chunks and hands them over as they are; the helper keeps the pieces until a segment
is asked for. So the event loop only moves bytes, and the pieces of all partitions of a group are held once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from agent.background.rewriting.merging.spared import Unreadable
from agent.background.rewriting.worker import Asking, ask, helper
from objectstore.batch import CorruptBatch
from objectstore.naming import SegmentId, SliceRef, object_key
from objectstore.reader import patched
from objectstore.segment import SegmentInfo, SegmentWriter
from objectstore.transactions import Aborted, without_aborted

MODULE = "agent.background.rewriting.merging.worker_process"
PIECES_MAX = 2_048  # of one exchange: while they are packed (1.5 µs each) the event loop may have to wait


@dataclass(frozen=True, slots=True)
class Add:
    """Pieces of partitions (handle, slice); their bytes follow in this order, as the store has them.

    Answered with Unsound, or None when all of them are what was committed.
    """

    pieces: Sequence[tuple[int, SliceRef]]


@dataclass(frozen=True, slots=True)
class Unsound:
    """The pieces of these numbers are not what was committed; `text` says what is wrong with the first."""

    numbers: Sequence[int]
    text: str


@dataclass(frozen=True, slots=True)
class Finish:
    """Make a segment of everything added for its partition but records of aborted transactions.

    Its bytes come back, or nothing when nothing is left.
    """

    cluster_id: bytes
    segment: SegmentId
    aborted: Sequence[Aborted] = ()


@dataclass(frozen=True, slots=True)
class Clear:
    """Forget what was added."""


class Session:
    """The helper's side, without I/O."""

    def __init__(self) -> None:
        self._pieces: dict[int, list[tuple[int, memoryview]]] = {}

    def answer(self, request: object, content: memoryview) -> tuple[object, list[memoryview]]:
        """The answer to a request, and the bytes that follow it."""
        if isinstance(request, Add):
            return self._add(request.pieces, content), []
        if isinstance(request, Finish):
            return self._finish(request)
        self._pieces.clear()
        return None, []

    def _add(self, pieces: Sequence[tuple[int, SliceRef]], content: memoryview) -> Unsound | None:
        position = 0
        numbers: list[int] = []
        text = ""
        for number, (handle, ref) in enumerate(pieces):
            try:
                data = patched(content[position : position + ref.length], ref)
            except CorruptBatch as error:
                text = text or f"{object_key(ref.chunk)}: {error}"
                numbers.append(number)
            else:
                self._pieces.setdefault(handle, []).append((ref.base_offset, data))
            position += ref.length
        return Unsound(numbers, text) if numbers else None

    def _finish(self, request: Finish) -> tuple[object, list[memoryview]]:
        """Pieces came in any order: chunks are read side by side."""
        writer = SegmentWriter(request.cluster_id, request.segment)
        for _, data in sorted(self._pieces.pop(request.segment.partition, []), key=lambda each: each[0]):
            for kept in without_aborted(data, request.aborted):
                writer.add(kept)
        if not writer.record_bytes:
            return None, []
        encoded = writer.finish()
        return encoded.info, [memoryview(part) for part in encoded.parts]


class Worker:
    """The agent's side: typed requests over `asking`, a helper process unless a test brings another."""

    def __init__(self, asking: Asking | None = None) -> None:
        self._asking = asking or helper(MODULE)

    async def add(self, pieces: Sequence[tuple[int, SliceRef]], parts: Sequence[memoryview]) -> None:
        """Hand over pieces with their bytes. Raises Unreadable and HelperDied."""
        for at in range(0, len(pieces), PIECES_MAX):
            some = pieces[at : at + PIECES_MAX]
            answer, _ = await self._ask(Add(some), parts[at : at + PIECES_MAX])
            if isinstance(answer, Unsound):
                raise Unreadable(answer.text, [some[number] for number in answer.numbers])

    async def finish(
        self, cluster_id: bytes, segment: SegmentId, aborted: Sequence[Aborted]
    ) -> tuple[SegmentInfo | None, memoryview]:
        """The partition's segment and its bytes; None when all of it was aborted. Raises HelperDied."""
        info, content = await self._ask(Finish(cluster_id, segment, aborted))
        assert info is None or isinstance(info, SegmentInfo), info
        return info, content

    async def clear(self) -> None:
        """Give back the memory of what was added."""
        await self._ask(Clear())

    async def close(self) -> None:
        """End the helper. Idempotent."""
        await self._asking.close()

    async def _ask(self, request: object, parts: Sequence[memoryview] = ()) -> tuple[object, memoryview]:
        return await ask(self._asking, request, parts)
