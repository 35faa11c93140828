"""The configuration of one agent: one frozen object, checked as a whole.

Sources and their precedence are in load.py. Everything else takes a `Config` and never looks at
files or the environment.
"""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Self

from pydantic import field_validator, model_validator

from agent.config.rules import contradiction, url_problem
from agent.config.sections import LogConfig, StoreConfig
from agent.config.tree import Tree

WILDCARDS = ("0.0.0.0", "::", "")


class Config(Tree):
    """Everything an agent is told. Units are in the names: ms, s, bytes, per_s, max."""

    @field_validator("log", "store")
    @classmethod
    def _known_url(cls, value: LogConfig | StoreConfig) -> LogConfig | StoreConfig:
        problem = url_problem(value.url, "log" if isinstance(value, LogConfig) else "store")
        if problem:
            raise ValueError(problem)
        return value

    @model_validator(mode="after")
    def _agrees_with_itself(self) -> Self:
        problem = contradiction(self)
        if problem:
            raise ValueError(problem)
        return self

    @classmethod
    def embedded(cls, data_dir: Path, *, kafka_port: int = 9092, http_port: int = 8080) -> Config:
        """One process on SQLite and a local folder below `data_dir`; port 0 takes a free one."""
        return cls.model_validate(embedded_values(data_dir, kafka_port=kafka_port, http_port=http_port))

    @property
    def agent_name(self) -> str:
        """`agent.name`, or the host's name."""
        return self.agent.name or socket.gethostname()

    @property
    def roles(self) -> tuple[str, ...]:
        """`agent.roles` as names; empty: all of them."""
        return () if self.agent.roles == "all" else tuple(dict.fromkeys(self.agent.roles.split(",")))

    @property
    def archives_log(self) -> bool:
        """Whether this agent may copy the log to the bucket."""
        return self.log_archive.enabled and not self.log.url.startswith("sqlite:")

    @property
    def warehouse(self) -> str:
        """URL of the folder of all tables, without a slash at its end."""
        return (self.tables.warehouse or self.store.url.rstrip("/") + "/tables").rstrip("/")


def advertised(host: str, advertised_host: str) -> str:
    """The host that others are told: the advertised one, the bound one, or this host's name."""
    return advertised_host or (socket.gethostname() if host in WILDCARDS else host)


def embedded_values(data_dir: Path, *, kafka_port: int, http_port: int) -> dict[str, object]:
    """The settings in which `floe dev` differs from the defaults, as a tree of plain values."""
    root = data_dir.absolute()
    local = "127.0.0.1"
    return {
        "agent": {"name": "dev"},
        "listeners": [{"host": local, "port": kafka_port}],
        "log": {"url": f"sqlite://{root}/log.sqlite"},
        "store": {"url": f"file://{root}/store"},
        "tables": {"interval_ms": 1_000},
        "shutdown": {"drain_ms": 0},
        "http": {"host": local, "port": http_port},
    }
