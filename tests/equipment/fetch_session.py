"""A consumer's side of fetch sessions (KIP-227): what it asks next, and what it knows after an answer.

Written from the KIP, not from the agent: ids and epochs, what is named in an incremental request, and what an
answer without a partition means: nothing has changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from agent.net.wire.generated.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
)

EPOCH_MAX = (1 << 31) - 1
Key = tuple[str | bytes, int]
"""Topic by name or id, and index."""


@dataclass(slots=True)
class Known:
    """What the client was told last of a partition."""

    code: int = 0
    high_watermark: int = -1
    last_stable: int = -1
    log_start: int = -1


@dataclass(slots=True)
class FetchSession:
    """`wanted`: the offset to read each partition from, as the application wants it now."""

    wanted: dict[Key, int] = field(default_factory=dict)
    by_id: bool = False
    bytes_max: int = 1 << 20
    id: int = 0
    epoch: int = 0
    known: dict[Key, Known] = field(default_factory=dict)
    sent: dict[Key, int] = field(default_factory=dict)
    """What the session has, at the agent as far as it was told."""

    def request(self, *, wait_ms: int = 0, isolation: int = 0, bytes_max: int = 1 << 26) -> FetchRequest:
        """The next one: everything, or what changed since the last one."""
        whole = self.epoch == 0
        new = self.wanted if whole else {k: at for k, at in self.wanted.items() if self.sent.get(k) != at}
        gone = [] if whole else [key for key in self.sent if key not in self.wanted]
        self.sent = dict(self.wanted)
        self.known = {key: known for key, known in self.known.items() if key in self.wanted}
        return FetchRequest(
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=bytes_max,
            isolation_level=isolation,
            session_id=self.id,
            session_epoch=self.epoch,
            topics=self._topics(new),
            forgotten_topics_data=[ForgottenTopic(*self._place(key), [key[1]]) for key in gone],
        )

    def take(self, answer: FetchResponse) -> dict[Key, PartitionData]:
        """The partitions that the answer tells of; a refusal, of which it tells nothing, begins anew."""
        if answer.error_code:
            self.begin_anew()
            return {}
        begun, self.id = self.epoch == 0, answer.session_id
        self.epoch = 0 if not self.id else 1 if self.epoch == EPOCH_MAX else self.epoch + 1
        told = {
            (row.topic_id if self.by_id else row.topic, part.partition_index): part
            for row in answer.responses
            for part in row.partitions
        }
        assert not begun or told.keys() >= self.wanted.keys(), "a whole answer has every partition"
        for key, part in told.items():
            stable = part.last_stable_offset
            self.known[key] = Known(part.error_code, part.high_watermark, stable, part.log_start_offset)
        return told

    def begin_anew(self) -> None:
        """The next request closes what there is and asks for another session."""
        self.epoch = 0
        self.known.clear()

    def _place(self, key: Key) -> tuple[str, bytes]:
        return ("", key[0]) if isinstance(key[0], bytes) else (key[0], bytes(16))

    def _topics(self, wanted: Mapping[Key, int]) -> list[FetchTopic]:
        found: dict[str | bytes, FetchTopic] = {}
        for key, offset in wanted.items():
            topic = found.setdefault(key[0], FetchTopic(*self._place(key), []))
            part = FetchPartition(key[1], fetch_offset=offset, partition_max_bytes=self.bytes_max)
            topic.partitions.append(part)
        return list(found.values())
