"""What a restored cluster must have of what was acknowledged, and what its report must tell. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.torture.restore_load import IDEMPOTENT, KIND_NAMES, PARTITIONS, Load

Found = list[list[tuple[int, str]]]
"""Offsets and values by partition."""


@dataclass
class Row:
    """One run, as the table of runs has it. `findings`: what must not be; none is well."""

    seed: int
    how: str
    kind: str
    mbps: float = 0.0
    """MB/s of large records, acknowledged until etcd was lost."""
    acknowledged: int = 0
    lost: int = 0
    doubled: int = 0
    again: int = 0
    """Records of plain producers that are there more than once, which they may be."""
    transactions: int = 0
    without_end: int = 0
    """Transactions that were acknowledged in the seconds behind the archive: aborted as a whole, and told."""
    found_again: int = 0
    restore_s: float = 0.0
    """The command's, from its start to its end, without a wait for old agents."""
    ahead: int = 0
    """Commits of the topic's table that went with the log."""
    findings: list[str] = field(default_factory=list)

    HEAD = (
        "| seed | lost beside etcd | load | MB/s | acknowledged | lost | doubled | plain again "
        "| transactions | without an end | found again | table ahead | restore s | verdict |\n"
        "|---|---|---|---|---|---|---|---|---|---|---|---|---|---|"
    )

    def line(self) -> str:
        """Of a Markdown table."""
        cells = (
            self.seed, self.how, KIND_NAMES.get(self.kind, "small only"), f"{self.mbps:.1f}",
            self.acknowledged, self.lost, self.doubled, self.again, self.transactions, self.without_end,
            self.found_again, self.ahead, f"{self.restore_s:.1f}", "; ".join(self.findings) or "ok",
        )  # fmt: skip
        return "| " + " | ".join(map(str, cells)) + " |"


def judge(load: Load, partitions: Found, report: dict[str, Any], row: Row, before: int) -> None:
    """Fill the row. `before`: transactions that were acknowledged when etcd was lost."""
    found = [[value for _, value in partition] for partition in partitions]
    counts = Counter(value for partition in found for value in partition)
    row.acknowledged, row.transactions = load.count, len(load.transactions)
    row.found_again = report["found"]
    for name, acknowledged in load.sent.items():
        _producer(name, acknowledged, found, counts, row)
    row.doubled += sum(counts[value] > 1 for values in load.transactions for value in values)
    if row.doubled:
        row.findings.append(f"{row.doubled} records are doubled")
    _transactions(load.transactions, counts, report, row, before)


def _producer(
    name: str, acknowledged: Sequence[str], found: list[list[str]], counts: Counter[str], row: Row
) -> None:
    missing = [value for value in acknowledged if not counts[value]]
    row.lost += len(missing)
    if missing:
        row.findings.append(f"{name}: {len(missing)} acknowledged are missing, such as {missing[0]}")
    if not name.startswith(IDEMPOTENT):
        row.again += sum(counts[value] > 1 for value in acknowledged)
        return
    mine = [value for value in found[int(name[1:]) % PARTITIONS] if value.startswith(f"{name}-")]
    numbers = [int(value.rpartition("-")[2]) for value in mine]
    row.doubled += len(numbers) - len(set(numbers))
    if numbers != sorted(numbers):
        row.findings.append(f"{name}: out of order")


def _transactions(
    acknowledged: Sequence[tuple[str, ...]],
    counts: Counter[str],
    report: dict[str, Any],
    row: Row,
    before: int,
) -> None:
    """Whole or away; what is away was the last of its producer before etcd was lost, and is told of."""
    gone: set[str] = set()  # producers
    for place, values in enumerate(acknowledged):
        name = values[0].partition("-")[0]
        there = sum(counts[value] > 0 for value in values)
        if 0 < there < len(values):
            row.findings.append(f"{values[0]}: torn, {there} of {len(values)} records are there")
        elif there and name in gone and place < before:
            row.findings.append(f"{values[0]} is there, an earlier one of {name} is not")
        elif not there and place >= before:
            row.lost += len(values)
            row.findings.append(f"{values[0]}: acknowledged by the restored log, and missing")
        elif not there:
            row.without_end += 1
            gone.add(name)
            if name not in report["aborted"]:
                row.lost += len(values)
                row.findings.append(f"{values[0]} is missing, and {name} is not told of as aborted")


def told(how: str, spoilt: Sequence[str], report: dict[str, Any]) -> list[str]:
    """What the report does not tell of the objects that were spoilt."""
    damaged = {key for key, _ in report["damaged"]}
    if how.endswith(("cut", "damaged")):
        return [f"{key} is damaged, and not told of" for key in spoilt if key not in damaged]
    return [f"{key} is told of as damaged: {error}" for key, error in report["damaged"]]
