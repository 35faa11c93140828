"""Wrong lines that somebody could write: each is a rule, broken. `make mutate HAND=1` tries them all.

A line names what stands in the file, which must be there once, and what takes its place.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.mutation.mutants import Mutant, functions


class Wrong(NamedTuple):
    """One wrong line: in which file, in whose place, and how it reads."""

    file: str
    right: str
    wrong: str


FOLLOWER = "coordination/etcd/follower.py"
AUTHOR = "coordination/replica/author.py"
CHAIN = "coordination/chain.py"
JOBS = "coordination/jobs.py"
CLOCK = "coordination/replica/clock_watch.py"
TIMEOUTS = "agent/background/expiry/transactions.py"
PIECES = "agent/kafka/fetch/pieces.py"
FETCH = "agent/kafka/fetch/driver.py"
SEALED = "iceberg/sealed.py"
OBSTACLES = "iceberg/obstacles.py"
SALVAGE = "agent/background/rewriting/salvage.py"
BUDGET = "agent/kafka/produce/budget.py"
STANDING = "agent/health/standing.py"

BY_HAND = (
    # The watch of etcd.
    Wrong(FOLLOWER, "gap = error.code is grpc.StatusCode.DEADLINE_EXCEEDED", "gap = False"),
    Wrong(FOLLOWER, "return min(self._position, max(last, self._gone))", "return self._position"),
    Wrong(FOLLOWER, "if last < entry.revision <= self._position:", "if False:"),
    Wrong(FOLLOWER, "floor = max(self._head.revision, self._position)", "floor = 0"),
    Wrong(FOLLOWER, "if self._head.revision > self._position or loop.time() >= due:",
          "if loop.time() >= due:"),
    Wrong(FOLLOWER, "if not found or found[0].mod_revision != last.revision:", "if not found:"),
    # Who writes, and when it must stop.
    Wrong(AUTHOR, "and other.incarnation not in self._own:", "and True:"),
    Wrong(AUTHOR, "await self._follower.wait(target)", "pass"),
    Wrong(AUTHOR, "other.live and other.name == name", "other.name == name"),
    Wrong(AUTHOR, "self._proposals.superseded(incarnation)", "pass"),
    Wrong(AUTHOR, "if self.stopping:", "if False:"),
    Wrong(AUTHOR, "if not known.live:", "if False:"),
    # A log without room.
    Wrong(CHAIN, "if failure.full and not maybe_appended:", "if failure.full:"),
    Wrong(CHAIN, "raise  # no attempt had an effect: the chain goes on where it was",
          "self._ended = 'full'; raise"),
    Wrong(AUTHOR, "self._sequence -= 1  # there is no such entry: the next one takes its place", "pass"),
    Wrong(AUTHOR, "if self._registering is None:\n                    raise", "raise"),
    # Jobs, and an agent whose clock is off.
    Wrong(JOBS, "if self.replica.clock_watch.off or not runs_jobs", "if not runs_jobs"),
    Wrong(JOBS, "self._store_failures + (not known) if away else 0",
          "self._store_failures + 1 if away else 0"),
    Wrong(JOBS, "else:\n            self._store_failures = 0\n            self.failures.pop(name, None)",
          "else:\n            self.failures.pop(name, None)"),
    Wrong(JOBS, "holder.incarnation != self.replica.incarnation:", "False:"),
    Wrong(CLOCK, "and any(heard)", ""),
    Wrong(CLOCK, "now_s - since_s >= self._patience_s and any(heard)", "any(heard)"),
    Wrong(CLOCK, "if one.incarnation != incarnation)", ")"),
    Wrong(CLOCK, "else min(now_ms, agreed_ms(state))", "else now_ms"),
    # Transactions past their time.
    Wrong(TIMEOUTS, "self._open_since_s.get(name, now_s)", "now_s"),
    Wrong(TIMEOUTS, "forced=watched", "forced=True"),
    Wrong(TIMEOUTS, "name, now_s = (each.transactional_id, each.number)",
          "name, now_s = (each.transactional_id, 0)"),
    Wrong(TIMEOUTS, "deletion_ms(self.replica.state, now_ms) + SKEW_MS)",
          "deletion_ms(self.replica.state, now_ms))"),
    Wrong(TIMEOUTS, "return min(now_ms, deletion_ms(self.replica.state, now_ms) + SKEW_MS)", "return now_ms"),
    # What of a partition can be served, and what is known to be gone.
    Wrong(PIECES, "if piece.end > planned.wanted.offset:", "if True:"),
    Wrong(PIECES, "return trouble.chunk in self._proven", "return True"),
    Wrong(PIECES, "self._proven.update(gone)", "pass"),
    Wrong(PIECES, "if named not in self._proven]", "]"),
    Wrong(PIECES, "min(damage.end, planned.end_offset, covered_to(offset, _skipped(planned)))",
          "min(damage.end, planned.end_offset)"),
    Wrong(PIECES, "min(damage.end, planned.end_offset, covered_to(offset, _skipped(planned)))",
          "min(damage.end, covered_to(offset, _skipped(planned)))"),
    Wrong(PIECES, "min(tile.end, planned.end_offset)", "tile.end"),
    Wrong(PIECES, "due = run.ref.end_offset", "pass"),
    Wrong(FETCH, "if not gone or not left or not await self._barrier():", "if not gone or not left:"),
    # Files that tell whether they are what was written.
    Wrong(SEALED, "if content == before:", "if True:"),
    Wrong(SEALED, "elif await asyncio.to_thread(_digest, content) == seal[1]:", "elif True:"),
    Wrong(SEALED, "if length is not None and len(content) != length:", "if False:"),
    Wrong(SEALED, "before = content\n", "before = before or content\n"),
    # What is in the way of a table.
    Wrong(OBSTACLES, "if gone - self._gone:", "if False:"),
    Wrong(OBSTACLES, "and error.chunk not in self._gone:", "and False:"),
    Wrong(OBSTACLES, "self._gone.clear()", "pass"),
    Wrong(OBSTACLES, "if not tile.covered:", "if True:"),
    Wrong(OBSTACLES, "over = partition is None or partition.log_start > stop.offset",
          "over = partition is None"),
    Wrong(OBSTACLES, "again, self._told = self._told, False", "again = False"),
    Wrong(OBSTACLES, "tiles(max(start, wanted.start), min(end, wanted.end), partition.skipped)",
          "tiles(start, end, partition.skipped)"),
    Wrong(OBSTACLES, "free = min(end, covered_to(start, partition.skipped))", "free = end"),
    Wrong(OBSTACLES, "return not isinstance(outcome, ChunkMissing | CorruptSlice)", "return True"),
    # Rewriting around damage.
    Wrong(SALVAGE, "return covered(max(start, self._log_start), end, self._final)", "return True"),
    Wrong(SALVAGE, "return covered(max(start, self._log_start), end, self._final)",
          "return covered(start, end, self._final)"),
    Wrong(SALVAGE, "if now_ms - each.since_ms >= wait_ms)", ")"),
    Wrong(SALVAGE, "if not self._final:\n                raise\n        await self._catch_up()\n",
          "if not self._final:\n                raise\n"),
    Wrong(SALVAGE, "if gone:\n            await self._catch_up()\n", "if gone:\n"),
    Wrong(SALVAGE, "return not ref.length or any(", "return any("),
    Wrong(SALVAGE, "if each.end > offset), default=NOWHERE)", "if each.start > offset), default=NOWHERE)"),
    Wrong(SALVAGE, "if outcome is not None and not all(", "if not all("),
    # What waits, and what is said of others.
    Wrong(BUDGET, "if granted.done() and not granted.cancelled():", "if False:"),
    Wrong(BUDGET, "self._waiting.remove((size, granted))\n                self._grant()",
          "self._waiting.remove((size, granted))"),
    Wrong(STANDING, "if self.aside or not self._replica.ready or self._accusing:",
          "if not self._replica.ready or self._accusing:"),
    Wrong(STANDING, "return\n        for judgement in self._others.silent()",
          "pass\n        for judgement in self._others.silent()"),
)  # fmt: skip


def by_hand(root: Path, only: str) -> Iterator[tuple[Path, Mutant]]:
    """Every wrong line, as a mutant. Raises ValueError for one whose right line is not there once."""
    for file, right, wrong in BY_HAND:
        path = root / file
        if only not in str(path):
            continue
        source = path.read_text()
        if source.count(right) != 1:
            raise ValueError(f"{file} has {source.count(right)} times {right!r}: change by_hand.py with it")
        line = source[: source.index(right)].count("\n") + 1
        within = {name for node, name in functions(ast.parse(source)) if _holds(node, line)}
        (function,) = within
        what = f"{right.splitlines()[0].strip()}  →  {(wrong or 'nothing').splitlines()[0].strip()}"
        yield path, Mutant(line, what, "by hand", function, ast.parse(source.replace(right, wrong)))


def _holds(node: ast.AST, line: int) -> bool:
    return isinstance(node, ast.stmt) and node.lineno <= line <= (node.end_lineno or 0)
