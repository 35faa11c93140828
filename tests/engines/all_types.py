"""The table of all types: one row with each at its extremes, one with nothing set, a tombstone."""

from __future__ import annotations

from typing import Any

from tests.engines.question import AT, Question
from tests.unit.schema import samples

_MAKE = samples.message_type(samples.ZOO, "zoo.All").message_class


def full() -> bytes:
    """The first row's value."""
    row: Any = _MAKE(
        f_double=-1.5e300, f_float=0.25, f_int32=-(1 << 31), f_int64=-(1 << 63), f_uint32=(1 << 32) - 1,
        f_uint64=(1 << 64) - 1, f_bool=True, f_string="Ω\0\U0001f40c", f_bytes=b"\xff\x00", f_enum=2,
        o_int32=0, many_uint64=[0, (1 << 64) - 1], many_string=["", "x"], by_number={2: "two", -1: ""},
        colours=[0, 2], c_string="", w_int64={"value": 0},
    )  # fmt: skip
    row.leaf.name, row.leaf.numbers[:] = "leaf", [1, -1]
    row.leaves.add(name="first")
    row.leaves.add(name="", numbers=[7])
    row.by_name["k"].name = "named"
    row.at.FromDatetime(AT.replace(tzinfo=None))
    row.took.FromMicroseconds(-1)
    content: bytes = row.SerializeToString()
    return content


def _ask(name: str, what: str, *columns: tuple[Any, ...]) -> Question:
    """A column is its path and its value in each of the three rows."""
    paths, *rows = zip(*columns, strict=True)
    return Question(name, what, "types", paths, [list(row) for row in rows])


_NUMBERS = ("f_double", "f_float", "f_int32", "f_int64", "f_uint32", "f_bool", "f_string", "f_bytes")

_FIRST = (-1.5e300, 0.25, -(1 << 31), str(-(1 << 63)), (1 << 32) - 1, True, "Ω\0\U0001f40c", "ff00")
_SECOND = (0.0, 0.0, 0, 0, 0, False, "", "")
_TIMES = [f"2023-11-14T22:13:20.00{at}000" for at in range(3)]
QUESTIONS = [
    _ask(
        "scalars",
        "numbers, text and bytes at their extremes, and unset ones",
        *[(f"value.{n}", a, b, None) for n, a, b in zip(_NUMBERS, _FIRST, _SECOND, strict=True)],
    ),
    _ask(
        "unsigned",
        "uint64 as decimal(20, 0), alone and in a list",
        ("value.f_uint64", str((1 << 64) - 1), "0", None),
        ("value.many_uint64", ["0", str((1 << 64) - 1)], [], None),
    ),
    _ask(
        "times",
        "timestamps to the microsecond, with their zone; durations as microseconds",
        ("kafka.timestamp", *_TIMES),
        ("value.at", AT.replace(tzinfo=None).isoformat(), None, None),
        ("value.took", -1, None, None),
    ),
    _ask(
        "presence",
        "null against default: optional, oneof, wrappers, enums by name",
        ("value.o_int32", 0, None, None),
        ("value.c_string", "", None, None),
        ("value.c_int64", None, None, None),
        ("value.w_int64", 0, None, None),
        ("value.f_enum", "BLUE", "NONE", None),
    ),
    _ask(
        "structs",
        "a message inside a message",
        ("value.leaf.name", "leaf", None, None),
        ("value.leaf.numbers", [1, -1], None, None),
    ),
    _ask(
        "lists",
        "repeated scalars, enums and messages, empty ones",
        ("value.many_string", ["", "x"], [], None),
        ("value.colours", ["NONE", "BLUE"], [], None),
        (
            "value.leaves",
            [
                {"name": "first", "numbers": [], "colour": "NONE"},
                {"name": "", "numbers": [7], "colour": "NONE"},
            ],
            [],
            None,
        ),
    ),
    _ask(
        "maps",
        "maps of scalars and of messages",
        ("value.by_number", [[-1, ""], [2, "two"]], [], None),
        ("value.by_name", [["k", {"name": "named", "numbers": [], "colour": "NONE"}]], [], None),
    ),
    _ask(
        "headers",
        "headers of a record, its key's bytes",
        ("headers", *[[{"key": "h", "value": str(at).encode().hex()}] for at in range(3)]),
        ("key.__raw__", *[f"k{at}".encode().hex() for at in range(3)]),
    ),
    _ask(
        "tombstones",
        "a tombstone's value is null, an empty message's is not",
        ("value.__raw__", full().hex(), "", None),
        ("value.__err__", None, None, None),
    ),
]


def of_version_3(table: str) -> list[Question]:
    """The same of a table of format version 3 with these three rows, and the first of them once more."""
    return [
        _together("version 3", "format version 3, compacted: single values", table, "scalars", "presence"),
        _together("version 3 nested", "… structs, lists, maps", table, "structs", "lists", "maps"),
    ]


def _together(name: str, what: str, table: str, *of: str) -> Question:
    """Several questions of one table as one."""
    some = [each for each in QUESTIONS if each.name in of]
    paths = tuple(path for each in some for path in each.paths)
    rows = [[value for each in some for value in each.expected[at]] for at in (0, 1, 2, 0)]
    return Question(name, what, table, paths, rows)
