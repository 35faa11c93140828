"""Creates the job's topics through the `floe` command line, bound to their protobuf messages."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path

from deploy.run.access import Access
from deploy.run.source import TOPICS, Topic

CREATE_SECONDS_MAX = 180
NOBODY = Access()


class TopicNotCreated(Exception):
    """`floe topic create` failed; the message is what it said."""


def create_topics(
    bootstrap: str, http: str, access: Access = NOBODY, folder: Path = Path()
) -> tuple[Mapping[str, int], Mapping[str, int]]:
    """Create all of TOPICS; returns the schema ids of their values and of their keys, by topic.

    `access`: how the commands come in; what they need for it goes to `folder`.
    """
    more = access.command(folder)
    started = [(topic, _start(topic, bootstrap, http, more)) for topic in TOPICS]
    told = [(topic, process, _said(process)) for topic, process in started]
    for topic, process, said in told:
        if process.returncode != 0:
            raise TopicNotCreated(f"floe topic create {topic.name}: {said.strip()}")
    bound = {topic.name: _schema_ids(topic, http, access) for topic in TOPICS}
    return (
        {topic: ids["value"] for topic, ids in bound.items()},
        {topic: ids["key"] for topic, ids in bound.items() if "key" in ids},
    )


def command(topic: Topic, bootstrap: str, http: str) -> Sequence[str]:
    """The command line that creates one topic."""
    framing = "confluent" if topic.confluent else "plain"
    words = ["topic", "create", topic.name, "--partitions", str(topic.partitions)]
    words += ["--proto", str(topic.proto), "--message", topic.message, "--framing", framing]
    if topic.key_message:
        words += ["--key-proto", str(topic.proto), "--key-message", topic.key_message]
    return [*words, "--bootstrap", bootstrap, "--http", http]


def _start(topic: Topic, bootstrap: str, http: str, more: Mapping[str, str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "agent", *command(topic, bootstrap, http)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, **more},
    )


def _said(process: subprocess.Popen[str]) -> str:
    """All that it says until it ends."""
    return process.communicate(timeout=CREATE_SECONDS_MAX)[0]


def _schema_ids(topic: Topic, http: str, access: Access) -> Mapping[str, int]:
    """Role → schema id, as the agent's administration endpoint tells it."""
    asking = access.request(f"{http}/admin/topics/{topic.name}/schema")
    with urllib.request.urlopen(asking, timeout=30, context=access.context()) as answer:
        return {schema["role"]: schema["schema_id"] for schema in json.load(answer)["schemas"]}
