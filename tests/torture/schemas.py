"""What stories of schemas under deaths share: agents asked over HTTP until they answer, and made to die."""

from __future__ import annotations

import json
import random
import signal
import time
import urllib.error
import urllib.request
from base64 import b64encode
from collections.abc import Callable
from http.client import HTTPException
from typing import Any

from tests.torture.cluster import Cluster
from tests.torture.crashing_agent import Armed

WAIT_S_MAX = 60.0


def asked(cluster: Cluster, agent: int, path: str, body: object | None = None, method: str = "") -> Any:
    """The JSON that an agent answers with. Raises OSError where it does not, or is to be asked again."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"{cluster.members[agent].agent.http}{path}", data)
    request.method = method or request.get_method()
    with urllib.request.urlopen(request, timeout=10) as answer:
        return json.load(answer)


def until_answered(ask: Callable[[], Any]) -> Any:
    """Ask again for as long as nobody answers, or says that it cannot for now."""
    until = time.monotonic() + WAIT_S_MAX
    while True:
        try:
            return ask()
        except (
            OSError,
            ValueError,
            HTTPException,
        ) as error:  # a connection that breaks leaves half of an answer
            final = isinstance(error, urllib.error.HTTPError) and error.code < 500
            if final or time.monotonic() > until:
                raise
            time.sleep(0.05)


def die(cluster: Cluster, armed: Armed, step: str, times: int) -> None:
    """Let an agent die at a step, and come back."""
    armed.arm(step, times)
    until = time.monotonic() + WAIT_S_MAX
    while all(each.agent.ended_by_itself is None for each in cluster.members):
        assert time.monotonic() < until, f"{step} is not reached"
        time.sleep(0.02)
    for member in cluster.members:
        if not member.agent.running:
            assert member.agent.ended_by_itself == -signal.SIGKILL, member.agent.log_tail()
            member.agent.restart()


def bind(cluster: Cluster, topic: str, kind: Any) -> None:
    """Bind the topic's values to a message, by any agent."""
    bound = {"message": kind.name, "descriptor_set": b64encode(kind.descriptor_set).decode()}
    bind_to(cluster, topic, bound)


def bind_to(cluster: Cluster, topic: str, body: object) -> None:
    """Bind the topic's values as /admin has it, by any agent."""
    path = f"/admin/topics/{topic}/schema"
    until_answered(lambda: asked(cluster, random.randrange(len(cluster.members)), path, body))
