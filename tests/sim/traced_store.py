"""The bucket of a run: what is written to it stands in the trace, so two runs of a seed differ there too.

Most bytes that agents write never come over the virtual network: seed 13 alone told, by a relay of its zone,
that Avro files had random bytes of the machine's own in them.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence

from objectstore.adapters.memory import MemoryStore
from objectstore.store import PLAIN, Buffer, Denied, PutMode


class TracedStore(MemoryStore):
    """See MemoryStore."""

    def __init__(self, trace: Callable[[str], None], now_ms: Callable[[], int]) -> None:
        super().__init__(now_ms)
        self._trace = trace
        self.held: set[str] = set()
        """Objects that nobody can delete."""

    async def put(self, key: str, parts: Sequence[Buffer], mode: PutMode = PLAIN) -> str:
        """See ObjectStore; one line, also of what is refused."""
        data = b"".join(parts)
        self._trace(f"put {key} {len(data)} {zlib.crc32(data):08x}")
        return await super().put(key, [data], mode)

    async def delete(self, keys: Sequence[str]) -> None:
        """See ObjectStore. As S3 has it: of many the others go, and then those that are held are told."""
        await super().delete([key for key in keys if key not in self.held])
        if kept := [key for key in keys if key in self.held]:
            raise Denied(f"{kept[0]}: object is under a hold")
