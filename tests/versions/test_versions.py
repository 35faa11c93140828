"""Entries and snapshots of every level load; below a level this code does what the code of that level did."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from coordination.commands import KINDS, Command
from coordination.kafka_codes import Code
from coordination.snapshot import canonical_digest, decode
from coordination.state import Refused
from coordination.state.data import FEATURE_LEVEL_MAX, FEATURE_LEVEL_MIN
from coordination.state.levels import SINCE
from tests.versions import write
from tests.versions.kept import HERE, LEVELS, folder, run, unpacked

ROOT = HERE.parents[1]
ENTRIES = 1_500
SEEDS = (1, 3)


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The code of level 1."""
    return unpacked(1, tmp_path_factory.mktemp("level-1"))


def test_every_level_is_kept() -> None:
    """A new level comes with what its code writes: python -m tests.versions.keep."""
    assert list(range(FEATURE_LEVEL_MIN, FEATURE_LEVEL_MAX + 1)) == LEVELS


@pytest.mark.parametrize("level", LEVELS)
def test_what_the_code_of_a_level_wrote_still_loads(level: int) -> None:
    """Its entries give the hash that it had, its snapshot the state that its entries give."""
    told = json.loads((folder(level) / "told.json").read_text())
    state, replayed = write.replay(write.read(folder(level) / "entries.bin"))
    assert replayed["hashes"][-1] == told["hash"]
    assert state.feature_level == level
    loaded = decode((folder(level) / "snapshot.bin").read_bytes())
    assert (loaded.hash, loaded.revision) == (told["hash"], told["revision"])
    assert canonical_digest(loaded) == canonical_digest(state)
    accepted = {kind for kind, count in replayed["done"].items() if count}
    assert len(accepted) > 25, "most kinds of commands had an effect at least once"
    if level > 1:  # the entries of level 1 were drawn before such a command was ever drawn well
        assert {"swap_segments", "forget_segments", "delete_topic", "commit_transaction_offsets"} <= accepted


@pytest.mark.parametrize("seed", SEEDS)
def test_below_the_new_level_both_versions_do_the_same(old: Path, tmp_path: Path, seed: int) -> None:
    """Entries by this code, new fields among them, applied by that of level 1: equal hashes, equal bytes."""
    new = run(ROOT, "make", tmp_path, "--seed", seed, "--entries", ENTRIES)
    before = run(old, "replay", tmp_path)
    assert before["hashes"] == new["hashes"]
    assert before["snapshot"] == new["snapshot"]
    assert set(new["kinds"]) - set(before["kinds"]) == set(SINCE), "what is new is named with its level"
    assert set(new["done"]) | set(SINCE) | set(write.NOT_DRAWN) >= set(KINDS)


def test_a_command_above_the_level_changes_nothing() -> None:
    """The code of level 1 stops at it, so it may have no effect here either."""
    writer = write.Writer(seed=3, level=1)
    writer.write(200)
    wrapped = [Command() for _ in SINCE]
    for one, kind in zip(wrapped, SINCE, strict=True):
        getattr(one, kind).SetInParent()
    applied = writer.append(writer.author(), *wrapped)
    assert {type(result) for result in applied.results} == {Refused}
    assert {result.code for result in applied.results if isinstance(result, Refused)} == {
        Code.UNSUPPORTED_VERSION
    }


def test_the_code_of_level_1_stops_at_a_higher_level_and_says_what_to_do(old: Path) -> None:
    with pytest.raises(subprocess.CalledProcessError) as caught:
        run(old, "replay", folder(2))
    assert "raises the feature level to 2, this code knows 1 to 1: run a newer version" in caught.value.stderr
