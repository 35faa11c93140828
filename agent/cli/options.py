"""Options that several commands share."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

BOOTSTRAP_DEFAULT = "127.0.0.1:9092"
COUNT_MAX = 2**31 - 1
"""Of what Kafka's protocol counts, of partitions for instance; what an agent takes it says itself."""
HTTP_DEFAULT = "http://127.0.0.1:8080"

Bootstrap = Annotated[
    str,
    typer.Option(
        "--bootstrap", "-b", envvar="FLOE_BOOTSTRAP", help="Kafka address of any agent, host:port[,…]."
    ),
]
Http = Annotated[
    str, typer.Option("--http", envvar="FLOE_HTTP", help="HTTP address of any agent, http://host:port.")
]
ConfigFile = Annotated[
    Path | None,
    typer.Option("--config", "-c", help="YAML file of settings (also: FLOE_CONFIG)."),
]
Assignments = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="SECTION.KEY=VALUE", help="One setting; repeat for more."),
]


class Form(StrEnum):
    """How results are printed."""

    TABLE = "table"
    JSON = "json"


Output = Annotated[
    Form, typer.Option("--output", "-o", help="table for people; json: one JSON value on one line.")
]
TopicName = Annotated[str, typer.Argument(metavar="TOPIC", help="Name of the topic.")]
