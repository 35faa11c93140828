"""In which order found chunks are appended. Pure.

One author's chunks go by their numbers, as its commits did. Between authors only producers say what came
first: a batch waits while another author's chunk has an earlier one of its producer on its partition (epoch,
then sequence). Where that leads nowhere (what never was committed can ask for the impossible) the oldest
object goes first, and apply decides.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator, Sequence

from coordination.restore.found import FoundChunk

_Turn = tuple[int, int]
_LAST: _Turn = (1 << 62, 0)


def ordered(chunks: Sequence[FoundChunk]) -> Iterator[FoundChunk]:
    """Each chunk once."""
    queues: dict[int, deque[FoundChunk]] = defaultdict(deque)
    for chunk in sorted(chunks, key=lambda one: one.id):
        queues[chunk.id.incarnation].append(chunk)
    waiting = _Waiting(queues)
    while queues:
        heads = [queue[0] for queue in queues.values()]
        chosen = next((head for head in heads if waiting.may_go(head)), None)
        if chosen is None:
            chosen = min(heads, key=lambda one: (one.modified_ms, one.id))
        waiting.gone(chosen)
        queue = queues[chosen.id.incarnation]
        queue.popleft()
        if not queue:
            del queues[chosen.id.incarnation]
        yield chosen


class _Waiting:
    """By partition and producer, of each author: the earliest turn among what it still has to come."""

    def __init__(self, queues: dict[int, deque[FoundChunk]]) -> None:
        turns: dict[tuple[int, int], dict[int, list[_Turn]]] = defaultdict(lambda: defaultdict(list))
        for author, queue in queues.items():
            for chunk in queue:
                for batch in chunk.batches:
                    if batch.producer_id >= 0:
                        key = (batch.handle, batch.producer_id)
                        turns[key][author].append((batch.epoch, batch.sequence))
        # Kept back to front, each with the earliest of itself and all behind it: what is gone is popped.
        self._earliest = {
            key: {author: _earliest(given) for author, given in by_author.items()}
            for key, by_author in turns.items()
            if len(by_author) > 1
        }

    def may_go(self, chunk: FoundChunk) -> bool:
        """Whether no other author has something that must come before."""
        author = chunk.id.incarnation
        for batch in chunk.batches:
            others = self._earliest.get((batch.handle, batch.producer_id))
            for other, turns in (others or {}).items():
                if other != author and turns and turns[-1] < (batch.epoch, batch.sequence):
                    return False
        return True

    def gone(self, chunk: FoundChunk) -> None:
        """The chunk is appended: its batches are waited for no longer."""
        for batch in chunk.batches:
            others = self._earliest.get((batch.handle, batch.producer_id))
            if others is not None:
                others[chunk.id.incarnation].pop()


def _earliest(turns: list[_Turn]) -> list[_Turn]:
    found: list[_Turn] = []
    least = _LAST
    for turn in reversed(turns):
        least = min(least, turn)
        found.append(least)
    return found
