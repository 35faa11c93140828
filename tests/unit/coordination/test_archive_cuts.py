"""Where pieces of the archived log are cut: nothing is lost by what has their name, or comes meanwhile."""

from __future__ import annotations

from typing import Any

import pytest

from coordination.archive.keeper import ArchiveOptions
from coordination.archive.piece import Header
from objectstore.naming import PieceId, piece_key
from objectstore.store import Precondition
from tests.unit.coordination.conftest import Agents
from tests.unit.coordination.test_archive import FOLDER, SOON, Archives, archives, written
from tests.unit.coordination.test_replica import topic

__all__ = ["archives"]


@pytest.mark.parametrize("kind", ["damaged", "of another chain, and contradicts itself"])
async def test_a_name_that_is_taken_is_left_to_what_has_it(
    agents: Agents, archives: Archives, kind: str
) -> None:
    """It came since this agent looked where the archive ends, and the log does not go on."""
    one = await agents.start("one")
    job = archives.of("one", one, ArchiveOptions(seconds=0.0))
    await job._look()
    for name in ("a", "b", "c"):
        await one.propose(topic(name))
    assert job.head is not None
    first, last = job.head.last + 1, one.state.revision
    entries = [each for each in job._tail.entries if each.revision >= first]
    header = Header(first, last, b"x" * 32)
    content = written(header, entries)[:-1] if kind == "damaged" else contradicting(header, entries)
    taken = piece_key(PieceId(FOLDER, first, last))
    await agents.store.put(taken, [content])
    with pytest.raises(Precondition, match="is there, "):
        await job._look()
    await job._look()
    found = await archives.survey()
    assert [piece_key(each.id) for each, _ in found.damaged] == [taken]
    assert (found.missing, len(found.lines), found.last, job.lag_revisions) == ([], 1, last, 0)
    assert (await archives.restored()).hash == one.state.hash


def contradicting(header: Header, entries: Any) -> bytes:
    """A piece that has fewer entries than it says, under a good checksum."""
    from coordination.archive import piece

    content = written(header, entries)
    fields = list(piece._SIGNED.unpack_from(content))
    fields[2] -= 1
    body = content[piece.HEADER_BYTES :]
    signed = piece._SIGNED.pack(*fields)
    return signed + piece.blake2b(signed + body, digest_size=piece.CHECKSUM_BYTES).digest() + body


async def test_what_the_tail_drops_while_the_log_is_read_is_in_a_piece(
    agents: Agents, archives: Archives
) -> None:
    one = await agents.start("one")
    job = archives.of("one", one, SOON)
    usual = job._read

    async def slow(*asked: Any) -> Any:
        job._read = usual  # type: ignore[method-assign]  # it is slow once
        read = await usual(*asked)
        await one.propose(topic("dropped"))
        job._tail.begin(one.state.revision)
        await one.propose(topic("kept"))
        return read

    job._read = slow  # type: ignore[method-assign]  # the log takes its time
    await one.propose(topic("a"))
    await job._look()
    await job._look()
    found = await archives.survey()
    assert (found.missing, len(found.lines), found.last) == ([], 1, one.state.revision)
    assert (await archives.restored()).hash == one.state.hash
