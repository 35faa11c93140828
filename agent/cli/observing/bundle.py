"""`floe support-bundle`: one archive with what whoever helps wants to see first."""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from agent.cli import agent_http
from agent.cli.failures import Failure, refused
from agent.cli.observing.cluster import ANSWER_S, CLOCK, look
from agent.cli.options import HTTP_DEFAULT, Assignments, ConfigFile, Http
from agent.health.ailments import ailments
from agent.health.told import Told
from agent.version import VERSION

LOG_BYTES_MAX = 16 << 20
"""Of the end of each log."""
QUOTING = ("refused", "observed")
"""Lists of /status whose messages may quote a few bytes of records."""
LEFT_OUT = "left out: it may quote a record (--with-messages)"

Target = Annotated[
    Path, typer.Argument(metavar="FILE", help="The archive to write, .zip; never overwritten.")
]
Logs = Annotated[
    list[Path] | None,
    typer.Option("--log", help="A log file of an agent, of which the end is taken; repeat for more."),
]
Messages = Annotated[
    bool,
    typer.Option("--with-messages", help="Keep texts of refusals, which may quote a few bytes of records."),
]


def support_bundle(
    target: Target,
    http: Http = HTTP_DEFAULT,
    config: ConfigFile = None,
    assign: Assignments = None,
    log: Logs = None,
    with_messages: Messages = False,
) -> None:
    """Pack what agents tell, what `floe doctor` finds, settings (secrets masked) and logs for whoever helps.

    It has names of topics, groups, clients and schemas, and addresses; no record, no secret. Look into it
    before you send it.
    """
    agents = look(http)
    parts = dict(_parts(agents, with_messages))
    if config is not None or assign:
        parts["settings.json"] = _settings(config, assign or ())
    parts.update(_logs(log or ()))
    try:
        with target.open("xb") as out, zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, content in sorted(parts.items()):
                archive.writestr(name, content)
    except FileExistsError:
        raise refused(f"{target} is there already: name another file") from None
    except OSError as error:
        raise refused(f"{target} cannot be written: {error.strerror}") from None
    answered = sum(each.status is not None for each in agents)
    print(f"{target}: {answered} of {len(agents)} agents, {len(parts)} files, {target.stat().st_size} bytes")


def _parts(agents: Sequence[Told], with_messages: bool) -> Iterator[tuple[str, bytes]]:
    found = [asdict(each) for each in ailments(agents, CLOCK.now_ms())]
    yield "doctor.json", _json(found)
    about = {"floe": VERSION, "at_ms": CLOCK.now_ms(), "agents": [_about(each) for each in agents]}
    yield "about.json", _json(about)
    for each in agents:
        if each.status is None:
            continue
        folder = f"agents/{_safe(each.name)}"
        yield f"{folder}/status.json", _json(each.status if with_messages else quiet(each.status))
        for path, name in (("/metrics", "metrics.txt"), ("/readyz", "readyz.json")):
            yield f"{folder}/{name}", _asked(each.http, path)


def quiet(status: Mapping[str, Any]) -> dict[str, Any]:
    """The status without texts that may quote records."""
    return {
        key: [entry | {"message": LEFT_OUT} for entry in value] if key in QUOTING else value
        for key, value in status.items()
    }


def _about(each: Told) -> dict[str, str]:
    return {"name": each.name, "http": each.http, "error": each.error}


def _asked(http: str, path: str) -> bytes:
    """An answer as it is; a 503 of /readyz says most, and comes as the failure's text."""
    try:
        return agent_http.fetch(http, path, seconds_max=ANSWER_S)
    except Failure as failure:
        return str(failure).encode()


def _settings(config: Path | None, assign: Sequence[str]) -> bytes:
    """As `floe config --output json`: secrets are masked there."""
    from agent.config import in_force, load

    rows = in_force(load(config, assign))
    return _json([{"setting": name, "value": value, "from": origin} for name, value, origin in rows])


def _logs(files: Sequence[Path]) -> Iterator[tuple[str, bytes]]:
    """Each by its name; those that are called alike, as agents' are, by the folders that tell them apart."""
    paths = {Path(os.path.abspath(each)).parts[1:]: each for each in files}
    for own, file in paths.items():
        others = [each for each in paths if each != own]
        count = next(n for n in range(1, len(own) + 2) if not any(each[-n:] == own[-n:] for each in others))
        yield "/".join(("logs", *own[-count:])), _end(file)


def _end(path: Path) -> bytes:
    """The last LOG_BYTES_MAX of a file. Raises Failure."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - LOG_BYTES_MAX))
            return file.read(LOG_BYTES_MAX)
    except OSError as error:
        raise refused(f"--log {path} cannot be read: {error.strerror}") from None


def _safe(name: str) -> str:
    """An agent's name as a folder's: it is another machine's word."""
    return (
        "".join(letter if letter.isalnum() or letter in "-_." else "_" for letter in name).lstrip(".") or "_"
    )


def _json(value: object) -> bytes:
    return json.dumps(value, indent=1, ensure_ascii=False, default=str).encode()
