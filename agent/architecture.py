"""The pictures of docs/architecture.md, drawn from the code's own tables by `python -m agent.architecture`.

A test keeps the page fresh: what the tables say is what the page shows.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import groupby
from pathlib import Path

from agent.kafka.handlers import HANDLERS
from agent.net.wire.api import APIS
from coordination.state.state import HANDLERS as COMMANDS
from coordination.steps import COPY_STEPS, MOVE_STEPS, RESTORE_STEPS, STEPS
from iceberg.steps import STEPS as TABLE_STEPS
from iceberg.upsert.steps import STEPS as LATEST_STEPS

PAGE = Path(__file__).resolve().parents[1] / "docs" / "architecture.md"
BEGIN = "<!-- drawn by `python -m agent.architecture` -->"
END = "<!-- end of the drawing -->"


def render() -> str:
    """The whole page, with the drawing between its marks made anew."""
    text = PAGE.read_text()
    head, rest = text.split(BEGIN)
    return f"{head}{BEGIN}\n\n{_drawing()}\n{END}{rest.split(END)[1]}"


def _drawing() -> str:
    return "\n".join([*_requests(), *_commands(), *_paths()])


def _requests() -> list[str]:
    """What comes in: the Kafka APIs."""
    names = ", ".join(APIS[key].name for key in sorted(HANDLERS))
    return ["**Kafka requests that are answered** (`agent/kafka/handlers`):", "", names + ".", ""]


def _commands() -> list[str]:
    """What is decided: commands by the module of the state machine that applies them."""
    by_module: dict[str, list[str]] = defaultdict(list)
    for kind, handler in COMMANDS.items():
        by_module[handler.__module__.rpartition(".")[2]].append(kind)
    lines = [
        f'    LOG --> {module}["{module}<br/>{"<br/>".join(kinds)}"]' for module, kinds in by_module.items()
    ]
    title = "**Commands of the log and who applies them** (`coordination/state`):"
    return [title, "", "```mermaid", "flowchart LR", '    LOG(["entry of the log"])', *lines, "```", ""]


def _paths() -> list[str]:
    """The long ways, step by step: a death between any two of them loses nothing."""
    where = "`coordination/steps.py`, `iceberg/steps.py`, `iceberg/upsert/steps.py`"
    title = f"**Steps between which an agent may die** ({where}):"
    every = STEPS + RESTORE_STEPS + MOVE_STEPS + COPY_STEPS
    rows = [
        f"| {path} | {' → '.join(step.partition('/')[2] for step in steps)} |"
        for path, steps in groupby(every, key=lambda step: step.partition("/")[0])
    ]
    tables = (("table", TABLE_STEPS), ("latest", LATEST_STEPS))
    rows += [f"| {path} | {' → '.join(steps)} |" for path, steps in tables]
    return [title, "", "| path | steps |", "|---|---|", *rows, ""]


if __name__ == "__main__":
    PAGE.write_text(render())
