"""The .proto files of a binding: those named, and what they import, by import path."""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from pathlib import Path

from agent.cli.failures import Failure, Status, usage
from schema.compiler import CompileError, compile_protos
from schema.descriptors import DescriptorError, load
from schema.registry.known import NAMES, imported_by

IMPORT = re.compile(r'(?:^|;|\*/)\s*import\s+(?:public\s+|weak\s+|option\s+)?"([^"]+)"\s*;', re.MULTILINE)
BUILT_IN = "google/protobuf/"


def descriptor_set(files: Sequence[Path], folders: Sequence[Path], message: str) -> str:
    """The files compiled, as the agent takes them: base64 of a FileDescriptorSet that holds `message`.

    Compiled here so that a broken file is told before anything is created. Raises Failure.
    """
    texts = {name: text.encode() for name, text in sources(files, folders).items()}
    try:
        compiled = compile_protos(texts, imported_by(texts))
        load(compiled, message)
    except (CompileError, DescriptorError) as error:
        raise Failure(Status.FAILED, f"{', '.join(map(str, files))}: {error}") from None
    return base64.b64encode(compiled).decode()


def sources(files: Sequence[Path], folders: Sequence[Path]) -> dict[str, str]:
    """Import path → text of the named files and of everything that they import.

    Imports are looked up in `folders`, then beside the named files. A named file's import path is
    relative to the first folder that holds it. Raises Failure.
    """
    roots = [*(folder.resolve() for folder in folders), *(file.resolve().parent for file in files)]
    found: dict[str, str] = {}
    waiting = [_import_path(file, roots) for file in files]
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        text = _read(name, roots, needed=name not in NAMES)
        if text is None:
            continue
        found[name] = text
        waiting += [path for path in IMPORT.findall(text) if not path.startswith(BUILT_IN)]
    return found


def _import_path(file: Path, roots: Sequence[Path]) -> str:
    if not file.is_file():
        raise usage(f"--proto {file}: no such file")
    whole = file.resolve()
    root = next(root for root in roots if whole.is_relative_to(root))  # its own folder is one of them
    return whole.relative_to(root).as_posix()


def _read(name: str, roots: Sequence[Path], *, needed: bool) -> str | None:
    for root in roots:
        file = root / name
        if file.is_file():
            try:
                return file.read_text(encoding="utf-8")
            except (OSError, UnicodeDecodeError) as error:
                raise Failure(Status.FAILED, f"{file} cannot be read: {error}") from None
    if not needed:  # it comes with Floe
        return None
    looked = ", ".join(dict.fromkeys(str(root) for root in roots))
    raise usage(f'import "{name}" is in none of {looked}; name its root with --proto-path')
