"""The compiler's helper process: runs protoc, one set of sources after the other, and keeps running.

Starting Python and loading the compiler takes a hundred times as long as compiling. `compiler.py` says why
it is a process; this file is both what it runs, by path and with nothing of Floe, and who starts it.
"""

from __future__ import annotations

import atexit
import json
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

HELPERS_KEPT_MAX = 2
"""Helpers that wait for work; more run only while more is compiled at once."""

IDLE_SECONDS_MAX = 60.0
"""A helper that is not asked for so long ends; the next source starts one."""

SOURCES_MAX = 1000
"""Compilations after which a helper ends, so that what C++ code may leak is bounded."""

ERROR_BYTES_MAX = 1 << 20
"""What is kept of the compiler's complaints, bytes."""

PROGRAM = __file__
"""What a helper runs."""

_REPLY_BYTES = 64


class Done(NamedTuple):
    """How the compiler ended: its status, None when it died of a source; what it wrote to stderr."""

    status: int | None
    told: str


class Hung(Exception):
    """The deadline passed; the helper was ended."""


class _Helper:
    """A helper process and this side of its pipes."""

    def __init__(self) -> None:
        self.served = 0
        self._process = subprocess.Popen(
            [sys.executable, "-P", PROGRAM],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            start_new_session=True,  # Ctrl-C at a terminal is the agent's to handle
        )

    def compile(self, folder: str, errors: str, arguments: Sequence[str], seconds_max: float) -> int | None:
        """The compiler's status, None when the helper ended. Raises Hung."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        left = memoryview(json.dumps([folder, errors, *arguments]).encode() + b"\n")
        with suppress(BrokenPipeError, ConnectionResetError):
            while left:
                left = left[self._process.stdin.write(left) or 0 :]
            answered = select.poll()  # select() takes no descriptor above 1,023, which agents have
            answered.register(self._process.stdout, select.POLLIN)
            if not answered.poll(seconds_max * 1000):
                raise Hung
            reply = self._process.stdout.read(_REPLY_BYTES)  # whole: so few bytes are written at once
            self.served += 1
            return int(reply) if reply else None
        return None

    def end(self) -> None:
        """Kill it, and wait for that. Idempotent."""
        self._process.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        self._process.wait()


_idle: list[_Helper] = []
_lock = threading.Lock()


def run(folder: str, errors: str, arguments: Sequence[str], seconds_max: float) -> Done:
    """Run protoc in `folder`, its stderr in the file `errors`. Blocks; raises Hung, OSError.

    A helper that was kept and is gone when it is asked is replaced, each of them: all may have been idle for
    too long. A source that ends a fresh one is told of as that.
    """
    while True:
        with _lock:
            helper = _idle.pop() if _idle else None
        fresh = helper is None
        helper = helper or _Helper()
        well = False
        try:
            status = helper.compile(folder, errors, arguments, seconds_max)
            well = status is not None and helper.served < SOURCES_MAX
        finally:
            _put_back(helper, well)
        if status is not None or fresh:
            break
    with open(errors, "rb") as told:
        return Done(status, told.read(ERROR_BYTES_MAX).decode(errors="replace"))


def _put_back(helper: _Helper, well: bool) -> None:
    with _lock:
        kept = well and len(_idle) < HELPERS_KEPT_MAX
        if kept:
            _idle.append(helper)
    if not kept:
        helper.end()


@atexit.register
def end_all() -> None:
    """End the helpers that wait. More are started when they are needed."""
    with _lock:
        ended, _idle[:] = list(_idle), []
    for helper in ended:
        helper.end()


def _serve() -> None:
    """The helper's own loop."""
    import grpc_tools
    from grpc_tools import protoc

    own = f"--proto_path={os.path.join(grpc_tools.__path__[0], '_proto')}"  # google/protobuf/*.proto
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    replies = os.dup(1)
    os.dup2(2, 1)
    while select.select([sys.stdin], [], [], IDLE_SECONDS_MAX)[0]:
        order = sys.stdin.buffer.readline()
        if not order:
            return
        folder, errors, *arguments = json.loads(order)
        os.chdir(folder)
        file = os.open(errors, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        os.dup2(file, 2)
        os.close(file)
        status = protoc.main(["protoc", *arguments, own])
        os.write(replies, b"%d\n" % status)


if __name__ == "__main__":
    _serve()
