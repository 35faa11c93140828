"""Writes container images as OCI archives, without a daemon: the same files give the same bytes.

OCI image-spec 1.1: a tar with oci-layout, index.json and blobs, which `ctr images import`, `podman load` and
`skopeo copy oci-archive:…` take. Layers are gzipped tars, sorted, without times and users' names.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import stat
import tarfile
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

GZIP_LEVEL = 5
ARCHITECTURE = "amd64"
_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_CONFIG = "application/vnd.oci.image.config.v1+json"
_LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"


@dataclass(frozen=True, slots=True)
class Layer:
    """A gzipped tar. `digest` is of its bytes, `diff_id` of the tar in it."""

    path: Path
    digest: str
    diff_id: str
    size: int


@dataclass(frozen=True, slots=True)
class Image:
    """An archive that was written: its manifest's digest, and the sum of its blobs in bytes."""

    path: Path
    digest: str
    size: int


class _Hashed(io.RawIOBase):
    """Passes bytes on, and hashes them."""

    def __init__(self, target: IO[bytes]) -> None:
        self._target, self.hash, self.size = target, hashlib.sha256(), 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        piece = bytes(data)
        self.hash.update(piece)
        self.size += len(piece)
        self._target.write(piece)
        return len(piece)


def layer(root: Path, target: Path, owners: Mapping[str, int] | None = None) -> Layer:
    """All below `root` as a layer, owned by root, but for the relative paths that `owners` names."""
    with target.open("wb") as file:
        outer = _Hashed(file)
        with gzip.GzipFile("", "wb", GZIP_LEVEL, cast(IO[bytes], outer), mtime=0) as packed:
            inner = _Hashed(cast(IO[bytes], packed))
            with tarfile.open(fileobj=cast(IO[bytes], inner), mode="w|", format=tarfile.GNU_FORMAT) as tar:
                for path in _sorted(root):
                    _add(tar, root, path, owners or {})
    return Layer(target, _named(outer.hash.hexdigest()), _named(inner.hash.hexdigest()), outer.size)


def archive(name: str, layers: Sequence[Layer], config: Mapping[str, object], target: Path) -> Image:
    """The image of these layers; `name` with its registry and tag, `config` as OCI's image config has it."""
    described = {
        "architecture": ARCHITECTURE,
        "os": "linux",
        "config": config,
        "rootfs": {"type": "layers", "diff_ids": [each.diff_id for each in layers]},
    }
    configuration = _json(described)
    manifest = _json(
        {
            "schemaVersion": 2,
            "mediaType": _MANIFEST,
            "config": _descriptor(_CONFIG, configuration),
            "layers": [{"mediaType": _LAYER, "digest": each.digest, "size": each.size} for each in layers],
        }
    )
    entry = _descriptor(_MANIFEST, manifest)
    entry["annotations"] = {
        "io.containerd.image.name": name,
        "org.opencontainers.image.ref.name": name.rpartition(":")[2],
    }
    index = _json({"schemaVersion": 2, "manifests": [entry]})
    with tarfile.open(target, "w", format=tarfile.GNU_FORMAT) as tar:
        _blob(tar, "oci-layout", _json({"imageLayoutVersion": "1.0.0"}))
        _blob(tar, "index.json", index)
        for content in (configuration, manifest):
            _blob(tar, f"blobs/sha256/{hashlib.sha256(content).hexdigest()}", content)
        for each in layers:
            header = tarfile.TarInfo(f"blobs/sha256/{each.digest.removeprefix('sha256:')}")
            header.size = each.size
            with each.path.open("rb") as file:
                tar.addfile(header, file)
    size = len(configuration) + len(manifest) + sum(each.size for each in layers)
    return Image(target, str(entry["digest"]), size)


def of_programs(name: str, programs: Mapping[str, Path], target: Path) -> Image:
    """An image with static programs only, each at /NAME."""
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch) / "root"
        (root / "tmp").mkdir(parents=True)
        (root / "tmp").chmod(0o1777)
        for program, source in programs.items():
            (root / program).write_bytes(source.read_bytes())
            (root / program).chmod(0o755)
        config = {"Entrypoint": [f"/{next(iter(programs))}"], "Env": ["PATH=/"]}
        return archive(name, [layer(root, Path(scratch) / "layer")], config, target)


def _sorted(root: Path) -> Iterator[Path]:
    for folder, folders, files in os.walk(root):
        folders.sort()
        links = [each for each in folders if (Path(folder) / each).is_symlink()]
        if Path(folder) != root:
            yield Path(folder)
        for name in sorted([*files, *links]):
            yield Path(folder) / name


def _add(tar: tarfile.TarFile, root: Path, path: Path, owners: Mapping[str, int]) -> None:
    found = path.lstat()
    header = tarfile.TarInfo(str(path.relative_to(root)))
    header.uid = header.gid = owners.get(header.name, 0)
    header.mode = stat.S_IMODE(found.st_mode)
    if stat.S_ISLNK(found.st_mode):
        header.type, header.linkname, header.mode = tarfile.SYMTYPE, str(path.readlink()), 0o777
        tar.addfile(header)
    elif stat.S_ISDIR(found.st_mode):
        header.type = tarfile.DIRTYPE
        tar.addfile(header)
    else:
        header.size = found.st_size
        with path.open("rb") as file:
            tar.addfile(header, file)


def _blob(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    header = tarfile.TarInfo(name)
    header.size = len(content)
    tar.addfile(header, io.BytesIO(content))


def _descriptor(kind: str, content: bytes) -> dict[str, object]:
    return {
        "mediaType": kind,
        "digest": _named(hashlib.sha256(content).hexdigest()),
        "size": len(content),
    }


def _named(hexadecimal: str) -> str:
    return f"sha256:{hexadecimal}"


def _json(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
