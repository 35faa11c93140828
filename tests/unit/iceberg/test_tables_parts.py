"""A file that is several pieces reads as one."""

from __future__ import annotations

import io
from random import Random

import pytest

from iceberg.parts import PartsReader


@pytest.mark.parametrize("seed", range(20))
def test_pieces_are_read_as_the_file_that_they_are(seed: int) -> None:
    rng = Random(seed)
    parts = [memoryview(rng.randbytes(rng.randrange(1, 9))) for _ in range(rng.randrange(1, 7))]
    whole, pieces = io.BytesIO(b"".join(parts)), PartsReader(parts)
    size = whole.getbuffer().nbytes
    for _ in range(200):
        place = rng.choice(((rng.randrange(size + 5), io.SEEK_SET), (-rng.randrange(size), io.SEEK_END)))
        count = rng.choice((-1, 0, 1, rng.randrange(size + 5)))
        assert pieces.seek(*place) == whole.seek(*place)
        assert pieces.read(count) == whole.read(count)
        assert pieces.tell() == whole.tell()
    assert pieces.seek(-pieces.tell(), io.SEEK_CUR) == 0
    assert pieces.readall() == whole.getvalue()
