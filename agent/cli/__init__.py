"""The command line: `floe`, or `python -m agent`."""

from agent.cli.app import main

__all__ = ["main"]
