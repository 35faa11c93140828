"""Values of the command line mean what they mean to typer, whether it is asked or not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import pytest
import typer
from typer.core import TyperArgument, TyperOption
from typer.exceptions import TyperException

from agent.cli.options import Form
from agent.cli.plain_values import take_plainly


def taken(
    name: Annotated[str, typer.Argument()],
    more: Annotated[list[str] | None, typer.Argument()] = None,
    count: Annotated[int, typer.Option("--count", "-c", min=-1, max=9)] = 4,
    size: Annotated[int, typer.Option()] = 0,
    wait: Annotated[float, typer.Option(min=0)] = 1.5,
    form: Annotated[Form, typer.Option()] = Form.TABLE,
    each: Annotated[list[int] | None, typer.Option(min=0)] = None,
    forms: Annotated[list[Form] | None, typer.Option()] = None,
    folder: Annotated[Path | None, typer.Option()] = None,
    text: Annotated[str, typer.Option(envvar="FLOE_TEXT")] = "",
    flag: Annotated[bool, typer.Option("--flag")] = False,
) -> list[object]:
    """Gives what it was given."""
    return [name, more, count, size, wait, form, each, forms, folder, text, flag]


LINES = [
    "",
    "a",
    "a b c",
    "-- -a",
    "a -c -1",
    "a -c -2",
    "a -c 9",
    "a -c 10",
    "a -c 0x3",
    "a -c 3.0",
    "a -c 3.5",
    "a -c 1_0",
    "a -c \u0663",  # a digit of another script
    "a --size 007",
    "a --size +5",
    "a --size 99999999999999999999999",
    "a --size true",
    "a --wait 2 --wait 3",
    "a --wait -1",
    "a --wait much",
    "a --form json",
    "a --form JSON",
    "a --form yaml",
    "a --each 1 --each 2",
    "a --each 1 --each -2",
    "a --each one",
    "a --forms json --forms table",
    "a --forms json --forms xml",
    "a --folder /tmp/x",
    "a --text é --flag",
    "a --unknown",
]


def outcome(line: str) -> str:
    """The values and their types, or the error, of a command line."""
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command()(taken)
    try:
        values: Any = typer.main.get_command(app).main(args=line.split(), standalone_mode=False)
    except TyperException as error:
        return f"{type(error).__name__} {error.exit_code}: {error.format_message()}"
    return repr(values)


@pytest.fixture
def of_typer(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Undoes `take_plainly` when called, for this test."""
    own: Any = TyperOption.__mro__[1].__dict__["get_runtime_param"]

    def undo() -> None:
        for kind in (TyperOption, TyperArgument):
            monkeypatch.setattr(kind, "get_runtime_param", own)

    return undo


@pytest.mark.parametrize("line", LINES)
def test_a_value_is_what_it_is_to_typer(line: str, of_typer: Callable[[], None]) -> None:
    of_typer()
    expected = outcome(line)
    take_plainly()
    assert outcome(line) == expected


def test_the_environment_counts(of_typer: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLOE_TEXT", "from outside")
    of_typer()
    expected = outcome("a")
    take_plainly()
    assert outcome("a") == expected
    assert "from outside" in expected
