"""The native walk over a chunk's batches: what it is given, and what it does when that is odd.

What it does with a log's entries is compared with chunks.py's own in tests/property/test_appending.py.
"""

from __future__ import annotations

import gc
import re
import shutil
import subprocess
import sys
from array import array
from pathlib import Path
from typing import Any

import pytest

from coordination.state import bounds, chunks
from coordination.state.chunk_table import ChunkTable
from coordination.state.slices import ROW, SliceIndex
from coordination.state.types import Partition, ProducerEntry, Topic
from objectstore import native
from tests.equipment.appending import WALKS

LONG, HIGH = (1 << 32) - 1, (1 << 63) - 1
SOURCE = Path(chunks.__file__).with_name("_appending.c")
natively = pytest.mark.parametrize("walk", WALKS.values(), ids=WALKS)
OF_THE_COMPILER = {"memmove", "memcpy", "__stack_chk_fail", "__cxa_finalize", "__gmon_start__"}
NOT_OF_APPLY = re.compile("PyRun_|PyImport_|PySys_|PyFile_|PyOS_|Time|Hash|Random|Eval_")


class Rig:
    """One partition with one producer that wrote five batches of ten records."""

    def __init__(self) -> None:
        self.partition = Partition(0, Topic("t", bytes(16), {}, 0), 0, SliceIndex(ChunkTable()))
        self.partition.high_watermark = 50
        self.entry = self.partition.producers[7] = ProducerEntry(0, 0)
        self.entry.freezes, self.entry.last_sequence = 3, 49
        self.entry.recent = array("q", [0, 0, 10, 10, 20, 20, 30, 30, 40, 40])
        self.partitions: list[Any] = [self.partition, None]
        self.base_offsets: list[int] = []

    def walk(self, walk: Any, *rows: tuple[Any, ...], **other: Any) -> Any:
        """Rows: handle, length, offsets, newest, producer, epoch, sequence, part."""
        said: dict[str, Any] = {
            "place": 0,
            "position": 64,
            "before": None,
            "serial": 9,
            "freezes": 3,
            "now_ms": 5,
        }
        said |= other
        columns = tuple(list(column) for column in zip(*rows, strict=True))
        return walk(
            self.partitions, columns, said["place"], said["position"], said["before"], said["serial"],
            said["freezes"], said["now_ms"], self.base_offsets,
        )  # fmt: skip

    def untouched(self) -> bool:
        """Whether nothing was appended."""
        empty = (
            not self.partition.slices.rows and not self.base_offsets and not self.partition.slices.size_bytes
        )
        return empty and self.entry.last_sequence == 49 and self.entry.recent[0] == 0


FOLLOWS = (0, 100, 10, 1, 7, 0, 50, 0)
PLAIN = (0, 100, 10, 1, -1, -1, -1, 0)


def test_where_a_compiler_is_batches_are_appended_natively() -> None:
    assert chunks.NATIVE or shutil.which("cc") is None or not native.allowed()


@natively
def test_what_follows_is_appended(walk: Any) -> None:
    rig = Rig()
    told = rig.walk(walk, FOLLOWS, (0, 5, 1, 9, -1, -1, -1, 0), (1, 1, 1, 1, -1, -1, -1, 0))
    assert told == (2, 64 + 105, rig.partition, 1)
    assert rig.base_offsets == [50, 60]
    assert ROW.unpack(rig.partition.slices.rows) == (61, 9, 64, 105, 9)
    assert (rig.partition.high_watermark, rig.partition.slices.size_bytes) == (61, 105)
    assert (rig.entry.last_sequence, rig.entry.last_timestamp) == (59, 5)
    assert rig.entry.recent == array("q", [10, 10, 20, 20, 30, 30, 40, 40, 50, 50])


@natively
@pytest.mark.parametrize(
    "row",
    [
        (1, *PLAIN[1:]), (2, *PLAIN[1:]), (-1, *PLAIN[1:]), (HIGH, *PLAIN[1:]), (1 << 70, *PLAIN[1:]),
        (0, -1, *PLAIN[2:]), (0, LONG + 1, *PLAIN[2:]), (0, "x", *PLAIN[2:]), (0, 1 << 70, *PLAIN[2:]),
        (0, 1, 0, *PLAIN[3:]), (0, 1, -1, *PLAIN[3:]), (0, 1, bounds.OFFSET_MAX - 49, *PLAIN[3:]),
        (0, 1, HIGH, *PLAIN[3:]), (0, 1, 1, 1 << 63, *PLAIN[4:]), (0, 1, 1, None, *PLAIN[4:]),
        (*FOLLOWS[:4], 8, 0, 50, 0), (*FOLLOWS[:4], 7, 1, 50, 0), (*FOLLOWS[:4], 7, 0, 51, 0),
        (*FOLLOWS[:4], 7, 0, 40, 0), (*FOLLOWS[:4], 7, 0, -1, 0), (*FOLLOWS[:7], 1), (*PLAIN[:7], 2),
        (*FOLLOWS[:4], True, 0, 50, 0), (*FOLLOWS[:4], 7, 0.0, 50, 0),
    ],
)  # fmt: skip
def test_what_needs_a_decision_is_left_alone(walk: Any, row: tuple[Any, ...]) -> None:
    rig = Rig()
    assert rig.walk(walk, row) == (0, 64, None, 0)
    assert rig.untouched()


@natively
def test_a_batch_that_just_fits_is_appended(walk: Any) -> None:
    rig = Rig()
    told = rig.walk(walk, (0, LONG, bounds.OFFSET_MAX - 50, HIGH, -1, -1, -1, 0), position=LONG)
    assert told == (1, 2 * LONG, rig.partition, 1)
    assert ROW.unpack(rig.partition.slices.rows) == (bounds.OFFSET_MAX, 9, LONG, LONG, HIGH)


@natively
@pytest.mark.parametrize(
    ("owner", "name", "value"),
    [
        ("partition", "high_watermark", -1), ("partition", "high_watermark", 1 << 80),
        ("partition", "high_watermark", "50"), ("partition", "begins_span", True),
        ("partition", "begins_span", None), ("partition", "transactions", ()), ("partition", "producers", ()),
        ("partition", "slices", None), ("entry", "freezes", 2), ("entry", "epoch", None),
        ("entry", "last_sequence", 1 << 80), ("slices", "rows", b""), ("slices", "size_bytes", -1),
        ("slices", "size_bytes", HIGH),
    ],
)  # fmt: skip
def test_a_state_that_is_not_as_usual_is_left_alone(walk: Any, owner: str, name: str, value: Any) -> None:
    rig = Rig()
    setattr(rig.partition.slices if owner == "slices" else getattr(rig, owner), name, value)
    assert rig.walk(walk, FOLLOWS) == (0, 64, None, 0)
    assert rig.base_offsets == []


@natively
@pytest.mark.parametrize("name", ["high_watermark", "producers", "slices", "begins_span", "transactions"])
def test_a_slot_with_nothing_in_it_is_left_alone(walk: Any, name: str) -> None:
    rig = Rig()
    delattr(rig.partition, name)
    assert rig.walk(walk, FOLLOWS) == (0, 64, None, 0)
    rig = Rig()
    delattr(rig.entry, {"high_watermark": "epoch", "producers": "recent"}.get(name, "last_sequence"))
    assert rig.walk(walk, FOLLOWS) == (0, 64, None, 0)


@natively
def test_a_row_is_not_lengthened_beyond_what_it_holds_nor_where_there_is_none(walk: Any) -> None:
    rig = Rig()
    assert rig.walk(walk, PLAIN, before=rig.partition) == (0, 64, rig.partition, 0)
    rig.partition.slices.rows += ROW.pack(50, 9, 0, LONG - 99, 1)
    assert rig.walk(walk, PLAIN, before=rig.partition) == (0, 64, rig.partition, 0)
    assert rig.walk(walk, (0, 99, *PLAIN[2:]), before=rig.partition) == (1, 163, rig.partition, 0)
    assert ROW.unpack(rig.partition.slices.rows) == (60, 9, 0, LONG, 1)


@natively
@pytest.mark.parametrize("held", range(14))
def test_what_a_producer_is_remembered_by_grows_up_to_five_batches(walk: Any, held: int) -> None:
    rig = Rig()
    rig.entry.recent = array("q", range(held))
    rig.walk(walk, FOLLOWS)
    kept = list(range(held))[2 if held == chunks.REMEMBERED else 0 :]
    assert rig.entry.recent.tolist() == [*kept, 50, 50]


@natively
def test_sequences_wrap_at_their_end(walk: Any) -> None:
    rig = Rig()
    rig.entry.last_sequence = (1 << 31) - 5
    assert rig.walk(walk, (0, 1, 10, 1, 7, 0, (1 << 31) - 4, 0))[0] == 1
    assert rig.entry.last_sequence == 5
    assert rig.walk(walk, (0, 1, 1, 1, 7, 0, 6, 0))[0] == 1
    rig.entry.last_sequence = (1 << 31) - 1
    assert rig.walk(walk, (0, 1, 10, 1, 7, 0, 0, 0))[0] == 1
    assert rig.entry.last_sequence == 9


@natively
@pytest.mark.parametrize("position", [-1, LONG + 1, HIGH])
def test_a_position_that_no_row_holds_is_left_alone(walk: Any, position: int) -> None:
    rig = Rig()
    assert rig.walk(walk, PLAIN, position=position) == (0, position, None, 0)
    assert rig.untouched()


@natively
def test_rows_that_somebody_reads_are_not_moved(walk: Any) -> None:
    rig = Rig()
    rig.partition.slices.rows += bytes(32)
    with memoryview(rig.partition.slices.rows), pytest.raises(BufferError):
        rig.walk(walk, PLAIN)


@natively
@pytest.mark.parametrize(
    "given",
    [
        (), ([],) * 9, ((), ((),) * 8, 0, 0, None, 0, 0, 0, []), ([], ([],) * 7, 0, 0, None, 0, 0, 0, []),
        ([], ([1], *[[]] * 7), 0, 0, None, 0, 0, 0, []), ([], ([],) * 8, "0", 0, None, 0, 0, 0, []),
        ([], ([],) * 8, 0, None, None, 0, 0, 0, []), ([], ([],) * 8, 0, 0, None, 0, 0, 0, ()),
        ([], (*[[]] * 7, (1,)), 0, 0, None, 0, 0, 0, []), ([], ([],) * 8, -1, 0, None, 0, 0, 0, []),
        ([], ([],) * 8, 0, 1 << 63, None, 0, 0, 0, []), ([], ([],) * 8, 1 << 80, 0, None, 0, 0, 0, []),
    ],
)  # fmt: skip
def test_arguments_of_another_kind_are_refused(walk: Any, given: tuple[Any, ...]) -> None:
    with pytest.raises((TypeError, ValueError, OverflowError)):
        walk(*given)


@natively
def test_a_place_behind_the_last_batch_is_no_batch(walk: Any) -> None:
    assert Rig().walk(walk, FOLLOWS, place=9) == (9, 64, None, 0)


@natively
def test_classes_are_learnt_or_refused(walk: Any) -> None:
    from coordination.state import _appending

    class Odd:
        __slots__ = ("begins_span", "high_watermark", "producers", "slices")  # and no transactions

    known = (ProducerEntry, SliceIndex, bounds.OFFSET_MAX)
    for given in (
        (),
        (1, *known, 10),
        (Partition, *known, 9),
        (Partition, *known, 0),
        (Partition, *known, None),
    ):
        with pytest.raises((TypeError, ValueError)):
            _appending.bind(*given)  # type: ignore[arg-type]  # that is what is tried
    with pytest.raises(AttributeError):
        _appending.bind(Odd, *known, 10)  # type: ignore[arg-type]  # likewise
    _appending.bind(Partition, *known, chunks.REMEMBERED)
    assert Rig().walk(walk, FOLLOWS)[0] == 1


@natively
def test_nothing_is_kept_by_a_hundred_thousand_walks(walk: Any) -> None:
    """Of objects that are counted; the state's own growth is taken away again."""
    rig, now_ms, counted = Rig(), 1 << 40, []
    for number in range(100_000):
        rig.entry.last_sequence, rig.partition.high_watermark = 49, 50
        rig.walk(walk, FOLLOWS, PLAIN, (1, *PLAIN[1:]), now_ms=now_ms)
        del rig.partition.slices.rows[:], rig.base_offsets[:]
        if number % 20_000 == 9_999:
            gc.collect()
            counted.append(
                (sys.getallocatedblocks(), sys.getrefcount(now_ms), sys.getrefcount(rig.partition))
            )
    assert max(blocks for blocks, *_ in counted) - counted[0][0] < 100, counted
    assert len({one[1:] for one in counted}) == 1, counted


@natively
def test_the_walk_calls_objects_and_nothing_else(walk: Any) -> None:
    """As test_purity.py has it of the Python: no I/O, no clock, no entropy. What is linked says so."""
    from coordination.state import _appending

    assert set(re.findall(r"#include (\S+)", SOURCE.read_text())) == {
        "<Python.h>",
        "<stdint.h>",
        "<string.h>",
    }
    nm = shutil.which("nm")
    assert nm is not None, "nm comes with every compiler"
    told = subprocess.run(
        [nm, "-D", "--undefined-only", str(_appending.__file__)], check=True, capture_output=True, text=True
    )
    symbols = {line.split()[-1].split("@")[0] for line in told.stdout.splitlines()}
    assert "PyByteArray_Resize" in symbols
    others = {one for one in symbols if not re.match("_?Py", one) and not one.startswith("_ITM_")}
    assert others <= OF_THE_COMPILER
    assert not [one for one in symbols if NOT_OF_APPLY.search(one)]


@pytest.mark.parametrize("value", ["0", "1", ""])
def test_the_environment_has_a_process_do_without(value: str) -> None:
    code = (
        "from coordination.state import chunks\nfrom objectstore import batch, columns\n"
        "print(chunks.NATIVE, batch.NATIVE, columns.NATIVE)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True,
        env={native.VARIABLE: value}, cwd=SOURCE.parents[2],
    )  # fmt: skip
    compiled = chunks.NATIVE or (not native.allowed() and shutil.which("cc") is not None)
    assert done.stdout.split() == [str(compiled and value != "0")] * 3
