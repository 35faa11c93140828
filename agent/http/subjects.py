"""The schema registry in /status: its size, and the subjects that matter most to an operator.

Those that topics follow come first, then those that changed last.
"""

from __future__ import annotations

from heapq import nlargest

from agent.http.bindings import ROLES, bound_now
from agent.http.parts import Parts
from agent.http.registry.judging import level_of
from coordination.state import State
from coordination.state.subject_types import Subject
from coordination.state.types import Naming
from objectstore.turns import Turns, in_turns

SUBJECTS_SHOWN_MAX = 100
LOOKED_AT_PER_TURN = 2_000  # topics or subjects before others may go on
Row = dict[str, object]


def size(parts: Parts) -> Row:
    """How much is registered."""
    table = parts.replica.state.subjects
    return {
        "subjects": len(table.subjects),
        "versions": table.version_count,
        "schemas": len(table.schemas),
        "bytes": table.bytes_held,
        "settings": len(table.settings),
    }


async def subjects(parts: Parts) -> list[Row]:
    """At most SUBJECTS_SHOWN_MAX. `refused`: batches of the newest refused ones that their topics had."""
    state = parts.replica.state
    followed = await in_turns(_followed(state))
    chosen = await in_turns(_chosen(state, followed))
    newest = parts.refusals.newest if parts.refusals is not None else ()
    refused = [each.topic for each in newest]
    return [_row(state, one, followed.get(one.name, []), refused) for one in chosen if one.versions]


def _followed(state: State) -> Turns[dict[str, list[tuple[str, str]]]]:
    """By subject the topics that name it, each with the role."""
    found: dict[str, list[tuple[str, str]]] = {}
    for number, topic in enumerate([*state.topics.values()]):
        if number % LOOKED_AT_PER_TURN == 0:
            yield
        for bound in bound_now(state, topic):
            if bound.naming == Naming.SUBJECT:
                found.setdefault(bound.subject, []).append((topic.name, ROLES[bound.role]))
    return found


def _chosen(state: State, followed: dict[str, list[tuple[str, str]]]) -> Turns[list[Subject]]:
    best: list[Subject] = []

    def rank(one: Subject) -> tuple[bool, int]:
        return one.name in followed, one.revision

    every = [*state.subjects.subjects.values()]
    for start in range(0, len(every), LOOKED_AT_PER_TURN):
        best = nlargest(SUBJECTS_SHOWN_MAX, [*best, *every[start : start + LOOKED_AT_PER_TURN]], key=rank)
        yield
    return best


def _row(state: State, one: Subject, topics: list[tuple[str, str]], refused: list[str]) -> Row:
    table, live = state.subjects, one.live
    newest = live[-1] if live else next(reversed(one.versions.values()))
    schema = table.schemas.get(newest.schema_id)
    names = {name for name, _ in topics}
    return {
        "subject": one.name,
        "type": schema.schema_type if schema is not None else None,
        "version": newest.version if live else None,
        "id": newest.schema_id,
        "versions": len(live),
        "deleted": len(one.versions) - len(live),
        "compatibility": level_of(table, one.name),
        "topics": [f"{name} ({role})" for name, role in topics],
        "refused": sum(topic in names for topic in refused),
    }
