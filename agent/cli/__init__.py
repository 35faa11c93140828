"""The command line: `floe`, or `python -m agent`. What a command needs is imported when it is asked for."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import NoReturn

from agent.version import VERSION


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run one command and leave with its exit status. Never shows a traceback."""
    if list(sys.argv[1:] if arguments is None else arguments) == ["--version"]:
        print(VERSION)
        sys.exit(0)
    from agent.cli.app import main as run

    run(arguments)
