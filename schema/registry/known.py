"""Protobuf files that every schema may import without a reference.

google/protobuf/*.proto come with the compiler; Confluent's, protovalidate's and Floe's own are in protos/.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from google.protobuf import descriptor_pb2

from schema.compiler import compile_protos

_FOLDER = Path(__file__).parent / "protos"
_PLACES = {
    "buf/validate/validate.proto": "buf_validate.proto",
    "floe/redact.proto": "floe_redact.proto",
    "confluent/meta.proto": "confluent_meta.proto",
    "confluent/type/decimal.proto": "confluent_decimal.proto",
    "confluent/types/decimal.proto": "confluent_decimal_before.proto",
}
_WITH_THE_COMPILER = tuple(
    f"google/protobuf/{name}.proto"
    for name in (
        *("any", "api", "descriptor", "duration", "empty", "field_mask", "source_context", "struct"),
        *("timestamp", "type", "wrappers"),
    )
)
_IMPORT = re.compile(rb"""\bimport\s+(?:public\s+|weak\s+|option\s+)?["']([^"'\n]+)["']""")
NAMES = frozenset({*_PLACES, *_WITH_THE_COMPILER})
"""Import paths."""


def with_imports(names: Iterable[str]) -> dict[str, bytes]:
    """Those of the names that are known, and what they import: FileDescriptorProtos by import path.

    Blocks for about 0.2 s the first time: the compiler runs. Raises CompileError and OSError as it does.
    """
    found: dict[str, bytes] = {}
    waiting = [name for name in names if name in NAMES]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found[name], imports = _compiled()[name]
            waiting += imports
    return found


def imported_by(sources: Mapping[str, bytes]) -> bytes:
    """A FileDescriptorSet of the known files that sources import and that are not among them.

    Empty where there are none. Blocks and raises as `with_imports`.
    """
    names = {name.decode() for text in sources.values() for name in _IMPORT.findall(text)} & _PLACES.keys()
    files = with_imports(sorted(names - sources.keys())) if names - sources.keys() else {}
    made = descriptor_pb2.FileDescriptorSet()
    for name, content in files.items():
        if name not in sources:
            made.file.add().ParseFromString(content)
    return made.SerializeToString()


@functools.cache
def _compiled() -> dict[str, tuple[bytes, tuple[str, ...]]]:
    """Each known file with what it imports."""
    files = {name: (_FOLDER / place).read_bytes() for name, place in _PLACES.items()}
    imports = "".join(f'import "{name}";\n' for name in _WITH_THE_COMPILER)
    all_of_them = compile_protos({**files, "all.proto": f'syntax = "proto3";\n{imports}'.encode()})
    compiled = descriptor_pb2.FileDescriptorSet.FromString(all_of_them).file
    return {file.name: (file.SerializeToString(), tuple(file.dependency)) for file in compiled}
