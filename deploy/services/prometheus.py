"""A Prometheus of its own, with the alerts that it is given."""

from __future__ import annotations

import json
import urllib.parse
import urllib.request
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from deploy.services.ports import free_port
from deploy.services.service import Service, answers
from deploy.setup.prometheus import prometheus_command

ANSWER_SECONDS_MAX = 10
REFRESH = "2s"
TIMEOUT_S = 10
"""Of a scrape, as Prometheus and its operator have it by default."""


class Prometheus(Service):
    """Scrapes and judges every `interval_s` seconds; `scrape()` says whom, at any time."""

    name = "prometheus"

    def __init__(
        self,
        directory: Path | None = None,
        *,
        groups: Iterable[Mapping[str, Any]] = (),
        labels: Mapping[str, str] | None = None,
        interval_s: int = 15,
    ) -> None:
        """`groups`: of rules, as in a file of rules. `labels`: of every target, such as `job`."""
        super().__init__(directory)
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._labels = dict(labels or {})
        self._targets = self.directory / "targets.json"
        (self.directory / "rules.yaml").write_text(yaml.safe_dump({"groups": list(groups)}))
        every = f"{interval_s}s"
        # The kernel tells it of a change; what it missed it would see in five minutes only.
        found = {"files": [str(self._targets)], "refresh_interval": REFRESH}
        job = {"job_name": "floe", "file_sd_configs": [found]}
        tree = {
            "global": {
                "scrape_interval": every,
                "scrape_timeout": f"{min(interval_s, TIMEOUT_S)}s",
                "evaluation_interval": every,
            },
            "rule_files": ["rules.yaml"],
            "scrape_configs": [job],
        }
        (self.directory / "prometheus.yaml").write_text(yaml.safe_dump(tree))
        self.scrape([])

    def command(self) -> list[str]:
        """Prometheus' command line."""
        storage = [f"--storage.tsdb.path={self.directory / 'data'}", "--storage.tsdb.retention.time=1d"]
        listening = f"--web.listen-address=127.0.0.1:{self.port}"
        return [*prometheus_command(), "--config.file=prometheus.yaml", *storage, listening]

    def ready(self) -> bool:
        """Whether it judges."""
        return answers(f"{self.url}/-/ready")

    def scrape(self, addresses: Iterable[str]) -> None:
        """From now on these, each host:port; Prometheus sees the change by itself at once."""
        text = json.dumps([{"targets": list(addresses), "labels": self._labels}])
        fresh = self._targets.with_suffix(".new")
        fresh.write_text(text)
        fresh.replace(self._targets)

    def alerts(self) -> list[dict[str, Any]]:
        """What rings or is about to: `labels`, `state` (`pending`, `firing`), `annotations`."""
        found: list[dict[str, Any]] = self._get("alerts")["alerts"]
        return found

    def firing(self) -> set[str]:
        """Names of the alerts that ring."""
        return {each["labels"]["alertname"] for each in self.alerts() if each["state"] == "firing"}

    def failures(self) -> dict[str, str]:
        """Rules that could not be judged, with the error."""
        rules = [rule for group in self._get("rules")["groups"] for rule in group["rules"]]
        return {rule["name"]: rule["lastError"] for rule in rules if rule.get("lastError")}

    def value(self, promql: str) -> list[tuple[dict[str, str], float]]:
        """An expression now: labels and value of each series. Raises OSError when it cannot be judged."""
        found = self._get(f"query?{urllib.parse.urlencode({'query': promql})}")["result"]
        return [(each["metric"], float(each["value"][1])) for each in found]

    def _get(self, path: str) -> dict[str, Any]:
        with urllib.request.urlopen(f"{self.url}/api/v1/{path}", timeout=ANSWER_SECONDS_MAX) as answer:
            data: dict[str, Any] = json.load(answer)["data"]
            return data
