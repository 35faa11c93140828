"""What `floe restore topic` found, for people and for programs."""

from __future__ import annotations

from agent.cli.output import print_table, remarks, results
from agent.cli.restoring.run import Report, Restored, Restoring

RANGES_SHOWN = 20
"""Of each partition, for people; JSON has them all."""


def plain(given: Restoring, report: Report) -> dict[str, object]:
    """As one JSON value."""
    source = report.source
    return {
        "topic": source.topic,
        "topic_id": source.topic_id,
        "deleted": source.deleted,
        "as": given.name,
        "dry_run": given.dry_run,
        "equal": None if given.dry_run else report.equal,
        "whole": report.left is not None,
        "configs_left_out": report.left or [],
        "partitions": [_partition(each) for each in report.partitions],
    }


def _partition(one: Restored) -> dict[str, object]:
    return {
        "partition": one.partition,
        "start": one.start,
        "cut": one.cut,
        "end": one.end,
        "transactions_left_out": one.left_out,
        "records": one.digest.count,
        "digest": one.digest.text(),
        "found_records": None if one.found is None else one.found.count,
        "found_digest": None if one.found is None else one.found.text(),
        "offsets": [{"from": old, "to": end, "became": new} for old, end, new in one.ranges.rows],
        "offsets_not_told": one.ranges.more,
    }


def say(given: Restoring, report: Report) -> None:
    """For people: each partition, what became of offsets, the verdict."""
    source = report.source
    columns = (
        "partition",
        "from",
        "cut",
        "end",
        "transactions left out",
        "records",
        "offsets",
        "digest",
        "audit",
    )
    print_table(columns, [_row(each) for each in report.partitions])
    rows = f"; their rows may be in table {source.table}" if source.table else ""
    for each in report.partitions:
        if each.start:
            where = f"{source.topic}-{each.partition}"
            results().print(f"{where}: offsets below {each.start} are gone from the log{rows}")
    if given.dry_run:
        remarks().print("nothing was changed", style="dim")
    elif report.left is None:
        results().print(f"NOT EQUAL: topic {given.name} is not what {source.topic} was, and stays marked")
    else:
        results().print(
            f"topic {given.name} is {source.topic} as it was: each partition equal, by count and digest"
        )
        for name in report.left:
            results().print(f"its config {name} is not that of {source.topic}: left out")


def _row(one: Restored) -> tuple[object, ...]:
    audit = "-" if one.found is None else "equal" if one.equal else f"NOT EQUAL: {one.found.count} records"
    head = (one.partition, one.start, one.cut, one.end, one.left_out, one.digest.count)
    return (*head, _offsets(one), one.digest.text()[:16], audit)


def _offsets(one: Restored) -> str:
    """`kept` where each record has the offset that it had."""
    rows = one.ranges.rows
    if all(old == new for old, _, new in rows) and not one.ranges.more:
        return "kept"
    told = ", ".join(f"{old}-{end - 1} became {new}" for old, end, new in rows[:RANGES_SHOWN])
    more = len(rows) - RANGES_SHOWN
    return f"{told}, and more" if more > 0 or one.ranges.more else told
