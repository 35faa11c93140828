"""The helper process of merging's Worker, `python -m agent.background.rewriting.merging.worker_process`."""

from __future__ import annotations

import os

from agent.background.rewriting.merging.worker import Session, answer_of
from iceberg.helper import serve

NICENESS = 10  # merging can wait, whoever produces and fetches cannot


def main() -> None:
    """Serve requests until the agent closes the pipe or is gone."""
    os.nice(NICENESS)
    session = Session()
    serve(lambda request, content: answer_of(session, request, content))


if __name__ == "__main__":
    main()
