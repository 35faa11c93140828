"""The root of `floe`: which command lives where, and how every failure ends. Start reading here.

A command's module is imported when the command is asked for: scripts call `floe` often, and all of it takes
over a second of CPU to import.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any, NamedTuple, NoReturn

import typer
from typer.core import TyperCommand, TyperGroup
from typer.exceptions import Abort, TyperException

from agent.cli.failures import EPILOG, Status, told
from agent.cli.plain_values import take_plainly
from agent.telemetry.printable import printable
from agent.version import VERSION
from objectstore.late import without_collections


class Place(NamedTuple):
    """Where a command is: a function, or a Typer with commands of its own, in a module of this package."""

    module: str
    name: str


COMMANDS = {
    "serve": Place("serving", "serve"),
    "dev": Place("serving", "dev"),
    "topic": Place("topics", "app"),
    "produce": Place("records", "produce"),
    "consume": Place("records", "consume"),
    "group": Place("groups", "app"),
    "quarantine": Place("quarantine", "app"),
    "table": Place("tables", "app"),
    "schema": Place("schemas", "app"),
    "status": Place("status", "status"),
    "top": Place("observing.top", "top"),
    "doctor": Place("observing.doctor", "doctor"),
    "support-bundle": Place("observing.bundle", "support_bundle"),
    "drain": Place("draining", "drain"),
    "upgrade": Place("observing.upgrading", "app"),
    "bench": Place("benching", "bench"),
    "cost": Place("cost", "cost"),
    "check": Place("check", "check"),
    "cluster": Place("cluster", "app"),
    "bucket": Place("bucket", "app"),
    "restore": Place("restore", "app"),
    "copy": Place("copying", "copy"),
    "user": Place("users", "app"),
    "acl": Place("acls", "app"),
    "config": Place("settings", "config"),
}
"""In the order in which `floe --help` shows them."""


class Commands(TyperGroup):
    """The commands, each imported when it is asked for."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Their names, in order."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> TyperGroup | TyperCommand | None:
        """One of them; None when there is none of that name."""
        place = COMMANDS.get(cmd_name)
        if place is None:
            return None
        with without_collections():
            found = getattr(import_module(f"agent.cli.{place.module}"), place.name)
        if isinstance(found, typer.Typer):
            loaded: Any = typer.main.get_group(found)
        else:
            alone = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
            alone.command(context_settings=CONTEXT)(found)
            loaded = typer.main.get_command(alone)
        loaded.name = cmd_name
        return loaded  # type: ignore[no-any-return]  # typer tells no more


CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 110}
app = typer.Typer(
    name="floe",
    cls=Commands,
    help="Kafka-compatible streaming on an object store and etcd. Begin with: floe dev",
    epilog=EPILOG,
    no_args_is_help=False,
    invoke_without_command=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    context_settings=CONTEXT,
)


@app.callback()
def _root(
    context: typer.Context,
    version: bool = typer.Option(False, "--version", help="Print the version and leave."),
) -> None:
    if version:
        typer.echo(VERSION)
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
        raise typer.Exit(Status.USAGE)


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run one command and leave with its exit status. Never shows a traceback."""
    command = typer.main.get_command(app)
    take_plainly()
    try:
        sys.exit(command.main(args=arguments, prog_name="floe", standalone_mode=False) or Status.OK)
    except TyperException as error:
        _end(error.exit_code, f"{error.format_message()} (see: floe {_asked(arguments)}--help)")
    except (Abort, KeyboardInterrupt):
        _end(Status.INTERRUPTED, "interrupted")
    except asyncio.CancelledError:
        _end(Status.FAILED, "the work was given up within; this is a defect of Floe: please report it")
    except Exception as error:  # the last line of defence: a bug must not look like output
        failure = told(error)
        _end(failure.status, str(failure))


def _asked(arguments: Sequence[str] | None) -> str:
    """The command that was asked for, for the hint about its help."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    return f"{words[0]} " if words and words[0] in COMMANDS else ""


def _end(status: int, message: str) -> NoReturn:
    print(f"floe: {printable(' '.join(message.split()))}", file=sys.stderr)
    sys.exit(int(status))
