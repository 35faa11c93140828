"""From one registry into another, ids and versions kept: `floe schema import` and `export`.

Begun again after an interruption it goes on: what the target has already under the same id and version is
passed over. What it has otherwise is told, and nothing of that subject is changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from typing import Any

from agent.cli.registry import Registry, Told, Version, named

Progress = Callable[[str, int, int], None]
"""Told the subject, how many are done and how many there are."""


@dataclass(slots=True)
class Copied:
    """What came of it."""

    subjects: int = 0
    versions: int = 0
    there: int = 0  # versions that the target had already
    refused: list[str] = field(default_factory=list)  # by the target, or since it has others
    kept_level: str = ""  # the target's own level for all, where the source has another


def copy(source: Registry, target: Registry, prefix: str, progress: Progress) -> Copied:
    """Copy every subject whose name begins with `prefix`, and what was set for each. Raises Failure.

    What a schema refers to goes before it. Soft-deleted versions are copied, and deleted there too.
    """
    outcome, names = Copied(), source.subjects(prefix, deleted=True)
    histories: dict[str, list[Version]] = {}
    for done, name in enumerate(names):
        progress(f"reading {name}", done, 2 * len(names))
        histories[name] = list(source.versions(name, deleted=True))
    missing = {name: _missing(target, name, histories[name], outcome) for name in names}
    bad = {name for name, versions in missing.items() if versions is None}
    wanted = [one for name in names for one in missing[name] or ()]
    for name, versions in groupby(_in_order(wanted), key=lambda one: one.subject):
        if name not in bad:
            progress(f"writing {name}", len(names), 2 * len(names))
            _told(outcome, bad, name, partial(_write, target, name, list(versions), outcome))
    for done, name in enumerate(names, len(names)):
        progress(f"settings of {name}", done, 2 * len(names))
        if name not in bad:
            _told(outcome, bad, name, partial(_finish, source, target, name, histories[name]))
    outcome.subjects = len(names) - len(bad)
    ours, theirs = target.compatibility(), source.compatibility()
    outcome.kept_level = f"{ours}, where the source has {theirs}" if ours != theirs else ""
    return outcome


def _told(outcome: Copied, bad: set[str], name: str, step: Callable[[], None]) -> None:
    """Take a step for a subject; what the target says against it concerns that subject only."""
    try:
        step()
    except Told as told:
        bad.add(name)
        outcome.refused.append(f"{name}: {told}")


def _missing(
    target: Registry, name: str, versions: Sequence[Version], outcome: Copied
) -> list[Version] | None:
    """Those that the target has not; None where it has others in their place."""
    held = {one.version: one.schema_id for one in target.versions(name, deleted=True)}
    for one in versions:
        if held.get(one.version, one.schema_id) != one.schema_id:
            theirs = f"{held[one.version]} at {target}"
            outcome.refused.append(f"{name}: version {one.version} has id {one.schema_id}, and {theirs}")
            return None
    missing = [one for one in versions if one.version not in held]
    outcome.there += len(versions) - len(missing)
    return missing


def _in_order(versions: Sequence[Version]) -> Iterator[Version]:
    """The versions, each behind those that it refers to. A circle, which no registry takes, is cut."""
    places = {(one.subject, one.version): one for one in versions}
    entered: set[tuple[str, int]] = set()
    for first in [*places]:
        waiting = [first]
        while waiting:
            place = waiting[-1]
            if place in entered:
                waiting.pop()
                if (one := places.pop(place, None)) is not None:
                    yield one
                continue
            entered.add(place)
            needs = ((subject, number) for _, subject, number in places[place].references)
            waiting += [each for each in needs if each in places and each not in entered]


def _finish(source: Registry, target: Registry, name: str, versions: Sequence[Version]) -> None:
    """Hide what the source has hidden, and set what is set for the subject there."""
    live, shown = set(source.numbers(name)), set(target.numbers(name))
    for one in versions:
        if one.version in shown and one.version not in live:
            target.ask("DELETE", f"/subjects/{named(name)}/versions/{one.version}")
    level = source.compatibility(name)
    if level is not None and level != target.compatibility(name):
        target.ask("PUT", f"/config/{named(name)}", {"compatibility": level})


def _write(target: Registry, name: str, missing: Sequence[Version], outcome: Copied) -> None:
    """Write versions under ids that are given, for which the subject must be in mode IMPORT meanwhile."""
    path = f"/mode/{named(name)}"
    before: Mapping[str, Any] | None = target.found(path)
    target.ask("PUT", path, {"mode": "IMPORT"}, force="true")
    try:
        for one in missing:
            body = {**one.body(), "id": one.schema_id, "version": one.version}
            target.ask("POST", f"/subjects/{named(name)}/versions", body)
            outcome.versions += 1
    finally:
        if before is None:
            target.ask("DELETE", path)
        else:
            target.ask("PUT", path, {"mode": before["mode"]}, force="true")
