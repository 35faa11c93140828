"""Kafka's own tools against the broker of this run: `Tools(jvm, bootstrap)`."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from deploy.services.kafka import tool
from tests.compat.suite.java import Jvm, Said

WAIT_S_MAX = 60
ALONE_S_MAX = 240
# Its option comes behind the name of a command.
AFTER_COMMAND = ("cluster",)
# What these tell last they tell in the JVM's shutdown hook.
OF_THEIR_OWN = ("verifiable-producer", "verifiable-consumer")


@dataclass(frozen=True)
class Tools:
    """Runs a tool with `--bootstrap-server`; `name` as in kafka-<name>.sh."""

    jvm: Jvm
    bootstrap: str

    def run(self, name: str, *arguments: str, stdin: str = "") -> Said:
        """Its exit status and all it printed."""
        server = ("--bootstrap-server", self.bootstrap)
        words = (*arguments, *server) if name in AFTER_COMMAND else (*server, *arguments)
        if name in OF_THEIR_OWN:
            done = tool(name, *words, timeout_s=ALONE_S_MAX)
            return Said(done.returncode, done.stdout, done.stderr)
        return self.jvm.tool(name, *words, stdin=stdin)

    def ok(self, name: str, *arguments: str, stdin: str = "") -> str:
        """What it prints; it must succeed."""
        done = self.run(name, *arguments, stdin=stdin)
        assert done.status == 0, done
        return done.out

    def until(self, name: str, reached: Callable[[str], bool], *arguments: str) -> str:
        """What it prints, once that is so: a broker may know of a change a moment after the answer."""
        end = time.monotonic() + WAIT_S_MAX
        while not reached(said := self.ok(name, *arguments)):
            assert time.monotonic() < end, said
            time.sleep(0.1)
        return said

    def refused(self, name: str, *arguments: str) -> str:
        """The line that says why it failed; it must not succeed."""
        done = self.run(name, *arguments)
        assert done.status != 0, done
        return self.reason(done)

    @staticmethod
    def reason(done: Said) -> str:
        """The line of a tool that failed that says why."""
        lines = [line.strip() for line in (done.out + "\n" + done.err).splitlines()]
        raised = [line for line in lines if "Exception: " in line]
        told = raised or [line for line in lines if line.startswith(("Error", "Could not"))]
        assert told, done
        return told[0].removeprefix("java.util.concurrent.ExecutionException: ")
