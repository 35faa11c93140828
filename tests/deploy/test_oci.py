"""Images without a daemon: the same files give the same bytes, and an archive holds what its digests say."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import tarfile
from pathlib import Path

import pytest

from deploy.images import kept
from deploy.images.oci import Image, archive, layer

NAME = "docker.io/floe/sample:1"


def _tree(root: Path, names: list[str], time: int) -> Path:
    """The same files, made in this order and at this time."""
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name * 100)
        os.utime(root / name, (time, time))
    (root / "link").symlink_to("a/one")
    (root / "a" / "one").chmod(0o755)
    return root


def _image(folder: Path, names: list[str], time: int) -> Image:
    root = _tree(folder / "root", names, time)
    return archive(
        NAME, [layer(root, folder / "layer", {"b/two": 10001})], {"User": "1"}, folder / "image.tar"
    )


def test_the_same_files_give_the_same_bytes(tmp_path: Path) -> None:
    names = ["a/one", "b/two", "b/three"]
    first = _image(tmp_path / "first", names, 1)
    second = _image(tmp_path / "second", list(reversed(names)), 1_700_000_000)
    assert first.digest == second.digest
    assert first.path.read_bytes() == second.path.read_bytes()
    other = _image(tmp_path / "other", [*names, "c"], 1)
    assert other.digest != first.digest


def test_an_archive_holds_what_its_digests_say(tmp_path: Path) -> None:
    image = _image(tmp_path, ["a/one", "b/two"], 1)
    with tarfile.open(image.path) as tar:
        held = {member.name: tar.extractfile(member).read() for member in tar}  # type: ignore[union-attr]  # the files of ours are all regular
    blobs = {name: content for name, content in held.items() if name.startswith("blobs/")}
    assert all(name.endswith(hashlib.sha256(content).hexdigest()) for name, content in blobs.items())
    (entry,) = json.loads(held["index.json"])["manifests"]
    assert entry["digest"] == image.digest
    assert entry["annotations"]["io.containerd.image.name"] == NAME
    manifest = json.loads(_blob(held, entry["digest"]))
    configuration = json.loads(_blob(held, manifest["config"]["digest"]))
    unpacked = gzip.decompress(_blob(held, manifest["layers"][0]["digest"]))
    assert configuration["rootfs"]["diff_ids"] == [f"sha256:{hashlib.sha256(unpacked).hexdigest()}"]
    with tarfile.open(fileobj=io.BytesIO(unpacked)) as tar:
        members = {member.name: member for member in tar}
    assert [*members] == ["link", "a", "a/one", "b", "b/two"]
    assert (members["a/one"].mode, members["link"].linkname) == (0o755, "a/one")
    assert (members["a/one"].uid, members["b/two"].uid) == (0, 10001)
    assert {member.mtime for member in members.values()} == {0}


def _blob(held: dict[str, bytes], digest: str) -> bytes:
    return held[f"blobs/sha256/{digest.removeprefix('sha256:')}"]


def test_a_layer_is_made_anew_only_when_what_it_is_made_of_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept, "OUTPUT", tmp_path)
    contents = ["one", "two"]

    def fill(root: Path) -> None:
        root.mkdir()
        (root / "file").write_text(contents.pop(0))

    first = kept.kept_layer("some", "pins", fill)
    assert kept.kept_layer("some", "pins", fill) == first, "nothing has changed"
    other = kept.kept_layer("some", "other pins", fill)
    assert other.digest != first.digest
    assert not contents
    (tmp_path / "some.layer").unlink()
    with pytest.raises(IndexError):  # it would be made again
        kept.kept_layer("some", "other pins", fill)
