"""Histories as Parquet, for judgements by Spark: tables `op`, `send`, `poll`, `fault`.

Many histories share the tables: `run` names one. Values are JSON text, so that 1 and "1" stay two values.
Offsets that no client was told are null. Times are nanoseconds of the history's clock.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.checker.operations import History, Send

TEXT, LONG = pa.string(), pa.int64()
PLACE = [("run", TEXT), ("op", LONG), ("position", LONG)]
SCHEMAS = {
    "op": pa.schema(
        [
            ("run", TEXT), ("op", LONG), ("process", LONG), ("f", TEXT), ("outcome", TEXT),
            ("keys", pa.list_(TEXT)), ("rebalanced", pa.list_(TEXT)), ("invoked_ns", LONG),
            ("completed_ns", LONG), ("error", TEXT),
        ]
    ),
    "send": pa.schema([*PLACE, ("key", TEXT), ("value", TEXT), ("offset", LONG)]),
    "poll": pa.schema([*PLACE, ("turn", LONG), ("key", TEXT), ("value", TEXT), ("offset", LONG)]),
    "fault": pa.schema([("run", TEXT), ("number", LONG), ("what", TEXT)]),
}  # fmt: skip


def write(histories: Mapping[str, History], folder: Path, faults: Iterable[str] = ()) -> None:
    """Write the tables into the folder. `faults`: what was done to the cluster, in order, in every run."""
    folder.mkdir(parents=True, exist_ok=True)
    told = list(faults)
    writers = {name: pq.ParquetWriter(folder / f"{name}.parquet", s) for name, s in SCHEMAS.items()}
    try:
        for run, history in histories.items():
            rows = _rows(run, history)
            rows["fault"] = [{"run": run, "number": n, "what": what} for n, what in enumerate(told)]
            for name, schema in SCHEMAS.items():
                writers[name].write_table(pa.Table.from_pylist(rows[name], schema))
    finally:
        for writer in writers.values():
            writer.close()


def _rows(run: str, history: History) -> dict[str, list[dict[str, Any]]]:
    rows: dict[str, list[dict[str, Any]]] = {name: [] for name in SCHEMAS}
    for op in history.operations:
        rows["op"].append(
            {
                "run": run,
                "op": op.index,
                "process": op.process,
                "f": op.f,
                "outcome": op.outcome,
                "keys": list(op.keys),
                "rebalanced": sorted(op.rebalanced),
                "invoked_ns": op.invoked_ns,
                "completed_ns": op.completed_ns,
                "error": op.error,
            }
        )
        for position, micro in enumerate(op.micro):
            place = {"run": run, "op": op.index, "position": position}
            if isinstance(micro, Send):
                value = json.dumps(micro.value)
                rows["send"].append({**place, "key": micro.key, "value": value, "offset": micro.offset})
                continue
            for key, records in micro.records.items():
                for turn, (offset, value) in enumerate(records):
                    row = {**place, "turn": turn, "key": key, "value": json.dumps(value), "offset": offset}
                    rows["poll"].append(row)
    return rows
