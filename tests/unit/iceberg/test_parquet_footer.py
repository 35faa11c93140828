"""Footers of Parquet as values: written back to the letter, moved with their row groups, never a crash."""

from __future__ import annotations

import io
from random import Random
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from iceberg.parquet_footer import MAGIC, UnreadableFooter, footer_of, moved, stored_bytes, whole

DAMAGES = 3_000


def rows_of(seed: int, count: int) -> pa.Table:
    rng = Random(seed)
    inner = [
        None if rng.random() < 0.1 else {"x": rng.random(), "y": ["q"] * rng.randrange(3)}
        for _ in range(count)
    ]
    return pa.table(
        {
            "a": pa.array(range(count), pa.int64()),
            "s": pa.array(inner, pa.struct([("x", pa.float64()), ("y", pa.list_(pa.string()))])),
            "m": pa.array([[("k", rng.randrange(9))]] * count, pa.map_(pa.string(), pa.int32())),
            "b": pa.array([rng.random() < 0.5 for _ in range(count)]),
            **{f"c{n}": pa.array([rng.randrange(100)] * count) for n in range(20)},  # lists of 15 and more
        }
    )


def file_of(rows: pa.Table, **options: Any) -> memoryview:
    out = io.BytesIO()
    pq.write_table(rows, out, compression="zstd", row_group_size=100, store_schema=False, **options)
    return memoryview(out.getvalue())


@pytest.mark.parametrize("seed", range(5))
def test_a_footer_is_written_as_it_was_read(seed: int) -> None:
    content = file_of(rows_of(seed, 250 + seed), write_page_index=True)
    footer = footer_of(content)
    assert footer.rows == 250 + seed
    assert whole(footer, footer.groups) == content[footer.data_end :]
    sizes = [stored_bytes(each) for each in footer.groups]
    assert sum(sizes) <= footer.data_end
    assert len(sizes) == 3


@pytest.mark.parametrize("page_index", [False, True])
def test_row_groups_of_several_files_are_one_file(page_index: bool) -> None:
    tables = [rows_of(seed, 120 * seed + 7) for seed in range(1, 4)]
    out, groups, first = bytearray(MAGIC), [], None
    for rows in tables:
        content = file_of(rows, write_page_index=page_index)
        footer = footer_of(content)
        first = first or footer
        assert footer.alike(first)
        by = len(out) - len(MAGIC)
        out += content[len(MAGIC) : footer.data_end]
        groups += [moved(each, by, len(groups) + at) for at, each in enumerate(footer.groups)]
    assert first is not None
    made = bytes(out + whole(first, groups))
    together = pa.concat_tables(tables)
    assert pq.read_table(io.BytesIO(made)).equals(together)
    told = pq.ParquetFile(io.BytesIO(made)).metadata
    assert (told.num_rows, told.num_row_groups) == (together.num_rows, len(groups))
    assert not told.row_group(0).column(0).has_offset_index, "its offsets would be of the old file"


def test_another_engine_reads_it(tmp_path: Any) -> None:
    rows = rows_of(1, 250)
    content = file_of(rows)
    footer = footer_of(content)
    data = bytes(content[len(MAGIC) : footer.data_end])
    twice = [moved(each, by, 0) for by in (0, len(data)) for each in footer.groups]
    path = tmp_path / "twice.parquet"
    path.write_bytes(MAGIC + data + data + whole(footer, twice))
    query = f"SELECT count(*), sum(a), count(s.x), sum(len(s.y)) FROM '{path}'"
    once = "SELECT 2 * count(*), 2 * sum(a), 2 * count(s.x), 2 * sum(len(s.y)) FROM rows"
    assert duckdb.sql(query).fetchall() == duckdb.sql(once).fetchall()


def test_files_of_other_columns_are_not_alike() -> None:
    one, other = (
        rows_of(1, 10),
        rows_of(1, 10).rename_columns([each.upper() for each in rows_of(1, 10).column_names]),
    )
    assert footer_of(file_of(one)).alike(footer_of(file_of(rows_of(2, 99))))
    assert not footer_of(file_of(one)).alike(footer_of(file_of(other)))


@pytest.mark.parametrize(
    "content", [b"", b"PAR1", b"PAR1" * 3, b"PAR1" + bytes(8), b"PAR1\xff\xff\xff\x7fPAR1"]
)
def test_what_is_no_file_has_no_footer(content: bytes) -> None:
    with pytest.raises(UnreadableFooter):
        footer_of(memoryview(content))


def test_damage_is_an_unreadable_footer_or_another_one() -> None:
    content, rng = file_of(rows_of(3, 60)), Random(5)
    start, refused = footer_of(content).data_end, 0
    for _ in range(DAMAGES):
        damaged = bytearray(content)
        for _ in range(rng.randrange(1, 4)):
            damaged[rng.randrange(start, len(damaged))] = rng.choice(
                (0, 0x19, 0x1C, 0x80, 0xFF, rng.randrange(256))
            )
        try:
            footer_of(memoryview(damaged))
        except UnreadableFooter:
            refused += 1
    assert refused > DAMAGES / 4
