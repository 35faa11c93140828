"""Spark with Iceberg's runtime, by Floe's own session."""

import sys
import tempfile
from pathlib import Path
from typing import Any

from plain import main

from iceberg.spark.session import jars_in, session

spark = session(sys.argv[1], jars_in(), scratch=Path(tempfile.mkdtemp()), short_lived=True)


def ask(url: str, question: dict[str, Any]) -> list[Any]:
    query = f"SELECT * FROM lake.floe.{question['table']}"
    if question["snapshot"]:
        query += f" VERSION AS OF {question['snapshot']}"
    if question["where"]:
        query += " WHERE {} >= {}".format(*question["where"])
    rows: list[Any] = (
        spark.sql(query).toArrow().to_pylist()
    )  # collect() gives instants in the driver's zone, without it
    return rows


main(ask)
