"""Kafka's own tools in one JVM of the test run: each that starts one takes 1.3 s of CPU for it alone.

Those whose last words come in the JVM's end, or that measure, are run by `deploy.services.kafka.tool` itself.
"""

from __future__ import annotations

import subprocess
from contextlib import ExitStack
from threading import Lock

from tests.compat.suite.java import Jvm

_running = ExitStack()
_jvms: list[Jvm] = []
_lock = Lock()


def tool(name: str, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """Run one of Kafka's tools to its end, as deploy.services.kafka.tool does; one at a time.

    One that comes to no end, or otherwise than tools do, leaves the next one a JVM of its own.
    """
    with _lock:
        if not _jvms:
            _jvms.append(_running.enter_context(Jvm()))
        try:
            said = _jvms[0].tool(name, *arguments, stdin=stdin)
        except BaseException:
            _end()
            raise
    return subprocess.CompletedProcess([name, *arguments], said.status, said.out, said.err)


def end() -> None:
    """End the JVM; the next tool has a new one."""
    with _lock:
        _end()


def _end() -> None:
    _jvms.clear()
    _running.pop_all().close()
