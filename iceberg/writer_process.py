"""The helper process of ProcessWriter: `python -m iceberg.writer_process`, spoken to through pipes."""

from __future__ import annotations

import traceback
from itertools import accumulate

import pyarrow as pa

from coordination.helper import serve
from iceberg import layout as layouts
from iceberg.layout import MissingSchemas
from iceberg.writer import write_file
from iceberg.writers import Answer, Request
from objectstore.batch import CorruptBatch


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
    serve(answer)


if __name__ == "__main__":
    main()
