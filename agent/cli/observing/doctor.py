"""`floe doctor`: what is wrong with a cluster, and what to do."""

from __future__ import annotations

from dataclasses import asdict

import typer

from agent.cli.failures import Status
from agent.cli.observing.cluster import CLOCK, look
from agent.cli.options import HTTP_DEFAULT, Form, Http, Output
from agent.cli.output import print_json, print_table
from agent.health.ailments import Grade, ailments


def doctor(http: Http = HTTP_DEFAULT, output: Output = Form.TABLE) -> None:
    """Say what is wrong with a cluster, what to do, where to read on. Status 1 when something is.

    All agents are asked; etcd and the bucket are judged as they meet them: `floe check` tries
    them by itself.
    """
    agents = look(http)
    found = ailments(agents, CLOCK.now_ms())
    answered = sum(each.status is not None for each in agents)
    if output is Form.JSON:
        print_json({"agents": len(agents), "answered": answered, "found": [asdict(each) for each in found]})
    else:
        print(f"{answered} of {len(agents)} agents answer; {len(found) or 'nothing'} wrong or odd")
        if found:
            columns = ("", "where", "what", "remedy", "read")
            print_table(
                columns, [(each.grade, each.where, each.what, each.remedy, each.page) for each in found]
            )
    if any(each.grade is Grade.WRONG for each in found):
        raise typer.Exit(Status.FAILED)
