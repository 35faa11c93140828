"""The bucket of a run: what is written to it stands in the trace, so two runs of a seed differ there too.

Most bytes that agents write never come over the virtual network: seed 13 alone told, by a relay of its zone,
that Avro files had random bytes of the machine's own in them.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence

from objectstore.adapters.memory import MemoryStore
from objectstore.store import PLAIN, Buffer, PutMode


class TracedStore(MemoryStore):
    """See MemoryStore."""

    def __init__(self, trace: Callable[[str], None], now_ms: Callable[[], int]) -> None:
        super().__init__(now_ms)
        self._trace = trace

    async def put(self, key: str, parts: Sequence[Buffer], mode: PutMode = PLAIN) -> str:
        """See ObjectStore; one line, also of what is refused."""
        data = b"".join(parts)
        self._trace(f"put {key} {len(data)} {zlib.crc32(data):08x}")
        return await super().put(key, [data], mode)
