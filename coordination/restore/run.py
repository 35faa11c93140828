"""Restoring a cluster whose log was lost: the steps, and what a death between two of them leaves.

    plan     everything is read and judged; a dry run ends here, and nothing was changed
    begin    the new etcd gets the new log's name and base: nobody looks at them yet
    bind     cluster.json names the new log, and the lost one as what it is restored from: from here on agents
             of the lost log stop (agent/health/binding.py), and none of the new one starts
    wait     until no agent of the lost log can acknowledge a record whose chunk is not in the bucket; the
             archive is applied anew meanwhile
    again    the plan is made anew, with chunks that were read before as they were read: it has every record
             that was ever acknowledged; where snapshots and archive are others than in the wait, with them
    put      of a copy: tables' metadata with its own URLs; copies of chunks, then the snapshot
    finish   cluster.json names the new log alone: agents may start

Another restore may bind the bucket meanwhile; then this one ends before its next step. A snapshot that it has
put goes: above the other log's end it would keep agents of that from starting.

Dead before `bind`, nothing has changed but two keys that nobody reads. Dead behind it, the same command goes
on from the beginning with the lost log's archive, into the same etcd or another one.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from dataclasses import replace as changed

from coordination.clock import Clock
from coordination.etcd import beginning
from coordination.etcd.rebased import RebasedLog
from coordination.restore.found import Reader
from coordination.restore.rebuild import Means, Restored, rebuild
from coordination.restore.report import Report, TableFound
from coordination.restore.source import CannotRestore, Source, source_of
from coordination.restore.stages import Stages
from coordination.restore.tables import Moves, Tables
from coordination.snapshot import encode
from coordination.state import State
from coordination.steps import reach
from objectstore import fingerprint
from objectstore.fingerprint import BrokenFingerprint, Fingerprint
from objectstore.naming import (
    CHUNKS,
    FINGERPRINT_KEY,
    LOG,
    SNAPSHOTS,
    chunk_key,
    key_below,
    log_folder,
    snapshot_key,
)
from objectstore.retry import find_ours
from objectstore.store import (
    CREATE,
    Ambiguous,
    Buffer,
    NotFound,
    ObjectMeta,
    ObjectStore,
    Precondition,
    is_there,
)

ALIVE_MS = 30_000  # who wrote to the bucket so lately may be alive
ENTRIES_MAX = 1 << 31  # of a restore; the base lies so far above its first one
INCARNATION_BITS = 63
_TAKEN = (
    "another restore took the bucket meanwhile: let that one end, or, where it is not to be, run this again"
)
_METADATA = re.compile(r"(.*/metadata/)(\d+)-[^/]*\.metadata\.json")


@dataclass(frozen=True, slots=True)
class RestoreOptions:
    """`settle_s`: what agents of the lost log have to notice that they are not the bucket's any more.

    `replace_log`: a log that the etcd has under this cluster's name is deleted. `log_is_lost`: the operator
    knows it, whatever was written to the bucket lately. `url`: the store's without a slash at its end, by
    which tables' files are called.
    """

    dry_run: bool = False
    settle_s: float = 20.0
    replace_log: bool = False
    log_is_lost: bool = False
    url: str = ""


async def restore(
    store: ObjectStore, log: RebasedLog, clock: Clock, options: RestoreOptions, tables: Tables | None = None
) -> Report:
    """Do it, or in a dry run say what would be done. Raises CannotRestore, LogError, StoreError.

    `tables`: what moves those of a copied bucket, whose files are called otherwise than here.
    """
    return await _Restore(store, log, clock, options, tables).run()


class _Restore:
    def __init__(
        self,
        store: ObjectStore,
        log: RebasedLog,
        clock: Clock,
        options: RestoreOptions,
        tables: Tables | None,
    ) -> None:
        self._store, self._log, self._clock, self._options = store, log.inner, clock, options
        self._tables = tables
        self._restorer = clock.random_bits(INCARNATION_BITS) or 1
        self._stages = Stages(clock)
        self._early: tuple[list[ObjectMeta], Source] | None = None

    async def run(self) -> Report:
        found, etag = await self._bound()
        reader = Reader(self._store, found.cluster_id)
        means = Means(self._store, reader, found.cluster_id, self._restorer, self._stages)
        lost = found.restored_from or found.log_identity
        await self._look_at_target(found)
        if not found.restored_from and not self._options.log_is_lost:
            await self._look_for_life(found)
        plan = await self._plan(means, found, lost, self._tables if self._options.dry_run else None)
        if self._options.dry_run:
            return plan.report
        base = plan.state.revision
        del plan  # its state is one in memory too many
        reach("restore/begin")
        drawn = b"%032x" % self._clock.random_bits(128)
        identity, floor = await beginning.begin(self._log, drawn, base, replace=self._options.replace_log)
        reach("restore/bind")
        bound = changed(found, log_identity=identity, restored_from=lost)
        try:
            etag = await fingerprint.replace(self._store, bound, etag)
        except Precondition:
            raise CannotRestore(
                f"{FINGERPRINT_KEY} was changed by somebody else meanwhile: nothing is restored; try again"
            ) from None
        reach("restore/bound")
        self._stages.over("log begun and bucket bound")
        await self._settle(lost)
        reach("restore/put-tables")
        await self._still_ours(bound)
        final = await self._plan(means, bound, lost, self._tables, floor)
        snapshot = await self._publish(final, bound)
        reach("restore/finish")
        await self._finish(bound, etag, snapshot)
        reach("restore/finished")
        self._stages.over("snapshot put and bucket bound for good")
        final.report.new_log, final.report.dry_run = identity, False
        return final.report

    # Looking.

    async def _bound(self) -> tuple[Fingerprint, str]:
        try:
            return await fingerprint.stored(self._store)
        except NotFound:
            raise CannotRestore(
                f"there is no {FINGERPRINT_KEY} below --from: name the bucket with the cluster's prefix"
            ) from None
        except BrokenFingerprint as error:
            raise CannotRestore(str(error)) from None

    async def _look_at_target(self, found: Fingerprint) -> None:
        held = await beginning.look(self._log)
        if self._options.replace_log or (not held.used and held.identity != found.log_identity):
            return
        prefix = self._log.keys.prefix
        if held.identity == found.log_identity and not found.restored_from:
            raise CannotRestore(
                f"the etcd of --to has the log {held.identity!r} that the bucket belongs to: start the "
                "agents; --replace-log deletes it and restores from the bucket all the same"
            )
        if held.used:
            raise CannotRestore(
                f"the etcd of --to has another log under {prefix}: name an etcd without one, or delete "
                "it with --replace-log"
            )

    async def _look_for_life(self, found: Fingerprint) -> None:
        """Refuse where somebody wrote to the bucket a moment ago."""
        newest = 0
        for prefix in (CHUNKS, f"{LOG}{log_folder(found.log_identity)}/"):
            async for page in self._store.list(prefix):
                newest = max([newest, *(meta.modified_ms for meta in page)])
        ago_s = (self._clock.now_ms() - newest) / 1000
        if newest and ago_s * 1000 < ALIVE_MS:
            raise CannotRestore(
                f"agents wrote to the bucket {max(0.0, ago_s):.0f} s ago, so log {found.log_identity!r} may "
                f"live: stop them and wait for {ALIVE_MS // 1000} s, or say --log-is-lost"
            )

    async def _plan(
        self, means: Means, found: Fingerprint, lost: str, tables: Tables | None, base: int = 0
    ) -> Restored:
        """What the new log begins with, at the revision `base`; 0: far above what the bucket names.

        What moved tables lead to is stored then: nobody sees it before the snapshot is there.
        """
        source = await self._source(lost)
        self._stages.over("snapshot and archive applied")
        base = base or source.begin + ENTRIES_MAX
        report = Report(
            found.cluster, lost, snapshot=source.snapshot, snapshot_revision=source.snapshot_revision,
            entries=source.entries, certain=source.certain, base=base, damaged=source.damaged,
            missing_revisions=source.missing, seconds=self._stages.seconds,
        )  # fmt: skip
        moves = Moves()
        if tables is not None:
            moves = await tables.moves(source.state, write=not self._options.dry_run)
        report.moved = moves.tables
        self._stages.over("tables moved")
        made = await rebuild(means, source, report, moves.commands)
        report.tables, missing = await _tables_there(self._store, made.state, self._options.url)
        written = {each.metadata for each in moves.tables}  # or will be, in the real run
        report.missing_metadata = [each for each in missing if each not in written]
        self._stages.over("tables looked for")
        return made

    async def _settle(self, lost: str) -> None:
        """Wait for agents of the lost log. What they leave as it is until then need not be read again."""
        until = self._clock.monotonic() + self._options.settle_s
        if self._options.settle_s:
            names = await self._names(lost)
            with suppress(CannotRestore):  # if it still is so afterwards, it is told then
                self._early = names, await source_of(self._store, lost)
            self._stages.over("snapshot and archive applied, while waiting")
        await self._clock.sleep(max(0.0, until - self._clock.monotonic()))
        self._stages.over("waited for old agents")

    async def _source(self, lost: str) -> Source:
        """What snapshots and archive give now."""
        early, self._early = self._early, None
        if early is not None and early[0] == await self._names(lost):
            return early[1]
        return await source_of(self._store, lost)

    async def _names(self, lost: str) -> list[ObjectMeta]:
        """The objects that a source is made of, as the store lists them."""
        prefixes = (SNAPSHOTS, f"{LOG}{log_folder(lost)}/")
        return [meta for prefix in prefixes async for page in self._store.list(prefix) for meta in page]

    # Writing.

    async def _publish(self, made: Restored, bound: Fingerprint) -> str:
        """The snapshot's key."""
        reach("restore/put-copies")
        await self._still_ours(bound)
        for copy in made.copies:
            await self._put(chunk_key(copy.chunk), copy.parts)
        content = await asyncio.to_thread(encode, made.state)
        reach("restore/put-snapshot")
        await self._still_ours(bound)
        key = snapshot_key(made.state.revision, self._restorer)
        await self._put(key, [content])
        return key

    async def _still_ours(self, bound: Fingerprint) -> None:
        """No other restore bound the bucket since. Raises CannotRestore."""
        if await fingerprint.read(self._store) != bound:
            raise CannotRestore(_TAKEN)

    async def _finish(self, bound: Fingerprint, etag: str, snapshot: str) -> None:
        """Agents may start, of this log; of another one where another restore took the bucket."""
        try:
            await fingerprint.replace(self._store, changed(bound, restored_from=""), etag)
        except (Ambiguous, Precondition):
            if (await fingerprint.read(self._store)).log_identity == bound.log_identity:
                raise
            await self._store.delete([snapshot])
            raise CannotRestore(_TAKEN) from None

    async def _put(self, key: str, parts: Sequence[Buffer]) -> None:
        """Create only: the name has this restore's own number in it."""
        try:
            await self._store.put(key, parts, CREATE)
        except (Ambiguous, Precondition):
            if await find_ours(self._store, key, parts) is None:
                raise


async def _tables_there(store: ObjectStore, state: State, url: str) -> tuple[list[TableFound], list[str]]:
    """Tables of which there is metadata newer than the restored pointer: commits that the lost log took.

    And where the pointer leads to nothing, the file's location.
    """
    ahead, missing = list[TableFound](), list[str]()
    for table in state.tables.values():
        where = table.metadata_location
        key = key_below(url, where)
        match = _METADATA.fullmatch(key or "")
        if key is None:
            continue  # it lies elsewhere
        if match is None:
            missing += [where] * (not await is_there(store, key))
            continue
        newer, there = await _metadata_of(store, match[1], int(match[2]), match[0])
        if not there:
            missing.append(where)
        if newer:
            newest = where[: where.rindex("/")] + newer[-1][newer[-1].rindex("/") :]
            ahead.append(TableFound(table.namespace, table.name, where, len(newer), newest, table.topic))
    return ahead, missing


async def _metadata_of(store: ObjectStore, prefix: str, version: int, own: str) -> tuple[list[str], bool]:
    """Keys of metadata files of higher versions, the newest last: by version, then by when it was stored.

    And whether there is the one with the key `own`.
    """
    found, there = list[tuple[int, int, str]](), False
    with suppress(NotFound):
        async for page in store.list(prefix):
            for meta in page:
                there |= meta.key == own
                name = _METADATA.fullmatch(meta.key)
                if name is not None and int(name[2]) > version:
                    found.append((int(name[2]), meta.modified_ms, meta.key))
    return [key for _, _, key in sorted(found)], there
