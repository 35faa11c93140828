"""`floe bucket …`: is the bucket fit to hold a cluster's only copy, and make it so."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import typer

from agent.cli.failures import EPILOG, Status, usage
from agent.cli.options import Assignments, ConfigFile, Form, Output
from agent.cli.output import print_json, print_table
from agent.config import load
from agent.dependencies import store_options
from coordination.clock import SystemClock
from objectstore import bucket as administration
from objectstore.bucket import Finding, Level
from objectstore.open import StoreOptions

app = typer.Typer(help="The bucket (s3:// only): check it, prepare it.", epilog=EPILOG)

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


def _report(administer: Administer, config: ConfigFile, assign: Assignments, output: Form) -> None:
    given = load(config, assign or ()).config
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
