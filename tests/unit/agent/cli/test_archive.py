"""`floe bucket archive`: what it says of an archive that is whole, and of one that is not."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from agent.cli.archive import when
from coordination.archive.piece import NONE, Header, checksum_of, encode_steps
from coordination.log import LogEntry
from objectstore import fingerprint
from objectstore.fingerprint import Fingerprint
from objectstore.naming import PieceId, log_folder, piece_key, snapshot_key
from objectstore.open import open_store
from tests.unit.agent.cli.conftest import Ran, inside

IDENTITY = "etcd:0123:/floe/main/"
FOLDER = log_folder(IDENTITY)


async def fill(root: Path) -> list[Path]:
    """A bucket with a snapshot at revision 10 and three pieces, 8 to 40; the pieces' files."""
    store = open_store(f"file://{root}")
    await fingerprint.claim(store, Fingerprint("main", bytes(16), IDENTITY))
    await store.put(snapshot_key(10, 1), [b"a snapshot"])
    previous, files = NONE, []
    for first, last in ((8, 20), (21, 30), (31, 40)):
        header = Header(first, last, previous, snapshot=10 if first == 8 else 0)
        *_, parts = encode_steps(
            header, IDENTITY, [LogEntry(at, 1, at, b"x") for at in range(first, last + 1)]
        )
        key = piece_key(PieceId(FOLDER, first, last))
        await store.put(key, list(parts))
        previous = checksum_of(parts)
        files.append(root / key)
    await store.close()
    return files


def archive(root: Path, *more: str) -> Ran:
    """The command, with a log that nobody reaches."""
    log, store = "log.url=etcd://127.0.0.1:1/main", f"store.url=file://{root}"
    return inside("bucket", "archive", "--set", log, "--set", store, *more)


def test_it_says_how_far_one_can_go_from_a_snapshot(tmp_path: Path) -> None:
    asyncio.run(fill(tmp_path))
    ran = archive(tmp_path, "--output", "json")
    assert ran.status == 0, ran.err
    (told,) = json.loads(ran.out)
    assert (told["log"], told["current"], told["ranges"]) == (IDENTITY, True, [[8, 40]])
    assert (told["pieces"], told["entries"]) == (3, 33)
    assert told["snapshots"] == [{"revision": 10, "goes_on_through": 40}]
    assert told["missing"] == told["damaged"] == told["beside"] == []
    assert told["last_written"] > "2020"
    shown = archive(tmp_path)
    assert shown.status == 0
    assert IDENTITY in shown.out
    assert shown.out.count("40") >= 2


def test_it_names_what_is_damaged_and_what_is_missing_by_it(tmp_path: Path) -> None:
    files = asyncio.run(fill(tmp_path))
    files[1].write_bytes(files[1].read_bytes()[:-1])
    ran = archive(tmp_path, "--output", "json")
    assert ran.status == 1, ran.err
    (told,) = json.loads(ran.out)
    assert told["ranges"] == [[8, 20], [31, 40]]
    assert told["missing"] == [[21, 30]]
    assert told["snapshots"] == [{"revision": 10, "goes_on_through": 20}]
    assert [each["object"] for each in told["damaged"]] == [str(files[1].relative_to(tmp_path))]
    shown = archive(tmp_path)
    assert shown.status == 1
    assert "MISSING: entries of revisions 21 to 30" in shown.out
    assert "DAMAGED: 21 to 30" in shown.out


def test_of_a_bucket_without_an_archive_it_says_so(tmp_path: Path) -> None:
    ran = archive(tmp_path)
    assert (ran.status, ran.out) == (0, "")
    assert when(0) is None
    files = asyncio.run(fill(tmp_path))
    for each in files:
        each.unlink()
    ran = archive(tmp_path)
    assert ran.status == 0
    assert "nothing of it is archived" in ran.out
