"""Commands that wait for an agent's work end with 0 only when what was asked for is done."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

from tests.unit.agent.cli.conftest import fails, inside

RUN: dict[str, Any] = {"began_ms": 1, "done": False, "part": "chunks", "repair": False, "error": ""}
RUN |= dict.fromkeys(("bytes", "seconds", "objects", "found", "repaired", "repairable"), 0)
RUN |= dict.fromkeys(("harmless", "strays", "unread", "beyond_repair_not_named"), 0)
RUN |= {"beyond_repair": []}


class Scrubs(HTTPServer):
    """An agent that scrubs: its first answer, then the others, the last one again and again."""

    def __init__(self, *runs: dict[str, Any]) -> None:
        super().__init__(("127.0.0.1", 0), _Answers)
        self.runs = list(runs)


class _Answers(BaseHTTPRequestHandler):
    server: Scrubs

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.do_GET()

    def do_GET(self) -> None:
        runs = self.server.runs
        body = json.dumps({"now": runs.pop(0) if len(runs) > 1 else runs[0]}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing is said."""


@contextmanager
def scrubbing(*runs: dict[str, Any]) -> Iterator[str]:
    """Where it answers."""
    with Scrubs(*runs) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_who_asks_for_repair_does_not_wait_for_a_run_that_mends_nothing() -> None:
    """Somebody else's, without --repair, goes on: its end says nothing of what was to be mended."""
    with scrubbing(RUN, {**RUN, "done": True, "found": 2, "repairable": 2}) as http:
        status, line = fails("bucket", "scrub", "--repair", "--http", http)
    assert (status, line.endswith("give --repair again when it is over")) == (5, True), line
    mends = {**RUN, "repair": True}
    with scrubbing(mends, {**mends, "done": True}) as http:
        assert inside("bucket", "scrub", "--repair", "--http", http).status == 0


def test_a_scrub_whose_agent_was_restarted_is_not_over() -> None:
    with scrubbing(RUN, {**RUN, "began_ms": 2, "done": True}) as http:
        status, line = fails("bucket", "scrub", "--http", http)
    assert (status, "was restarted meanwhile: run it again" in line) == (5, True), line
