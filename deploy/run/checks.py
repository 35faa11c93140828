"""What the job checks beside the audit: the pipeline against the source file, each refusal's reason."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from iceberg.spark.verdict import ACCOUNT, Finding, Verdict

ROUNDING_MINUTES = 0.006


def with_findings(verdict: Verdict, findings: Sequence[Finding]) -> Verdict:
    """The verdict with further findings counted in."""
    counts = {**verdict.counts, ACCOUNT: verdict.counts[ACCOUNT] + len(findings)}
    return replace(verdict, counts=counts, findings=[*verdict.findings, *findings])


def pipeline_agrees(
    airlines: Sequence[Mapping[str, Any]], carriers: Mapping[str, Mapping[str, int]]
) -> list[Finding]:
    """Decoded columns, not only raw bytes, must tell what the source file does: compare per airline.

    `carriers` holds flights, cancelled and the sum of departure delays (minutes), counted by the loader.
    """
    found = []
    rows = {row["carrier"]: row for row in airlines}
    for carrier in sorted({*rows, *carriers}):
        row, told = rows.get(carrier), carriers.get(carrier)
        if row is None or told is None:
            where = "source" if row is None else "pipeline"
            found.append(_finding(f"airline {carrier} is only in the {where}"))
            continue
        flown = told["flights"] - told["cancelled"]
        mean = told["departure_delay"] / flown if flown else None
        if (row["flights"], row["cancelled"]) != (told["flights"], told["cancelled"]):
            detail = f"{row['flights']:,} flights, {row['cancelled']:,} cancelled; source: {told}"
            found.append(_finding(f"airline {carrier}: {detail}"))
        elif (mean is None) != (row["mean_departure_delay"] is None) or (
            mean is not None and abs(mean - row["mean_departure_delay"]) > ROUNDING_MINUTES
        ):
            detail = f"mean departure delay {row['mean_departure_delay']}, source: {mean}"
            found.append(_finding(f"airline {carrier}: {detail}"))
    return found


def refusals_told_why(rejections: Sequence[Mapping[str, Any]], wanted: int) -> list[Finding]:
    """Every broken record must have come back as INVALID_RECORD with a reason that names what is wrong."""
    found = [
        Finding(
            ACCOUNT, rejection["topic"], -1, -1, f"{rejection['what']} was answered {rejection['reason']!r}"
        )
        for rejection in rejections
        if not rejection["as_expected"]
    ]
    if len(rejections) != wanted:
        found.append(_finding(f"{len(rejections)} broken records were answered, {wanted} were sent"))
    return found


def doors_are_shut(open_doors: Sequence[str]) -> list[Finding]:
    """Nobody may do what they should not: each that could is a finding."""
    return [_finding(f"a door stood open: {what}") for what in open_doors]


def _finding(detail: str) -> Finding:
    return Finding(ACCOUNT, "flights", -1, -1, detail)
