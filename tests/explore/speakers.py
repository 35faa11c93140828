"""What clients with transactions speak, and what their transactions do."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Speaks:
    """A client: its protocol and what its transactions do.

    `apart`: the agent that its TxnOffsetCommit goes to at first, by a connection of its own; -1: they go by
    the one that everything goes by. `writes_well`: its Produce is stored and answered
    at once. `asks`: for ApiVersions, before anything else, on each connection.
    """

    v2: bool
    transactions: tuple[tuple[tuple[str, int], ...], ...] = ()
    apart: int = -1
    writes_well: bool = False
    asks: bool = True


SEND = (("send", 0), ("send", 1))
COMMIT, ABORT = (("end", 1),), (("end", 0),)


def speaker(v2: bool, *, ends: tuple[bool, ...], positions: bool = False, apart: int = -1) -> Speaks:
    """A client whose transactions write both partitions, some with positions, and end so."""
    middle = (*SEND, ("offsets", 1)) if positions else SEND
    first = () if v2 else (("add", 0),)
    return Speaks(v2, tuple((*first, *middle, ("end", int(commit))) for commit in ends), apart)


def reader(*transactions: tuple[tuple[int, ...], bool], apart: int, asks: bool = True) -> Speaks:
    """A client of v1: by transaction what each TxnOffsetCommit names (`named_by`), and whether it commits.

    One record to each, which shows what has become of it.
    """
    made = []
    for named, commit in transactions:
        offsets = tuple(("offsets", each + 4 * place) for place, each in enumerate(named))
        made.append((("add", 0), ("send", 0), *offsets, ("end", int(commit))))
    return Speaks(False, tuple(made), apart, writes_well=True, asks=asks)
