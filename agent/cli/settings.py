"""`floe config`: what is in force, and where each value came from."""

from __future__ import annotations

from typing import Annotated

import typer

from agent.cli.options import Assignments, ConfigFile, Form, Output
from agent.cli.output import print_json, print_table
from agent.config import in_force, load


def config(
    file: ConfigFile = None,
    assign: Assignments = None,
    changed: Annotated[bool, typer.Option("--changed", help="Only what is not a default.")] = False,
    output: Output = Form.TABLE,
) -> None:
    """Print the settings in force and the source of each, secrets masked; refuse wrong ones (status 3)."""
    rows = [row for row in in_force(load(file, assign or ())) if not changed or row[2] != "default"]
    if output is Form.JSON:
        print_json([{"setting": name, "value": value, "from": origin} for name, value, origin in rows])
    else:
        print_table(("setting", "value", "from"), rows)
