"""`python -m deploy.images` builds the agent's image without a daemon: build/images/agent.tar, for OCI.

What the Containerfile describes, from Debian's pinned packages instead of a base image, and the same locked
wheels. Two builds of one tree give the same digest. Needs apt (or what it brought before), cc and uv.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from deploy.images.dropping import drop
from deploy.images.kept import OUTPUT, ROOT, kept_layer, of_files
from deploy.images.oci import Image, archive
from deploy.setup.debian import NotToBeHad, unpacked

LOCK = ROOT / "requirements-agent.lock"
NAME = "docker.io/floe/agent:0.1.0"
CODE = ("__main__.py", "oci.py", "kept.py", "dropping.py", "floe")
LICENCE = ROOT / "LICENSE"
SIZE_MAX = 250_000_000
"""Bytes of all blobs, compressed as a registry keeps them."""
PACKAGES = ("agent", "coordination", "iceberg", "objectstore", "schema")
NATIVE = ("coordination/state/_appending.c", "objectstore/_frames.c")  # pyproject.toml's ext-modules
USER = 10001
PYTHON = "usr/bin/python3.11"
# Of Debian's packages and of wheels: what no running agent reads.
DROPPED = (
    "usr/share/doc", "usr/share/man", "usr/share/locale", "usr/share/lintian", "usr/share/bug",
    "usr/lib/x86_64-linux-gnu/gconv", "usr/lib/python3.11/lib2to3", "usr/lib/python3.11/pydoc_data",
    "usr/lib/python3.11/idlelib", "boot", "home", "var/backups",
)  # fmt: skip
DROPPED_OF_WHEELS = ("pyarrow/include", "pyarrow/tests", "pyarrow/src", "bin")


def cached() -> Image:
    """build(), unless nothing that it is made of has changed since. Raises as build."""
    stamp, wanted = OUTPUT / "agent.json", of_files([*_how("image"), LOCK, *_own()])
    if stamp.exists() and (kept := json.loads(stamp.read_text()))["made_of"] == wanted:
        return Image(Path(kept["path"]), kept["digest"], kept["size"])
    image = build()
    kept = {"made_of": wanted, "path": str(image.path), "digest": image.digest, "size": image.size}
    stamp.write_text(json.dumps(kept))
    return image


def _how(pins: str) -> list[Path]:
    """What says how a layer is made: Debian's packages of that name, and this folder."""
    code = [ROOT / "deploy" / "images" / each for each in CODE]
    return [ROOT / "deploy" / "setup" / f"debian-{pins}.sha256", *code]


def _own() -> list[Path]:
    return [LICENCE, *(file for package in PACKAGES for file in sorted((ROOT / package).rglob("*")))]


def build(target: Path = OUTPUT / "agent.tar", name: str = NAME) -> Image:
    """Write the image; layers that would be the same are those of the build before.

    Raises NotToBeHad, and ValueError when it is larger than SIZE_MAX.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    layers = [
        kept_layer("system", of_files(_how("image")), _system, {"var/lib/floe": USER}),
        kept_layer("wheels", of_files([*_how("image"), LOCK]), _wheels),
        kept_layer("app", of_files([*_how("image"), *_own()]), _app),
    ]
    image = archive(name, layers, _config(), target)
    if image.size > SIZE_MAX:
        raise ValueError(f"the image has {image.size:,} bytes, more than {SIZE_MAX:,}: see what has grown")
    return image


def _system(root: Path) -> None:
    """Debian's packages, a user, the certificates that packages' scripts would have put together."""
    shutil.copytree(unpacked("image"), root, symlinks=True)
    drop(root, DROPPED)
    for folder, mode in (("tmp", 0o1777), ("var/lib/floe", 0o755), ("etc/ssl/certs", 0o755)):
        (root / folder).mkdir(parents=True, exist_ok=True)
        (root / folder).chmod(mode)
    authorities = sorted((root / "usr/share/ca-certificates").rglob("*.crt"))
    (root / "etc/ssl/certs/ca-certificates.crt").write_bytes(b"".join(p.read_bytes() for p in authorities))
    (root / "etc/passwd").write_text(
        f"root:x:0:0:root:/root:/usr/sbin/nologin\nfloe:x:{USER}:{USER}::/var/lib/floe:/usr/sbin/nologin\n"
    )
    (root / "etc/group").write_text(f"root:x:0:\nfloe:x:{USER}:\n")
    for link in ("opt/floe/bin/python", "usr/local/bin/python"):
        (root / link).parent.mkdir(parents=True, exist_ok=True)
        (root / link).symlink_to(f"/{PYTHON}")
    shutil.copy(ROOT / "deploy/images/floe", root / "usr/local/bin/floe")
    (root / "usr/local/bin/floe").chmod(0o755)
    if not (root / "bin/sh").exists():
        (root / "bin/sh").symlink_to("dash")
    _compile(root / "usr/lib/python3.11", "/usr/lib/python3.11")


def _wheels(root: Path) -> None:
    """The locked packages, for the image's Python, which is of this one's minor version."""
    target = root / "opt" / "floe" / "lib"
    if sys.version_info[:2] != (3, 11):
        raise NotToBeHad("the image has Python 3.11: build it with one, for its wheels and its byte code")
    uv = str(Path(sys.executable).with_name("uv"))
    command = [uv, "pip", "install", "-q", "--target", str(target), "--link-mode", "copy"]
    subprocess.run([*command, "--python", sys.executable, "--require-hashes", "-r", str(LOCK)], check=True)
    for each in DROPPED_OF_WHEELS:
        shutil.rmtree(target / each, ignore_errors=True)
    for record in target.glob("*.dist-info"):  # RECORD and the like say how and where it was installed
        for name in ("RECORD", "INSTALLER", "REQUESTED", "direct_url.json", "uv_cache.json"):
            (record / name).unlink(missing_ok=True)
    (target / ".lock").unlink(missing_ok=True)
    _compile(target, "/opt/floe/lib")


def _app(root: Path) -> None:
    app = root / "opt" / "floe" / "app"
    for package in PACKAGES:
        ignored = shutil.ignore_patterns("__pycache__", "*.so", "*.pyc")
        shutil.copytree(ROOT / package, app / package, ignore=ignored)
    shutil.copy(LICENCE, root / "opt" / "floe" / LICENCE.name)
    for source in NATIVE:
        compile_native(source, app / Path(source).with_suffix(".abi3.so"))
    for folder, _, files in os.walk(root):
        Path(folder).chmod(0o755)
        for name in files:
            (Path(folder) / name).chmod(0o644)
    _compile(app, "/opt/floe/app")


def compile_native(source: str, output: Path, root: Path = ROOT) -> None:
    """The same bytes wherever the tree lies: no path, date or build id gets in."""
    import sysconfig  # its answer is the building Python's, whose headers are those of 3.11's stable ABI

    command = ["cc", "-O3", "-shared", "-fPIC", f"-I{sysconfig.get_path('include')}", source]
    try:
        subprocess.run([*command, "-Wl,--build-id=none", "-o", str(output)], cwd=root, check=True)
    except FileNotFoundError:
        raise NotToBeHad(f"no cc, for {source}: install a C compiler") from None


def _compile(folder: Path, seen_as: str) -> None:
    """Byte code that asks for no times: the running image cannot write its own."""
    options = ["-q", "-s", str(folder), "-p", seen_as, "--invalidation-mode", "unchecked-hash"]
    command = [sys.executable, "-m", "compileall", *options, str(folder)]
    # Some wheels have files for other Pythons, which do not compile: nobody imports them.
    subprocess.run(command, check=False, env={"PYTHONHASHSEED": "0"}, stdout=subprocess.DEVNULL)


def _config() -> dict[str, object]:
    """As the Containerfile has it."""
    return {
        "User": f"{USER}:{USER}",
        "WorkingDir": "/var/lib/floe",
        "Env": [
            "PATH=/opt/floe/bin:/usr/local/bin:/usr/bin:/bin",
            "PYTHONPATH=/opt/floe/app:/opt/floe/lib",
            "PYTHONDONTWRITEBYTECODE=1",
            "PYTHONUNBUFFERED=1",
            "PYTHONUTF8=1",
        ],
        "Entrypoint": ["floe"],
        "Cmd": ["serve", "--config", "/etc/floe/floe.yaml"],
        "ExposedPorts": {"9092/tcp": {}, "8080/tcp": {}},
        "Labels": {
            "org.opencontainers.image.title": "Floe agent",
            "org.opencontainers.image.licenses": "Apache-2.0",
        },
    }


if __name__ == "__main__":
    try:
        made = cached()
    except (NotToBeHad, ValueError) as error:
        sys.exit(str(error))
    print(f"{made.path}: {made.digest}, {made.size / 1e6:.1f} MB")
