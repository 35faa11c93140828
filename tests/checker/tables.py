"""Histories as Parquet, for judgements by Spark: tables `op`, `send`, `poll`, `fault`, `broker_log`.

Many histories share the tables: `run` names one. Values are JSON text, so that 1 and "1" stay two values.
Offsets that no client was told are null. Times are nanoseconds of the history's clock. `broker_log` is what
the log itself holds when the run is over, a row per batch, see Logged.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq

from tests.checker.operations import History, Send, Value

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
    "broker_log": pa.schema(
        [
            ("run", TEXT), ("key", TEXT), ("kind", TEXT), ("base_offset", LONG), ("next_offset", LONG),
            ("producer", LONG), ("epoch", LONG), ("sequence", LONG), ("transactional", pa.bool_()),
            ("stamp_ms", LONG), ("offsets", pa.list_(LONG)), ("values", pa.list_(TEXT)),
            ("merged_to", LONG), ("compacted_to", LONG), ("stable", LONG),
        ]
    ),
}  # fmt: skip

Kind = Literal["records", "commit", "abort", "bounds"]


@dataclass(frozen=True, slots=True)
class Logged:
    """A batch of a partition, or the partition itself.

    `records`: base and next offset, producer and epoch (-1: none), the first record's sequence number, the
    records. `commit`, `abort`: the marker of a transaction's end, and its stamp, which all partitions share.
    `bounds`: log start and high watermark, and up to where it is merged, compacted, and stable.
    """

    key: str
    kind: Kind
    base_offset: int
    next_offset: int
    producer: int = -1
    epoch: int = -1
    sequence: int = -1
    transactional: bool = False
    stamp_ms: int = -1
    records: tuple[tuple[int, Value], ...] = ()
    merged_to: int = 0
    compacted_to: int = 0
    stable: int = -1


def write(
    histories: Mapping[str, History],
    folder: Path,
    faults: Iterable[str] = (),
    logs: Mapping[str, Sequence[Logged]] | None = None,
) -> None:
    """Write the tables into the folder. `faults`: what was done to the cluster, in order, in every run.

    `logs`: what the log holds at a run's end, where that is known.
    """
    folder.mkdir(parents=True, exist_ok=True)
    told = list(faults)
    writers = {name: pq.ParquetWriter(folder / f"{name}.parquet", s) for name, s in SCHEMAS.items()}
    try:
        for run, history in histories.items():
            rows = _rows(run, history)
            rows["fault"] = [{"run": run, "number": n, "what": what} for n, what in enumerate(told)]
            rows["broker_log"] = [_logged(run, each) for each in (logs or {}).get(run, ())]
            for name, schema in SCHEMAS.items():
                writers[name].write_table(pa.Table.from_pylist(rows[name], schema))
    finally:
        for writer in writers.values():
            writer.close()


def _logged(run: str, row: Logged) -> dict[str, Any]:
    told = {name: getattr(row, name) for name in Logged.__slots__ if name != "records"}
    offsets, values = [offset for offset, _ in row.records], [json.dumps(value) for _, value in row.records]
    return {"run": run, **told, "offsets": offsets, "values": values}


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
                sent = json.dumps(micro.value)
                rows["send"].append({**place, "key": micro.key, "value": sent, "offset": micro.offset})
                continue
            for key, records in micro.records.items():
                for turn, (offset, value) in enumerate(records):
                    row = {**place, "turn": turn, "key": key, "value": json.dumps(value), "offset": offset}
                    rows["poll"].append(row)
    return rows
