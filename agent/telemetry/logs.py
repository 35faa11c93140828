"""The process's log lines: structured, one line per event, on standard error.

A request is followed by its id: `request_id.set(…)` in the task that serves it, and every line
written from that task carries it as `request`.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, MutableMapping
from contextvars import ContextVar
from typing import Any, TextIO

import structlog
from structlog.typing import Processor

from agent.config import LoggingConfig
from agent.telemetry.limit import AUDIT, LineLimit
from agent.telemetry.printable import printable
from coordination.clock import SystemClock

request_id: ContextVar[str] = ContextVar("request_id", default="")
"""Id of the request that this task serves, `<connection>-<correlation id>`; empty outside requests."""

QUIETER = {
    "aiokafka": "warning",
    "botocore": "warning",
    "uvicorn.access": "error",
    "opentelemetry": "critical",  # exporting.py tells of it, once an episode
    "asyncio": "warning",
}
"""Libraries whose lines below this level say nothing to an operator."""


def add_request_id(
    _logger: object, _method: str, event: MutableMapping[str, Any]
) -> MutableMapping[str, Any]:
    """Add `request` to an event when a request is being served."""
    current = request_id.get()
    if current:
        event.setdefault("request", current)
    return event


def add_fields(_logger: object, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Show the fields of a line from below this package (objectstore/episodes.py) beside its event."""
    for name, value in getattr(event.get("_record"), "fields", {}).items():
        event.setdefault(name, value)
    return event


def one_line(_logger: object, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Write what does not print as escapes: a client's text can neither look like another line, nor move the
    cursor of whoever reads it. JSON has escapes of its own."""
    for name, value in event.items():
        if isinstance(value, str) and name != "exception":
            event[name] = printable(value)
    return event


def for_people(config: LoggingConfig, stream: TextIO) -> bool:
    """Whether lines are written for people to read, and not as JSON."""
    return config.format == "console" or (config.format == "auto" and stream.isatty())


def configure(
    config: LoggingConfig,
    stream: TextIO | None = None,
    now: Callable[[], float] | None = None,
    **fields: str,
) -> None:
    """Route structlog and the standard library's logging to `stream` (standard error).

    `fields` are added to every line (the agent's name). Called once by the process's entry. `now` gives the
    seconds by which lines of one kind are limited (limit.py).
    """
    stream = stream or sys.stderr
    console = for_people(config, stream)
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        lambda _logger, _method, event: {**fields, **event},
        add_request_id,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.StackInfoRenderer(),
    ]
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            structlog.stdlib.PositionalArgumentsFormatter(),
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=False,  # tests configure more than once
    )
    handler = logging.StreamHandler(stream)
    handler.setFormatter(_formatter(console, stream, shared))
    handler.addFilter(LineLimit(config, now or SystemClock().monotonic))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(config.level.upper())
    for name, level in QUIETER.items():
        logging.getLogger(name).setLevel(level.upper())
    logging.getLogger(AUDIT).setLevel(logging.INFO)  # it has a switch of its own: audit_log.lines


def _formatter(console: bool, stream: TextIO, shared: list[Processor]) -> logging.Formatter:
    """Console lines with colours on a terminal, or one JSON object per line."""
    final: list[Processor] = [structlog.stdlib.ProcessorFormatter.remove_processors_meta]
    if console:
        final.append(one_line)
        # Not by rich, which shows what local variables hold: passwords, records.
        plainly = structlog.dev.plain_traceback
        final.append(structlog.dev.ConsoleRenderer(colors=stream.isatty(), exception_formatter=plainly))
    else:
        final += [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    return structlog.stdlib.ProcessorFormatter(foreign_pre_chain=[add_fields, *shared], processors=final)


def logger(name: str) -> structlog.stdlib.BoundLogger:
    """A logger by the name of its subject, such as `replica`."""
    bound: structlog.stdlib.BoundLogger = structlog.stdlib.get_logger(name)
    return bound
