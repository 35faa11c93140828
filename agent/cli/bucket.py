"""`floe bucket …`: is the bucket fit to hold a cluster's only copy, and make it so."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Annotated

import typer

from agent.cli.failures import EPILOG, Status, refused, usage
from agent.cli.options import HTTP_DEFAULT, Assignments, ConfigFile, Form, Http, Output
from agent.cli.output import print_json, print_table
from agent.config import load
from agent.dependencies import store_options
from coordination.clock import SystemClock
from objectstore import bucket as administration
from objectstore.bucket import Finding, Level
from objectstore.open import StoreOptions

app = typer.Typer(
    help="The bucket: check, prepare (s3:// only), scrub it, read the archived log.", epilog=EPILOG
)

Repair = Annotated[bool, typer.Option("--repair", help="Mend what is held twice.")]
Pace = Annotated[
    int | None,
    typer.Option("--bytes-per-s", min=1 << 16, max=10 << 30, help="Pace; else scrub.bytes_per_s."),
]
Administer = Callable[[str, StoreOptions, Callable[[], float]], Sequence[Finding]]


@app.command()
def check(config: ConfigFile = None, assign: Assignments = None, output: Output = Form.TABLE) -> None:
    """Look at the bucket: there, versioning, lifecycle rules, public access, conditional PUT, latency.

    Changes nothing but one small object that it removes again. Status 1 when something fails.
    """
    _report(administration.check, config, assign, output)


@app.command()
def prepare(config: ConfigFile = None, assign: Assignments = None, output: Output = Form.TABLE) -> None:
    """Make the bucket if it is missing, close it to the public, clean up broken uploads; then check it.

    Rules and policies that are there are never changed: what is wrong with them is told.
    """
    _report(administration.prepare, config, assign, output)


@app.command()
def archive(config: ConfigFile = None, assign: Assignments = None, output: Output = Form.TABLE) -> None:
    """Read the archived log: what is there, whether the chain is whole, from which snapshots it goes on.

    Any store will do; neither the log nor an agent is asked. Status 1 when entries are missing or damaged.
    """
    from agent.cli import archive as archived

    identity, found = asyncio.run(archived.surveys(load(config, assign or (), advertises=False).config))
    if output is Form.JSON:
        print_json([archived.plain(each, identity) for each in found])
    else:
        for each in found:
            archived.say(each, identity)
    if any(each.missing or each.damaged for each in found):
        raise typer.Exit(Status.FAILED)


@app.command()
def scrub(
    repair: Repair = False,
    bytes_per_s: Pace = None,
    http: Http = HTTP_DEFAULT,
    output: Output = Form.TABLE,
) -> None:
    """Have an agent read everything in the bucket again now: checksums, and that nothing is missing.

    Changes nothing without --repair. Status 1 when something is damaged that cannot be mended.
    """
    from agent.cli import scrub as scrubbing

    told = asyncio.run(scrubbing.run(http, bytes_per_s, repair=repair))
    if output is Form.JSON:
        print_json(told)
    else:
        scrubbing.say(told)
    if told["error"]:
        raise refused(f"it ended early: {told['error']}")
    if told["beyond_repair"] or told["beyond_repair_not_named"] or told["unread"]:
        raise typer.Exit(Status.FAILED)


def _report(administer: Administer, config: ConfigFile, assign: Assignments, output: Form) -> None:
    given = load(config, assign or (), advertises=False).config
    if not given.store.url.startswith("s3:"):
        raise usage(f"store.url {given.store.url!r} is no S3 bucket; other stores have tools of their own")
    clock = SystemClock()
    findings = administer(given.store.url, store_options(given, clock), clock.monotonic)
    if output is Form.JSON:
        print_json(
            [
                {"subject": f.subject, "level": f.level.value, "found": f.message, "remedy": f.remedy}
                for f in findings
            ]
        )
    else:
        rows = [(f.subject, f.level.value, f.message, f.remedy) for f in findings]
        print_table(("subject", "level", "found", "remedy"), rows)
    if any(finding.level is Level.FAILURE for finding in findings):
        raise typer.Exit(Status.FAILED)
