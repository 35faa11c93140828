"""`floe schema impact`: what a new version would touch, in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

HOW = {
    "follows": "takes every version of the subject",
    "stays": "stays at version {subject_version}: records of the new one are refused",
    "named": "takes subjects that are called as messages",
    "own": "is bound to a message of this name itself: floe topic bind gives it the new one",
    "unbound": "is not bound; clients use this subject by its name alone, and no agent checks",
}
COLUMNS = {
    "added": "new column {column} ({type})",
    "widened": "{column} becomes {to}, was {type}",
    "renamed": "{column} is called {to}",
    "apart": "NEW COLUMN {column} ({type}) beside {instead_of}, which cannot hold it",
    "unfilled": "{column} ({type}) is not filled any more",
}


def lines(found: Mapping[str, Any], problems: list[str]) -> Iterator[str]:
    """The answer of an agent, for people; `problems`: why it does not go, in words."""
    yield from _judged(found, problems)
    for one in found["referenced_by"]:
        yield f"{one['subject']} version {one['version']} refers to the newest version, and goes on doing so"
    for topic in found["topics"]:
        yield f"topic {topic['topic']} ({topic['role']}): {HOW[topic['how']].format(**topic)}"
        yield from _table(topic["table"])
        if topic["groups"]:
            more = f" and {topic['groups_more']} more" if topic["groups_more"] else ""
            yield f"  read by groups: {', '.join(topic['groups'])}{more}"
    if found["topics_more"]:
        yield f"and {found['topics_more']} topics more"
    if not found["topics"]:
        yield "no topic is bound to it or called after it"


def breaks(found: Mapping[str, Any]) -> int:
    """How many things break: it would be refused, or a column gets another beside it."""
    columns = [(topic["table"] or {}).get("columns") or {} for topic in found["topics"]]
    return (not found["compatible"]) + sum(len(each.get("apart", ())) for each in columns)


def _judged(found: Mapping[str, Any], problems: list[str]) -> Iterator[str]:
    if found["registered_as"] is not None:
        yield f"{found['subject']} has it already, as version {found['registered_as']}"
    elif found["compatible"]:
        yield f"{found['subject']} would take it as version {found['version']} ({found['level']})"
    else:
        yield f"{found['subject']} would refuse it ({found['level']}):"
        yield from (f"  {line}" for line in problems)


def _table(table: Mapping[str, Any] | None) -> Iterator[str]:
    if table is None:
        return
    name = f"  table {table['name']}{'' if table['made'] else ' (not made yet)'}"
    if "unknown" in table:
        yield f"{name}: columns unknown, {table['unknown']}"
        return
    columns = table["columns"]
    told = [words.format(**row) for kind, words in COLUMNS.items() for row in columns[kind]]
    told += columns["problems"]
    told += [f"and {columns['more']} columns more"] if columns["more"] else []
    yield f"{name}:" if told else f"{name}: no column changes"
    yield from (f"    {line}" for line in told)
