"""The text being generated: lines, indentation, fresh names, and the packing formats a module uses."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

FORMATS = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "int64": "q",
    "float64": "d",
    "uuid": "16s",
}
SIZES = {"?": 1, "b": 1, "B": 1, "x": 1, "h": 2, "H": 2, "i": 4, "q": 8, "d": 8, "16s": 16}
_LETTERS = {"?": "t", "16s": "u"}


class Formats:
    """The precompiled formats of one module. Runs of fixed-size fields share one each."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}

    def use(self, verb: str, codes: list[str]) -> str:
        """Name of the packing (`put`) or unpacking (`get`) function of these struct codes."""
        name = f"_{verb}_" + "".join(_LETTERS.get(code, code) for code in codes)
        method = "unpack_from" if verb == "get" else "pack"
        self._names[name] = f'{name} = Struct(">{"".join(codes)}").{method}'
        return name

    def lines(self) -> list[str]:
        """One definition per format, in a stable order."""
        return [self._names[name] for name in sorted(self._names)]


class Source:
    """Lines of one function under construction."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._depth = 1
        self._counts: dict[str, int] = {}

    def emit(self, *lines: str) -> None:
        """Append lines at the present depth."""
        self.lines.extend("    " * self._depth + line for line in lines)

    def fresh(self, prefix: str) -> str:
        """A name that this function does not use yet."""
        self._counts[prefix] = self._counts.get(prefix, 0) + 1
        return f"{prefix}{self._counts[prefix]}"

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Emit a line that opens a block; what is emitted inside stands deeper."""
        self.emit(head)
        self._depth += 1
        yield
        self._depth -= 1
