"""What `floe restore topic` found, for people and for programs."""

from __future__ import annotations

from agent.cli.output import print_table, remarks, results
from agent.cli.restoring.run import Report, Restored, Restoring
from agent.cli.restoring.source import Source

_MAY_BE = "their rows may be in table {}: --with-table takes them"
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
        "unreadable_batches_left_out": [{"from": first, "to": end} for first, end in one.closed],
        "unreadable_batches_not_told": one.closed_more,
        "from_table": _older(one),
    }


def _older(one: Restored) -> dict[str, object] | None:
    older = one.older
    if older is None:
        return None
    below = min(older.below, one.cut)
    return {
        "table": older.table,
        "from": older.start,
        "below": below,
        "rows": one.rows,
        "unreadable_batches_left_out": one.unreadable,
        "offsets_without_row": below - older.start - one.rows - one.unreadable,
        "never_in_table": {"from": older.known, "to": below} if older.known < below else None,
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
    for each in report.partitions:
        for line in (*_gone(given, source, each), *_closed(each)):
            results().print(f"{source.topic}-{each.partition}: {line}")
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


def _gone(given: Restoring, source: Source, one: Restored) -> list[str]:
    """What of a partition is gone from the log, and what came of the table."""
    told = _older(one)
    if told is None and not one.start:
        return []
    if told is None:
        gone = f"offsets below {one.start} are gone from the log"
        if source.table is None:
            return [gone]
        more = f"table {source.table} has none" if given.with_table else _MAY_BE.format(source.table)
        return [f"{gone}; {more}"]
    lines = [
        f"{told['rows']} records of offsets {told['from']} to below {told['below']} are rows of table "
        f"{told['table']}; {told['offsets_without_row']} offsets there have no row: markers, what was "
        "aborted, or what went from the table"
    ]
    if one.start:
        lines.append(f"offsets below {one.start} are in neither the log nor the table")
    if told["unreadable_batches_left_out"]:
        lines.append(f"{told['unreadable_batches_left_out']} batches that nobody can open are left out")
    never = told["never_in_table"]
    if isinstance(never, dict):
        lines.append(f"offsets {never['from']} to below {never['to']} left the log before the table had them")
    return lines


def _closed(one: Restored) -> list[str]:
    """Which batches of the log nobody can open."""
    if not one.closed:
        return []
    count = len(one.closed) + one.closed_more
    told = ", ".join(f"{first}-{end - 1}" for first, end in one.closed[:RANGES_SHOWN])
    more = ", and more" if count > RANGES_SHOWN else ""
    return [f"{count} batches that nobody can open are left out: offsets {told}{more}"]


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
