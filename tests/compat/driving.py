"""Chromium without a window, driven by its DevTools protocol over a pipe: it goes to pages, fills in, clicks.

https://chromedevtools.github.io/devtools-protocol/: JSON messages that end with a zero byte, by descriptors 3
and 4 (`--remote-debugging-pipe`).
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from deploy.setup.chromium import chromium_command

TRIES_MAX = 600
"""Looks at a page that is awaited, each as long as the browser takes to answer and WAIT_MS by its clock."""
WAIT_MS = 100


class Browser:
    """One page of it."""

    def __init__(self, asked: int, told: int) -> None:
        self._asked, self._told = asked, told
        self._left, self._number, self._session = b"", 0, ""

    def open(self) -> None:
        """A first, empty page."""
        target = self._send("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]

    def go(self, address: str) -> None:
        """Ask for a page; `until` says when it is there."""
        self._send("Page.navigate", url=address)

    def run(self, script: str) -> Any:
        """What a script gives; waits for what it awaits. None where its page went meanwhile."""
        asked = {"expression": script, "awaitPromise": True, "returnByValue": True}
        return self._send("Runtime.evaluate", **asked).get("result", {}).get("value")

    def until(self, title: str, text: str = "") -> str:
        """Wait for a page whose title has this and whose text that (others may have the title); its text."""
        seen = None
        for _ in range(TRIES_MAX):
            seen = self.run("document.readyState === 'complete' ? document.title : ''")
            if seen and title in seen and text in (said := str(self.run("document.body.innerText"))):
                return said
            self.run(f"new Promise((done) => setTimeout(done, {WAIT_MS}))")
        raise AssertionError(f"the page is {seen!r} and not {title!r}: {self.run('document.body.innerText')}")

    def fill(self, **fields: str) -> None:
        """Fill in fields by their ids."""
        for name, value in fields.items():
            self.run(f"document.getElementById({json.dumps(name)}).value = {json.dumps(value)}")

    def click(self, selector: str) -> None:
        """Click what a selector finds first."""
        self.run(f"document.querySelector({json.dumps(selector)}).click()")

    def _send(self, method: str, **params: Any) -> dict[str, Any]:
        """The answer to a command; what the browser tells meanwhile is passed over."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._asked, json.dumps(message).encode() + b"\0")
        while True:
            said = json.loads(self._next())
            if said.get("id") == self._number:
                return dict(said.get("result", {}))

    def _next(self) -> bytes:
        while b"\0" not in self._left:
            came = os.read(self._told, 1 << 20)
            assert came, "the browser ended"
            self._left += came
        one, _, self._left = self._left.partition(b"\0")
        return one


@contextmanager
def browser(window: str = "1100,800") -> Iterator[Browser]:
    """A browser of its own, ended with its last page."""
    (asked_here, asked), (told, told_here) = os.pipe(), os.pipe()
    with tempfile.TemporaryDirectory() as profile:
        command = [
            *chromium_command(),
            *("--no-sandbox", "--disable-gpu", "--remote-debugging-pipe"),
            *(f"--user-data-dir={profile}", f"--window-size={window}"),
        ]
        # The browser takes commands from 3 and tells by 4, whatever these are called here.
        line = f"exec {shlex.join(command)} 3<&{asked_here} 4>&{told_here}"
        process = subprocess.Popen(
            ["bash", "-c", line], pass_fds=(asked_here, told_here), stderr=subprocess.DEVNULL
        )
        try:
            os.close(asked_here)
            os.close(told_here)
            found = Browser(asked, told)
            found.open()
            yield found
        finally:
            process.kill()
            process.wait()
            os.close(asked)
            os.close(told)
