"""The root of `floe`: which command lives where, and how every failure ends. Start reading here."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from typing import NoReturn

import typer
from typer.exceptions import Abort, TyperException

from agent.cli import bucket, cluster, records, serving, tables, topics
from agent.cli.check import check
from agent.cli.failures import EPILOG, Failure, Status
from agent.cli.settings import config
from agent.cli.status import status
from agent.config import ConfigError
from agent.version import VERSION
from coordination.log import LogError
from objectstore.store import StoreError

app = typer.Typer(
    name="floe",
    help="Kafka-compatible streaming on an object store and etcd. Begin with: floe dev",
    epilog=EPILOG,
    no_args_is_help=False,
    invoke_without_command=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
app.command()(serving.serve)
app.command()(serving.dev)
app.add_typer(topics.app, name="topic")
app.add_typer(cluster.app, name="cluster")
app.command()(records.produce)
app.command()(records.consume)
app.add_typer(tables.app, name="table")
app.command()(status)
app.command()(check)
app.add_typer(bucket.app, name="bucket")
app.command()(config)


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
    try:
        sys.exit(command.main(args=arguments, prog_name="floe", standalone_mode=False) or Status.OK)
    except TyperException as error:
        _end(error.exit_code, f"{error.format_message()} (see: floe {_asked(arguments)}--help)")
    except (Abort, KeyboardInterrupt, asyncio.CancelledError):
        _end(Status.INTERRUPTED, "interrupted")
    except Failure as failure:
        _end(failure.status, str(failure))
    except ConfigError as error:
        _end(Status.CONFIG, str(error))
    except (LogError, StoreError) as error:
        _end(Status.UNREACHABLE, f"{type(error).__name__}: {error}")
    except Exception as error:  # the last line of defence: a bug must not look like output
        _end(Status.FAILED, f"{type(error).__name__}: {error}")


def _asked(arguments: Sequence[str] | None) -> str:
    """The command that was asked for, for the hint about its help."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    commands = {command.callback.__name__ for command in app.registered_commands if command.callback}
    known = commands | {group.name for group in app.registered_groups}
    return f"{words[0]} " if words and words[0] in known else ""


def _end(status: int, message: str) -> NoReturn:
    print(f"floe: {' '.join(message.split())}", file=sys.stderr)
    sys.exit(int(status))
