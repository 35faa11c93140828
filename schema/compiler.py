"""Compiles `.proto` sources at run time into a self-contained descriptor set.

The compiler is C++ code that reads text from outside, so it runs in a helper process with a deadline:
a source that crashes or hangs it ends the helper, not the agent.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from schema import compiling

FILES_MAX = 256
"""Source files per compilation."""

SOURCE_BYTES_MAX = 4 << 20
"""Bytes of all source files together."""

NAME_LENGTH_MAX = 1024
"""Of a source's name, characters."""
PART_BYTES_MAX = 255
"""Of a folder or a file in it, as file systems have it, bytes."""

COMPILE_SECONDS_MAX = 30.0
"""Deadline of one compilation, seconds."""

_PROBLEM = re.compile(r"^(?P<file>[^:\n]+\.proto):(?:(?P<line>\d+):(?P<column>\d+):)?\s*(?P<reason>.+)$")


@dataclass(frozen=True, slots=True)
class Problem:
    """One complaint of the compiler. `line` and `column` count from 1; 0 when it concerns the whole file."""

    file: str
    line: int
    column: int
    reason: str

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}:{self.column}" if self.line else self.file
        return f"{place}: {self.reason}"


class CompileError(ValueError):
    """The sources are not valid protobuf; `problems` has one element per complaint."""

    def __init__(self, problems: list[Problem]) -> None:
        super().__init__("\n".join(str(problem) for problem in problems))
        self.problems = problems


def compile_protos(files: Mapping[str, bytes], compiled: bytes = b"") -> bytes:
    """Compile sources, given by import path, into a serialized FileDescriptorSet with all imports.

    The imports of google/protobuf/*.proto need not be given; what else is not among the sources is looked
    for in `compiled`, a serialized FileDescriptorSet. Blocks for a few ms, and 0.2 s where a process
    has to be started (compiling.py): call it in a thread. Raises CompileError with file, line and reason,
    OSError where its temporary folder cannot be written.
    """
    _check_sources(files)
    with tempfile.TemporaryDirectory(prefix="floe-protos-") as folder:
        root = Path(folder, "in")
        for name, content in files.items():
            target = root / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)
        given = []
        if compiled:
            known = Path(folder, "known.bin")
            known.write_bytes(compiled)
            given = [f"--descriptor_set_in={known}"]
        output = Path(folder, "out.bin")
        _run(folder, output, sorted(files), given)
        return output.read_bytes()


def _run(folder: str, output: Path, names: list[str], given: list[str]) -> None:
    errors = Path(folder, "errors.txt")
    arguments = ["--proto_path=.", "--include_imports", f"--descriptor_set_out={output}", *given, *names]
    errors.touch()
    try:
        # in the folder of the sources, so that messages hold the import paths and nothing before them
        done = compiling.run(str(Path(folder, "in")), str(errors), arguments, COMPILE_SECONDS_MAX)
    except compiling.Hung:
        raise CompileError(
            [Problem(names[0], 0, 0, f"not compiled within {COMPILE_SECONDS_MAX:.0f} s")]
        ) from None
    if done.status != 0 or not output.exists():
        raise CompileError(_problems(done.told, names[0]))


def _problems(text: str, default_file: str) -> list[Problem]:
    problems = []
    for line in text.splitlines():
        match = _PROBLEM.match(line)
        if match and "warning:" not in match["reason"]:
            position = int(match["line"] or 0), int(match["column"] or 0)
            problems.append(Problem(match["file"], *position, match["reason"].strip()))
    return problems or [Problem(default_file, 0, 0, text.strip() or "the compiler ended without a reason")]


def _check_sources(files: Mapping[str, bytes]) -> None:
    if not files:
        raise CompileError([Problem("", 0, 0, "no source file given")])
    if len(files) > FILES_MAX:
        raise CompileError([Problem("", 0, 0, f"{len(files)} source files: the limit is {FILES_MAX}")])
    size = sum(len(content) for content in files.values())
    if size > SOURCE_BYTES_MAX:
        raise CompileError([Problem("", 0, 0, f"{size} bytes of source: the limit is {SOURCE_BYTES_MAX}")])
    folders = {str(folder) for name in files for folder in PurePosixPath(name).parents}
    for name in files:
        if not _is_import_path(name) or name in folders:
            raise CompileError(
                [Problem(name, 0, 0, "a source's name is a relative import path like a/b.proto")]
            )


def _is_import_path(name: str) -> bool:
    """Whether it names a file within a folder, wherever that is."""
    path = PurePosixPath(name)
    clean = str(path) == name and not path.is_absolute() and ".." not in path.parts
    plain = name.isprintable() and "\\" not in name and not name.startswith("-")
    short = len(name) <= NAME_LENGTH_MAX and all(
        len(part.encode(errors="replace")) <= PART_BYTES_MAX for part in path.parts
    )
    return clean and plain and short and name.endswith(".proto")
