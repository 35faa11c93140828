"""The helper process of ProcessWriter: `python -m iceberg.writer_process`, spoken to through pipes."""

from __future__ import annotations

import gc
import traceback
from collections.abc import Sequence
from itertools import accumulate

import pyarrow as pa

from coordination.helper import serve
from iceberg import layout as layouts
from iceberg.layout import MissingSchemas
from iceberg.merging import Merge, UnfitFile
from iceberg.writer import FileContent, TooManyFiles, write_files
from iceberg.writers import Answer, Made, MergeRequest, Request
from objectstore.batch import CorruptBatch

YOUNG_MAX = 50_000
"""Objects between two looks for garbage: without the native walk (objectstore/columns.py) records are tuples
by the thousand, which live for one piece of rows and leave by themselves; to look through them every 700 took
an eighth of a file's time."""


_merges: dict[int, Merge] = {}
"""Merges that were begun: one at most of each topic that the agent commits at this moment."""


def answer(request: Request | MergeRequest, content: memoryview) -> tuple[Answer, list[memoryview]]:
    """Do what is asked for; the answer and the bytes that follow it."""
    return _merged(request, content) if isinstance(request, MergeRequest) else _written(request, content)


def _merged(request: MergeRequest, content: memoryview) -> tuple[Answer, list[memoryview]]:
    """One step of a merge. One that failed is of no use any more."""
    number = request.number
    try:
        if request.fields:
            _merges[number] = Merge(request.fields, request.partition, request.order, request.numbers)
        elif request.drop:
            _merges.pop(number, None)
        elif request.expected is not None:
            _merges[number].add(content, request.expected)
        else:
            return _files([_merges.pop(number).finish()])
    except UnfitFile as error:
        _merges.pop(number, None)
        return Answer(unfit=str(error)), []
    except Exception:  # as when a file is written
        _merges.pop(number, None)
        return Answer(failed=traceback.format_exc()), []
    return Answer(), []


def _written(request: Request, content: memoryview) -> tuple[Answer, list[memoryview]]:
    ends = list(accumulate(request.lengths))
    slices = [content[end - length : end] for end, length in zip(ends, request.lengths, strict=True)]
    try:
        layout = layouts.from_basis(request.basis)
        found = write_files(
            layout,
            request.partition,
            slices,
            request.start,
            request.end,
            request.aborted,
            request.spans,
            request.files_max,
        )
    except MissingSchemas as missing:
        return Answer(missing=missing), []
    except TooManyFiles:
        return Answer(too_many=True), []
    except CorruptBatch as error:
        return Answer(corrupt=str(error) or "corrupt batch"), []
    except Exception:  # the agent logs it and tries again; this process goes on
        return Answer(failed=traceback.format_exc()), []
    return _files(found)


def _files(found: Sequence[FileContent]) -> tuple[Answer, list[memoryview]]:
    return Answer(files=[Made.of(each) for each in found]), [part for each in found for part in each.parts]


def main() -> None:
    """Serve requests until the agent closes the pipe or is gone."""
    pa.set_cpu_count(1)
    gc.freeze()
    gc.set_threshold(YOUNG_MAX)
    serve(answer)


if __name__ == "__main__":
    main()
