"""What the commands over Floe's tables share: how they reach the catalog, and errors of one line.

Exit status 0: done; 1: it could not be done, and the last line of standard error says why; 2: the command
line is wrong.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # it has no stubs
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from iceberg.spark.session import S3Access, session
from iceberg.spark.watermark import JobError

LINE_CHARS_MAX = 1_000
_KEY_VARIABLES = "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"
_ROLE_VARIABLES = (
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
)  # with one of these Amazon's SDK finds keys by itself
_REGION = "us-east-1"
_CALLING = "An error occurred while calling"


def add_reach(parser: argparse.ArgumentParser) -> None:
    """The arguments that `started` needs."""
    parser.add_argument("uri", help="Floe's catalog, http://host:port/iceberg")
    keys = " and ".join(_KEY_VARIABLES)
    help_text = f"of the bucket, http://host:port; keys come from {keys}. Without it: a folder"
    parser.add_argument("--s3-endpoint", default="", help=help_text)
    parser.add_argument("--s3-region", default=_REGION, help=f"default {_REGION}")


def started(
    arguments: argparse.Namespace, jars: Sequence[Path | str] | None = None, *, short_lived: bool = True
) -> SparkSession:
    """A session: local, or by what spark-submit was told. Raises JobError when the bucket's keys lack."""
    s3 = None
    if arguments.s3_endpoint:
        keys = [os.environ.get(name, "") for name in _KEY_VARIABLES]
        if not all(keys) and not any(map(os.environ.get, _ROLE_VARIABLES)):
            lacks = _KEY_VARIABLES[keys.index("")]
            raise JobError(f"--s3-endpoint {arguments.s3_endpoint}: set {lacks} in the environment")
        token = os.environ.get("AWS_SESSION_TOKEN", "") if all(keys) else ""
        s3 = S3Access(arguments.s3_endpoint, keys[0], keys[1], arguments.s3_region, token)
    return session(arguments.uri, jars, s3=s3, short_lived=short_lived)


def ended(name: str, work: Callable[[], int]) -> int:
    """The status of a command's work; what it could not do is one line on standard error."""
    try:
        return work()
    except (JobError, OSError, PySparkException, Py4JError) as error:
        print(f"{name}: {one_line(error)}", file=sys.stderr)
        return 1


def one_line(error: BaseException) -> str:
    """What an error says, without the calls that led to it; at most LINE_CHARS_MAX characters."""
    lines = [line.strip().removeprefix(": ") for line in str(error).splitlines()]
    said = [line for line in lines if line and not line.startswith(_CALLING)]
    return (said[0] if said else type(error).__name__)[:LINE_CHARS_MAX]
