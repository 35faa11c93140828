"""The page of settings, and what every setting must say."""

from __future__ import annotations

import re

from pydantic import SecretStr

from agent.config import Config
from agent.config.docs import render
from agent.config.schema import settings

BOUND = re.compile(r"_(max|min|kept)$")
UNITS = (
    "agents",
    "followers",
    "bytes",
    "snapshots",
    "manifests",
    "commits",
    "changes",
    "validators",
    "records",
    "_ms",
    "_s_",
    "_s",
    "in_flight",
    "connections",
    "sessions",
    "partitions",
    "chunks",
    "errors",
    "rows",
    "files",
    "entries",
    "tries",
    "batches",
    "lines",
    "kinds",
    "events",
    "entities",
    "types",
    "topics",
    "groups",
    "traces",
)


def test_the_page_names_every_setting_once() -> None:
    page = render()
    for setting in settings(Config):
        name = setting.name.replace("*", "N").removesuffix(".N")
        assert page.count(f"| `{name}` |") == 1, name


def test_every_setting_has_a_description_that_is_a_sentence() -> None:
    bare = [s.name for s in settings(Config) if not (s.field.description or "").endswith(".")]
    assert bare == []


def test_every_bound_has_its_unit_in_its_name() -> None:
    unclear = [
        s.name for s in settings(Config) if BOUND.search(s.name) and not any(u in s.name for u in UNITS)
    ]
    assert unclear == []


def test_every_number_is_bounded() -> None:
    free = [
        s.name for s in settings(Config) if s.field.annotation in (int, float) and len(s.field.metadata) < 2
    ]
    assert free == []


def test_what_holds_credentials_is_a_secret() -> None:
    words = ("password", "secret", "token", "access_key")
    plain = [
        s.name
        for s in settings(Config)
        if any(w in s.name for w in words) and not s.name.endswith("_file")  # a path is none
        if s.field.annotation is not SecretStr
    ]
    assert plain == []
