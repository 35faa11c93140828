"""The helper process of ProcessWriter: `python -m iceberg.writer_process`, spoken to through pipes."""

from __future__ import annotations

import gc
import traceback
from itertools import accumulate

import pyarrow as pa

from coordination.helper import serve
from iceberg import layout as layouts
from iceberg.layout import MissingSchemas
from iceberg.writer import write_file
from iceberg.writers import Answer, Request
from objectstore.batch import CorruptBatch

YOUNG_MAX = 50_000
"""Objects between two looks for garbage: records are tuples by the thousand, which live for one piece of rows
and leave by themselves; to look through them every 700 took an eighth of a file's time."""


def answer(request: Request, content: memoryview) -> tuple[Answer, list[memoryview]]:
    """Write the file that is asked for; the answer and the bytes that follow it."""
    ends = list(accumulate(request.lengths))
    slices = [content[end - length : end] for end, length in zip(ends, request.lengths, strict=True)]
    try:
        layout = layouts.from_basis(request.basis)
        start, end = request.start, request.end
        found = write_file(layout, request.partition, slices, start, end, request.aborted, request.spans)
    except MissingSchemas as missing:
        return Answer(missing=[*missing.schema_ids]), []
    except CorruptBatch as error:
        return Answer(corrupt=str(error) or "corrupt batch"), []
    except Exception:  # the agent logs it and tries again; this process goes on
        return Answer(failed=traceback.format_exc()), []
    if found is None:
        return Answer(), []
    content = found.content
    return Answer(rows=found.rows, bounds=found.bounds, split_offsets=found.split_offsets), [content]


def main() -> None:
    """Serve requests until the agent closes the pipe or is gone."""
    pa.set_cpu_count(1)
    gc.freeze()
    gc.set_threshold(YOUNG_MAX)
    serve(answer)


if __name__ == "__main__":
    main()
