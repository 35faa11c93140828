"""`floe copy`: a whole cluster into another bucket, object by object, nothing is encoded anew.

The copy is promoted with `floe restore cluster --from COPY --to NEW_ETCD`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from agent.cli.failures import Status, refused, usage
from agent.cli.options import Assignments, ConfigFile, Form, Output
from agent.cli.output import print_json, progress, remarks, results

if TYPE_CHECKING:
    from agent.config import Config
    from coordination.clock import SystemClock
    from coordination.copying.damaged import DamagedObject
    from coordination.copying.run import Copying, CopyingOptions, Round
    from objectstore.copying import Copies, Counts
    from objectstore.store import ObjectStore

EVERY_S = 5.0
REQUEST_S_MIN = 300.0
"""An object is read and written by one request each, however large it is."""
NO_LOG = "log.url=etcd://not-asked:2379/not-asked"
"""A configuration has one; this command asks none."""
MB = 1_000_000
PLACES_TOLD_MAX = 20
"""Of one damaged object; `--output json` has all."""


def copy(
    source: Annotated[
        str, typer.Option("--from", metavar="BUCKET", help="The cluster's bucket and prefix, as store.url.")
    ],
    target: Annotated[
        str,
        typer.Option("--to", metavar="BUCKET", help="An empty prefix, or one with a copy of this cluster."),
    ],
    follow: Annotated[
        bool, typer.Option("--follow", help="Go on, round after round, until interrupted.")
    ] = False,
    every: Annotated[
        float, typer.Option(min=0.1, max=86_400, metavar="SECONDS", help="With --follow: between two rounds.")
    ] = EVERY_S,
    keep_deleted: Annotated[
        float,
        typer.Option(
            "--keep-deleted",
            min=0,
            metavar="SECONDS",
            help="With --follow: how long the copy keeps what the source deletes.",
        ),
    ] = 86_400.0,
    objects: Annotated[
        int, typer.Option("--objects", min=1, max=1_000, help="Objects that are copied at once.")
    ] = 16,
    memory: Annotated[
        int, typer.Option("--memory", min=1, metavar="MIB", help="Of objects that are under way, MiB.")
    ] = 128,
    rate: Annotated[
        float, typer.Option("--rate", min=0, metavar="MB/S", help="At most; 0: as fast as it goes.")
    ] = 0.0,
    by_store: Annotated[
        bool,
        typer.Option(
            "--by-store/--through-here",
            help="Whether a store that has both buckets is asked to copy by itself.",
        ),
    ] = True,
    verify: Annotated[
        Literal["length", "etag", "read"],
        typer.Option("--verify", help="What of each copied object is compared."),
    ] = "etag",
    config: ConfigFile = None,
    to_config: Annotated[
        Path | None,
        typer.Option("--to-config", metavar="FILE", help="Settings of --to's store, where they are others."),
    ] = None,
    assign: Assignments = None,
    output: Output = Form.TABLE,
) -> None:
    """Copy a cluster's bucket: records, offsets, producers, groups and schemas as they are.

    Tables' metadata names files by store.url: promoted, tables are told the copy's.

    No agent starts on a copy. It is promoted with: floe restore cluster --from COPY --to NEW_ETCD. When it
    is interrupted, the same command goes on. Status 1: the source itself lacks what its state names, or has
    it damaged; what can be read of that is copied, and it is taken again with the next round.
    """
    from agent.config import load
    from coordination.copying.run import CopyingOptions
    from iceberg.contents import problem
    from objectstore.copying import CopyOptions, Verify

    if source.rstrip("/") == target.rstrip("/") and to_config is None:
        raise usage(
            "--from and --to are the same: name another bucket or prefix, or another store (--to-config)"
        )
    always = [*(assign or ()), NO_LOG]
    given = load(config, [*always, f"store.url={source}"], advertises=False).config
    elsewhere = [*always, f"store.url={target}", "tables.warehouse="]
    other = load(to_config or config, elsewhere, advertises=False).config
    folder = f"{given.warehouse.removeprefix(given.store.url.rstrip('/') + '/')}/"
    options = CopyingOptions(
        CopyOptions(objects, memory << 20, bytes_per_s=rate * MB, verify=Verify(verify), check=problem),
        keep_deleted_s=keep_deleted,
        tables=folder,
    )
    configs = (given, other)
    wrong = asyncio.run(_copied(configs, options, every if follow else None, output, by_store=by_store))
    if wrong:
        raise typer.Exit(Status.FAILED)


async def _copied(
    configs: tuple[Config, Config],
    options: CopyingOptions,
    every: float | None,
    output: Form,
    *,
    by_store: bool,
) -> int:
    """One round, or one after the other; how many objects the source lacks, or has damaged."""
    from agent.dependencies import store_of
    from coordination.clock import SystemClock
    from coordination.copying.run import CannotCopy, Copying
    from coordination.restore.source import CannotRestore
    from objectstore.copied import NotOurCopy
    from objectstore.fingerprint import BrokenFingerprint

    clock = SystemClock()
    source, target = map(_patient, configs)
    stores = [store_of(each, clock) for each in (source, target)]
    try:
        with progress() as bar:
            task = bar.add_task("looking", total=None)

            def told(what: str, counts: Counts) -> None:
                bar.update(task, description=f"{what} {_figures(counts)}")

            across = _across(source, target, clock) if by_store else None
            url = source.store.url.rstrip("/")
            copying = Copying(stores[0], stores[1], url, clock, options, told, across)
            if every is None:
                made = await copying.round()
                _tell(made, output)
                return made.missing_count + made.damaged_count
            await _follow(copying, every, output, clock)
            return 0
    except (CannotCopy, CannotRestore, NotOurCopy, BrokenFingerprint) as error:
        raise refused(f"nothing more is copied: {error}") from None
    finally:
        await _closed(stores)


async def _follow(copying: Copying, every: float, output: Form, clock: SystemClock) -> None:
    """Until the source or the destination is another one. A store that does not answer is asked again."""
    from coordination.copying.run import follow

    refused = ""

    def done(made: Round) -> None:
        nonlocal refused
        _tell(made, output, told=refused)
        refused = made.counts.refused

    def failed(error: Exception) -> None:
        remarks().print(f"round failed, tried again in {every:g} s: {error}", style="dim")

    await follow(copying, every, clock, done, failed)


def _across(source: Config, target: Config, clock: SystemClock) -> Copies | None:
    """What has the store copy by itself; None where the two are not known to be of one store."""
    from agent.dependencies import keys_of_store, store_options
    from objectstore.across import across

    options = store_options(source, clock), store_options(target, clock)
    return across((source.store.url, target.store.url), options, keys_of_store(target, clock))


def _patient(config: Config) -> Config:
    """With time enough for a large object in one request."""
    store = config.store
    ms = max(store.request_timeout_ms, int(REQUEST_S_MIN * 1000))
    return config.model_copy(update={"store": store.model_copy(update={"request_timeout_ms": ms})})


async def _closed(stores: Sequence[ObjectStore]) -> None:
    for each in stores:
        await each.close()


def _figures(counts: Counts) -> str:
    by_store = f", {counts.by_store} by the store itself" if counts.by_store else ""
    return f"{counts.objects} objects, {counts.bytes / MB:.1f} MB{by_store}; {counts.there} were there"


def _tell(made: Round, output: Form, told: str = "") -> None:
    """`told`: what was said before of why the store does not copy by itself."""
    if output is Form.JSON:
        print_json(made.plain())
        return
    rate = made.counts.bytes / MB / made.seconds if made.seconds else 0.0
    when = datetime.fromtimestamp(made.archived_ms / 1000, UTC).isoformat(timespec="seconds")
    results().print(
        f"complete through revision {made.revision}, archived at {when}: {_figures(made.counts)}, "
        f"{made.counts.deleted} deleted, {made.seconds:.1f} s, {rate:.1f} MB/s"
    )
    if made.counts.refused not in ("", told):
        remarks().print(f"copied through here, not by the store: {made.counts.refused}", style="dim")
    for key in made.missing:
        results().print(f"MISSING: {key}: the source's state names it, the source has it no more")
    if made.missing_count > len(made.missing):
        results().print(f"MISSING: {made.missing_count - len(made.missing)} more")
    for each in made.damaged:
        results().print(f"DAMAGED: {_damaged(each)}")
    if made.damaged_count > len(made.damaged):
        results().print(f"DAMAGED: {made.damaged_count - len(made.damaged)} more")


def _damaged(found: DamagedObject) -> str:
    """An object that the source gives damaged, and what is lost with it."""
    lost = [*map(str, found.places[:PLACES_TOLD_MAX]), *[f"table {found.table}"] * bool(found.table)]
    more = len(found.places) - PLACES_TOLD_MAX
    lost += [f"{more} more places"] if more > 0 else []
    return f"{found.key}: {found.reason}" + (f"; not readable: {', '.join(lost)}" if lost else "")
