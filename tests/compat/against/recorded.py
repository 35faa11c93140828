"""What Apache Kafka answered: recorded.json, question → field → text, so that a run needs only Floe."""

from __future__ import annotations

import json
from pathlib import Path

from deploy.services.kafka import VERSION
from tests.compat.against.side import Answers

FILE = Path(__file__).with_name("recorded.json")
REFRESH = "python -m pytest tests/compat/against --broker kafka --keep-results"


def version() -> str:
    """The version of Apache Kafka that was asked."""
    found: str = json.loads(FILE.read_text())["version"]
    return found


def answers() -> dict[str, Answers]:
    """question → what Apache Kafka answered to it."""
    found: dict[str, Answers] = json.loads(FILE.read_text())["answers"]
    return found


def keep(question: str, answer: Answers, questions: set[str]) -> None:
    """Record one answer; what is kept of questions that exist no more, or of another version, goes."""
    kept = answers() if FILE.exists() and version() == VERSION else {}
    kept = {name: each for name, each in kept.items() if name in questions} | {question: answer}
    told = {"broker": "Apache Kafka", "version": VERSION, "answers": kept}
    FILE.write_text(json.dumps(told, indent=1, sort_keys=True, ensure_ascii=False) + "\n")
