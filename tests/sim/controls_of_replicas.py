"""Who follows a bucket, or copies it, with a rule broken: each by the check that is there for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from coordination.archive import shelf
from coordination.copying.run import Copying
from coordination.following.archived import ArchivedLog
from coordination.log import LogEntry
from coordination.restore import source
from coordination.restore.merged import Merged
from coordination.state.types import Partition
from tests.sim import promoted
from tests.sim.controls import Control
from tests.sim.loop import NODE
from tests.sim.patching import altered, patched
from tests.sim.plan import Plan

Change = tuple[Any, str, Any]


def _skips_an_entry() -> Sequence[Change]:
    """The last but one of a piece."""
    usual = ArchivedLog._joined

    async def joined(self: Any, piece: Any, pieces: Any) -> list[LogEntry]:
        entries = await usual(self, piece, pieces)
        return [*entries[:-2], entries[-1]] if len(entries) > 1 else entries

    return ((ArchivedLog, "_joined", joined),)


def _goes_over_gaps() -> Sequence[Change]:
    """What has not come yet is taken for nothing."""
    usual = ArchivedLog._next

    async def following(self: Any, pieces: Sequence[Any]) -> Any:
        found = await usual(self, pieces)
        ahead = [each.id.first for each in pieces if each.id.first > self._at + 1]
        if found is not None or not ahead:
            return found
        self._at, self._checksum = min(ahead) - 1, b""
        return await usual(self, pieces)

    return ((ArchivedLog, "_next", following),)


def _shows_what_is_open() -> Sequence[Change]:
    """Where the cluster's transactions have not ended."""
    usual = Partition.last_stable.fget  # type: ignore[attr-defined]  # a property

    def shown(self: Partition) -> int:
        return self.high_watermark if NODE.get().startswith("replica") else int(usual(self))

    return ((Partition, "last_stable", property(shown)),)


def _looks_once() -> Sequence[Change]:
    """The pieces that there were at first are all there will be, and no newer snapshot is looked for."""
    usual = ArchivedLog._pieces

    async def pieces(self: Any) -> Any:
        if not vars(self).get("seen"):
            self.seen = await usual(self)
        return self.seen

    async def none(self: Any) -> Any:
        return []

    return (ArchivedLog, "_pieces", pieces), (ArchivedLog, "_snapshots", none)


def _log_before_objects() -> Sequence[Change]:
    """Pieces and snapshots that name what is not there yet."""
    usual = Copying._data

    async def data(self: Any, copier: Any, mark: Any, made: Any) -> set[str]:
        await self._frontier.advance()
        await self._publish(copier, mark, made)  # whatever it says
        return await usual(self, copier, mark, made)

    return ((Copying, "_data", data),)


def _marks_too_far() -> Sequence[Change]:
    """`copy.json` says more than there is."""
    usual = Copying._mark

    async def mark(self: Any, before: Any, made: Any) -> Any:
        made.revision += 1
        return await usual(self, before, made)

    return ((Copying, "_mark", mark),)


def _promotes_without_the_archive() -> Sequence[Change]:
    """The newest snapshot alone, and no entry behind it."""

    async def nothing(*given: Any) -> Any:
        for entry in tuple[LogEntry, ...]():
            yield entry

    return ((source, "shelf", altered(shelf, entries_after=nothing)),)


def _takes_segments_for_there() -> Sequence[Change]:
    """A promotion looks for chunks alone."""

    async def nothing(store: Any, state: Any) -> Merged:
        return Merged()

    return ((promoted, "merged_of", nothing),)


def _control(
    name: str, rule: str, anomalies: str, change: Callable[[], Sequence[Change]], follows: str = "bucket"
) -> Control:
    def told(plan: Plan) -> Plan:
        return replace(plan, follows=follows, scrubbed=False, hurt=False)

    return Control(
        name, rule, frozenset(anomalies.split()), lambda: patched(*change()), lambda plan: plan.archived, told
    )


REPLICAS = (
    _control(
        "replica-skips-an-entry",
        "a replica applies each entry in its place or none",
        "state-differs replica-poisoned",
        _skips_an_entry,
    ),
    _control(
        "replica-goes-over-gaps",
        "a replica applies each entry in its place or none",
        "state-differs replica-poisoned",
        _goes_over_gaps,
        "replicated",
    ),
    _control(
        "replica-shows-what-is-open",
        "8: nobody reads what has not ended",
        "aborted-read",
        _shows_what_is_open,
    ),
    _control("replica-looks-once", "a replica comes to what is archived", "replica-behind", _looks_once),
    _control(
        "copy-puts-its-log-first",
        "a copy can be promoted at every moment",
        "promoted-incomplete",
        _log_before_objects,
        "copy",
    ),
    _control(
        "copy-says-too-much",
        "a copy can be promoted at every moment",
        "promoted-behind",
        _marks_too_far,
        "copy",
    ),
    _control(
        "promoted-without-the-archive",
        "a promoted copy has all that was archived",
        "promoted-behind",
        _promotes_without_the_archive,
        "copy",
    ),
    _control(
        "segments-not-looked-for",
        "whoever promotes a bucket is told what it lacks",
        "promoted-incomplete",
        _takes_segments_for_there,
        "replicated",
    ),
)
