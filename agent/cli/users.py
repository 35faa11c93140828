"""`floe user`: users who log in by PLAIN. Those of SCRAM are made by Kafka's own tools (docs/security.md)."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from agent.cli.failures import usage
from coordination.clock import SystemClock

PASSWORD_LENGTH_MAX = 1024
app = typer.Typer(
    help="Users who log in by PLAIN.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.callback()
def _users() -> None:
    """Users who log in by PLAIN."""


@app.command("hash")
def hash_password(name: Annotated[str, typer.Argument(help="The user's name.")]) -> None:
    """Print the line for sasl.users_file. The password is asked for, or read from standard input.

    floe user hash alice >> users
    """
    from agent.config import users

    if sys.stdin.isatty():
        password = typer.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
    else:
        password = sys.stdin.readline(PASSWORD_LENGTH_MAX + 2).rstrip("\r\n")
    if not 0 < len(password) <= PASSWORD_LENGTH_MAX or "\0" in password:
        raise usage(f"the password must have 1 to {PASSWORD_LENGTH_MAX} characters, none of them NUL")
    try:
        typer.echo(users.line_of(name, password, SystemClock().random_bytes(users.SALT_BYTES)))
    except ValueError as error:
        raise usage(f"NAME {name!r}: {error}") from None
