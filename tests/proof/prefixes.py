"""List-append: whoever reads a list whole reads a beginning of it, of one and the same list."""

from __future__ import annotations

from collections.abc import Iterator

from tests.checker.operations import History
from tests.checker.versions import versions


def not_prefixes(history: History) -> Iterator[str]:
    """Reads that do not begin with the list's first record, or leave one out (Elle: incompatible order)."""
    known = versions(history)
    for op in history.operations:
        for poll in op.polls if op.f == "txn" else ():
            for name, rows in poll.records.items():
                ranks = [known.keys[name].index[offset] for offset, _ in rows]
                if ranks != list(range(len(ranks))):
                    yield f"operation {op.index} read {name} as {ranks[:10]}"
