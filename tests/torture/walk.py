"""A walk over one partition's batches, as they lie in the bucket: what must hold from one to the next. Pure.

Offsets tile. A gap is allowed only in the merged range, and only where compaction has been, or where the
records of an aborted transaction may have been: its marker follows, and nothing else of its producer stands
in between, but for what of the transaction is in the tail. Sequences of a producer are gapless, but across
such a gap: also in the midst of an aborted transaction, of which the tail has the rest. Merged ranges hold
nothing that was aborted, since nobody could tell readers of it; in the tail the state lists exactly what was.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from objectstore.batch import BatchHeader

SEQUENCE_MASK = (1 << 31) - 1


@dataclass
class Walk:
    """One partition. `due`: the offset that comes next, first the log start.

    Below `merged_end` batches are merged, below `compacted_to` compacted. `listed` says whether readers are
    told that the batch of this producer at this offset was aborted.
    """

    due: int
    merged_end: int
    compacted_to: int
    listed: Callable[[int, int], bool]
    _begun: bool = False
    _gaps: list[int] = field(default_factory=list)  # where those begin that nothing has explained yet
    _newest_gap: int = -1
    _seen: dict[int, int] = field(default_factory=dict)  # producer → its newest marker or merged batch
    _open: dict[int, list[int]] = field(default_factory=dict)  # … → its batches since its newest marker
    _sequences: dict[tuple[int, int], int] = field(default_factory=dict)  # … and epoch → what is due
    _jumps: dict[int, str] = field(
        default_factory=dict
    )  # … → what is wrong unless its transaction is aborted

    def batch(self, header: BatchHeader, aborts: bool = False) -> str | None:
        """What is wrong with the next batch, if anything. `aborts`: it is the marker of an abort."""
        base, known = header.base_offset, self._begun
        self._begun = True
        if base < self.due and (known or header.last_offset < self.due):
            return f"batch at {base} where {self.due} was due"
        if base > self.due:
            if base > self.merged_end:
                return f"batch at {base} where {self.due} was due"
            if base > self.compacted_to:
                self._newest_gap = max(self.due, self.compacted_to)
                self._gaps.append(self._newest_gap)
        self.due = header.last_offset + 1
        wrong = self._marker(header, aborts) if header.control else self._records(header)
        if header.transactional and (header.control or base < self.merged_end):
            self._seen[header.producer_id] = base  # the tail may have the rest of a transaction with a gap
        return wrong

    def end(self, high_watermark: int) -> str | None:
        """What is wrong at the end."""
        if self.due != high_watermark:
            return f"batches end at {self.due}, high watermark {high_watermark}"
        if self._jumps:
            return next(iter(self._jumps.values()))
        if self._gaps:
            return f"no aborted transaction explains the gaps that begin at {self._gaps}"
        return None

    def _marker(self, header: BatchHeader, aborts: bool) -> str | None:
        producer, written = header.producer_id, self._open.pop(header.producer_id, [])
        jumped = self._jumps.pop(producer, None)
        if jumped is not None and not aborts:
            return jumped
        if aborts:
            last = self._seen.get(producer, -1)
            self._gaps = [gap for gap in self._gaps if gap <= last]
            if self._newest_gap > last:  # also one that another transaction has explained
                self._forget(producer)
        for offset in written:
            if aborts and offset < self.merged_end:
                return f"aborted records of producer {producer} at {offset} are in the merged range"
            if aborts != self.listed(producer, offset):
                outcome = "aborted and not listed" if aborts else "committed and listed as aborted"
                return f"records of producer {producer} at {offset} are {outcome}"
        return None

    def _records(self, header: BatchHeader) -> str | None:
        producer, sequence = header.producer_id, header.base_sequence
        if producer < 0:
            return None
        if header.transactional:
            self._open.setdefault(producer, []).append(header.base_offset)
        if header.transactional and sequence < 0:  # of a quarantine: it goes with another batch
            return None
        if header.base_offset < self.compacted_to:
            self._forget(producer)
            return None
        writer = (producer, header.producer_epoch)
        due = self._sequences.get(writer, sequence)
        if sequence != due:
            wrong = f"offset {header.base_offset}: producer {writer} sequence {sequence}, due {due}"
            if not self._may_jump(header, due):
                return wrong
            self._jumps.setdefault(producer, wrong)
        self._sequences[writer] = (sequence + header.last_offset_delta + 1) & SEQUENCE_MASK
        return None

    def _may_jump(self, header: BatchHeader, due: int) -> bool:
        """Whether what lies between may have been in the gap, as the merged part of the same transaction."""
        ahead = (header.base_sequence - due) & SEQUENCE_MASK
        in_tail = header.transactional and header.base_offset >= self.merged_end
        return (
            in_tail
            and ahead < SEQUENCE_MASK // 2
            and self._newest_gap > self._seen.get(header.producer_id, -1)
        )

    def _forget(self, producer: int) -> None:
        """Batches of the producer are gone: which sequence follows is not known."""
        self._sequences = {writer: due for writer, due in self._sequences.items() if writer[0] != producer}
