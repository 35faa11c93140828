"""Helper processes of the job: a plan goes in as one JSON line, events come back as JSON lines.

Each child leads a process group of its own, so that it ends with all that it started, and is killed
when the parent is (deploy/services/guardian.py).
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self

from deploy.services import guardian
from deploy.services.patience import Patience

STOP_SECONDS_MAX = 5
LOOK_SECONDS = 1
TIMES = ("at", "seconds")  # fields of events that go on by themselves

Event = Mapping[str, Any]


class ChildFailed(Exception):
    """A helper process ended badly; the message holds the last line of its log."""


def tell(event: str, **fields: object) -> None:
    """In a child: report an event to the parent."""
    sys.stdout.write(json.dumps({"event": event, **fields}) + "\n")  # one write: threads may tell at once
    sys.stdout.flush()


def told() -> Any:
    """In a child: the next line that the parent said; the first one is the plan. None once it is gone."""
    line = sys.stdin.readline()
    return json.loads(line) if line else None


def run(main: Callable[[], None]) -> None:
    """In a child: run it; a failure leaves its whole story in the log, and one line at the log's end."""
    try:
        main()
    except Exception as error:
        traceback.print_exc()
        words = str(error).strip().splitlines() or [""]
        print(f"{type(error).__name__}: {words[0]}", file=sys.stderr)
        sys.exit(1)


class Child:
    """One helper process: `with Child("deploy.run.load", plan, log, on_event) as child: … child.wait()`."""

    def __init__(self, module: str, plan: object, log: Path, on_event: Callable[[Event], None]) -> None:
        self._module = module
        self._plan = plan
        self._log = log
        self._on_event = on_event
        self._broken: Exception | None = None
        self._newest: dict[str, Event] = {}  # events by name, without their times
        self._steps = 0  # events that told something new

    def __enter__(self) -> Self:
        self._log.parent.mkdir(parents=True, exist_ok=True)
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", self._module],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )
        guardian.guard(self._process.pid)
        self._reader = threading.Thread(target=self._read, name=self._module, daemon=True)
        self._reader.start()
        self.say(self._plan)
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def say(self, what: object) -> None:
        """Send one line; a child that is gone is noticed by wait()."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(what) + "\n")
            self._process.stdin.flush()

    def wait(self, patience_s: float) -> None:
        """Until it has ended well. Raises ChildFailed, and TimeoutError after `patience_s` without news."""
        patience = Patience(patience_s)
        while True:
            try:
                status = self._process.wait(min(LOOK_SECONDS, patience_s))
                break
            except subprocess.TimeoutExpired:
                if patience.over(self._steps):
                    raise TimeoutError(f"{self._module} did not get on for {patience_s:.0f} s") from None
        self._reader.join()
        self._judge(status)

    def wait_for(self, happened: threading.Event, patience_s: float) -> None:
        """Until something has happened that it tells of. Raises as `wait` does."""
        patience = Patience(patience_s)
        while not happened.wait(min(LOOK_SECONDS, patience_s)):
            self.check()
            if patience.over(self._steps):
                raise TimeoutError(f"{self._module} did not get on for {patience_s:.0f} s")

    def check(self) -> None:
        """Raises ChildFailed when it has already ended badly."""
        self._judge(self._process.poll() or 0)

    def _judge(self, status: int) -> None:
        if self._broken is not None:
            raise self._broken
        if status != 0:
            lines = self._log.read_text(errors="replace").splitlines() or ["it said nothing"]
            raise ChildFailed(f"{self._module} ended with status {status}: {lines[-1]}")

    def stop(self) -> None:
        """End the whole group: SIGTERM, then SIGKILL. Idempotent."""
        for how in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, how)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(STOP_SECONDS_MAX)
        guardian.release(self._process.pid)
        self._reader.join(STOP_SECONDS_MAX)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            try:
                event = json.loads(line)
                self._note(event)
                self._on_event(event)
            except Exception as error:
                self._broken = error
                return

    def _note(self, event: Event) -> None:
        """Count what tells something new; the same told again at another time is nothing new."""
        told_now = {name: value for name, value in event.items() if name not in TIMES}
        if self._newest.get(event["event"]) != told_now:
            self._newest[event["event"]] = told_now
            self._steps += 1
