"""The helper process of HelperWorker, `python -m agent.background.rewriting.compaction.worker_process`."""

from __future__ import annotations

import os
import traceback

from agent.background.rewriting.compaction.worker import Failed, Session
from iceberg.helper import serve

NICENESS = 10  # compaction can wait, whoever produces and fetches cannot


def main() -> None:
    """Serve requests until the agent closes the pipe or is gone."""
    os.nice(NICENESS)
    session = Session()

    def answer(request: object, content: memoryview) -> tuple[object, list[memoryview]]:
        try:
            return session.answer(request, content)
        except Exception:  # the agent logs it and gives the partition up for now; this process goes on
            return Failed(traceback.format_exc()), []

    serve(answer)


if __name__ == "__main__":
    main()
