"""What `floe bucket archive` does: read every piece of the archived log, and say from where one can go on.

Neither log nor agents are asked: they may be lost.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from agent.cli.output import print_table, remarks, results

if TYPE_CHECKING:
    from agent.config import Config
    from coordination.archive.shelf import Survey


async def surveys(config: Config) -> tuple[str, list[Survey]]:
    """The identity of the log that the bucket belongs to, empty where nothing says so; each archived log.

    The bucket's own one is there whether or not anything of it is archived. Raises StoreError.
    """
    from agent.dependencies import store_of
    from coordination.archive import shelf
    from coordination.clock import SystemClock
    from objectstore import fingerprint
    from objectstore.naming import log_folder
    from objectstore.store import NotFound

    store = store_of(config, SystemClock())
    try:
        try:
            identity = (await fingerprint.read(store)).log_identity
        except NotFound:
            identity = ""
        own = {log_folder(identity)} if identity else set()
        snapshots = await shelf.snapshots(store)
        return identity, [
            await shelf.survey(store, folder, snapshots)
            for folder in sorted(own | set(await shelf.folders(store)))
        ]
    finally:
        await store.close()


def plain(found: Survey, identity: str) -> dict[str, object]:
    """As JSON says it."""
    from objectstore.naming import log_folder, piece_key

    pieces = [each for line in found.lines for each in line]
    return {
        "log": found.identity or (identity if found.folder == log_folder(identity) else ""),
        "folder": f"log/{found.folder}/",
        "current": found.folder == log_folder(identity),
        "ranges": [[line[0].header.first, line[-1].header.last] for line in found.lines],
        "pieces": len(pieces),
        "entries": sum(each.count for each in pieces),
        "bytes": sum(each.stored.size for each in pieces),
        "last_written": when(found.modified_ms),
        "missing": [list(each) for each in found.missing],
        "damaged": [
            {"object": piece_key(stored.id), "error": error} for stored, error in found.damaged
        ],
        "beside": [piece_key(each.stored.id) for each in found.beside],
        "snapshots": [{"revision": each.snapshot, "goes_on_through": each.through} for each in found.reaches],
    }  # fmt: skip


def when(at_ms: int) -> str | None:
    """A time of the store, for people; None: never."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="seconds") if at_ms else None


def say(found: Survey, identity: str) -> None:
    """One log, for people."""
    told = plain(found, identity)
    results().print(f"log {told['log']} in {told['folder']}{'' if told['current'] else ' (of another log)'}")
    if not found.lines:
        results().print("nothing of it is archived")
    rows = [
        (
            line[0].header.first,
            line[-1].header.last,
            len(line),
            sum(each.count for each in line),
            sum(each.stored.size for each in line),
            when(line[-1].stored.modified_ms),
        )
        for line in found.lines
    ]
    if rows:
        print_table(("from revision", "through", "pieces", "entries", "bytes", "last written"), rows)
    if found.reaches and told["current"]:
        print_table(
            ("snapshot", "goes on through"), [(each.snapshot, each.through) for each in found.reaches]
        )
    for first, last in found.missing:
        results().print(f"MISSING: entries of revisions {first} to {last} are in no good piece")
    for stored, error in found.damaged:
        results().print(f"DAMAGED: {stored.id.first} to {stored.id.last}: {error}")
    if found.beside:
        remarks().print(
            f"{len(found.beside)} pieces lie beside the chain, as two agents wrote at once", style="dim"
        )
