"""The dashboards' pictures in the docs, drawn anew: agents, load, Prometheus, Grafana's components, Chromium.

python -m tests.compat.dashboards.pictures [--minutes 8]

Exit status 1: a component of Grafana's failed, a panel is blank, a query has no data and its panel does not
say that it may, or an agent was not ready, which no picture in the docs should show.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import sys
import tempfile
import threading
import time
import urllib.parse
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from deploy.dashboards.boards import BOARDS, SILENT
from deploy.dashboards.panels import Board, built, metrics_in
from deploy.services.prometheus import Prometheus
from tests.compat.dashboards.drawing import drawn
from tests.compat.dashboards.load import work
from tests.equipment.zoned import Zoned

DOCS = Path(__file__).parents[3] / "docs"
ZONES = ("a", "a", "b")
SCRAPE_S = 5
RATE_S = 4 * SCRAPE_S
"""Grafana's $__rate_interval where scrapes are so far apart."""
STEPS = 200
BETWEEN_S = 5
QUERY_S_MAX = 60
SETTINGS: dict[str, Any] = {
    "tables": {"interval_ms": 3_000, "latest_age_s": 20},
    "peers": {"secret": "dashboards" * 4},
    "relay": {"enabled": True, "agents_min": 2},
    "merging": {"interval_ms": 1_000, "min_slices": 32, "keep_slices": 8},
    "compaction": {"dirty_bytes_min": 16_384},
    "scrub": {"begin_s": 30, "round_s": 120},
}

Answers = dict[int, list[dict[str, Any]]]


def series(prometheus: Prometheus, promql: str, over: tuple[float, float]) -> list[dict[str, Any]]:
    """An expression over time: `metric` and `values` of each. Raises OSError when it cannot be judged."""
    promql = promql.replace("$__rate_interval", f"{RATE_S}s")
    for variable in ("namespace", "job", "agent"):
        promql = promql.replace(f"${variable}", ".*")
    start, end = over
    step = max(SCRAPE_S, int((end - start) / STEPS))
    asked = urllib.parse.urlencode({"query": promql, "start": start, "end": end, "step": step})
    with urllib.request.urlopen(f"{prometheus.url}/api/v1/query_range?{asked}", timeout=QUERY_S_MAX) as said:
        found: list[dict[str, Any]] = json.load(said)["data"]["result"]
    return found


def named(legend: str, metric: dict[str, str]) -> str:
    """What a series is called."""
    for label, value in metric.items():
        legend = legend.replace(f"{{{{{label}}}}}", value)
    return legend


def answers(prometheus: Prometheus, board: dict[str, Any], over: tuple[float, float]) -> Answers:
    """What Prometheus says to each panel, by its id."""
    return {
        panel["id"]: [
            {"refId": target["refId"], "name": named(target["legendFormat"], each["metric"])}
            | {"values": each["values"]}
            for target in panel["targets"]
            for each in series(prometheus, target["expr"], over)
        ]
        for panel in board["panels"]
        if panel["type"] != "row"
    }


def draw(board: Board, prometheus: Prometheus, over: tuple[float, float]) -> list[str]:
    """One dashboard into the docs; returns what is wrong with it."""
    shown = built(board)
    said = answers(prometheus, shown, over)
    file = DOCS / f"dashboard-{board.uid.removeprefix('floe-')}.png"
    failed = [f"{board.title}: {error}" for error in drawn(shown, said, over, file)]
    print(f"docs/{file.name}: {file.stat().st_size // 1024} KiB", flush=True)
    for panel in shown["panels"]:
        if panel["type"] == "row":
            continue
        if not said[panel["id"]]:
            meant = panel["fieldConfig"]["defaults"].get("noValue")
            print(f"  {panel['title']}: {meant or 'no data'}", flush=True)
        failed += [f"{board.title}, {each}" for each in unanswered(panel, said[panel["id"]])]
    return failed


def unanswered(panel: dict[str, Any], said: list[dict[str, Any]]) -> list[str]:
    """What is wrong with what Prometheus said to a panel: queries without data, where it may not be without,
    and lines that have no number. One of several queries that fails leaves a panel that looks well."""
    wrong, may_be_empty = [], "noValue" in panel["fieldConfig"]["defaults"]
    for target in panel["targets"]:
        lines = [each for each in said if each["refId"] == target["refId"]]
        silent = bool(said) and metrics_in(target["expr"]) <= set(SILENT)
        if not lines and not may_be_empty and not silent:
            wrong.append(f"{panel['title']}: no data of {target['expr']}")
        if lines and not any(math.isfinite(float(text)) for each in lines for _, text in each["values"]):
            wrong.append(f"{panel['title']}: no numbers of {target['expr']}")
    return wrong


def unready(prometheus: Prometheus) -> list[str]:
    """Agents that were not ready within the last minute."""
    found = prometheus.value("min_over_time(floe_ready[1m]) == 0")
    remedy = "was not ready: draw again while the machine has nothing else to do"
    return [f"{labels['instance']} {remedy}" for labels, _ in found]


def main() -> int:
    """Draw all of them."""
    parser = argparse.ArgumentParser(prog="python -m tests.compat.dashboards.pictures")
    parser.add_argument("--minutes", type=float, default=8, help="how long the load goes on before")
    loaded_s = 60 * parser.parse_args().minutes
    over = threading.Event()
    with tempfile.TemporaryDirectory() as folder, Zoned(ZONES, settings=SETTINGS) as cluster:
        names = {"job": "floe", "namespace": "shop"}
        with Prometheus(Path(folder), labels=names, interval_s=SCRAPE_S) as prometheus:
            prometheus.scrape([agent.http.removeprefix("http://") for agent in cluster.agents])
            with ThreadPoolExecutor(1) as pool:
                working = pool.submit(asyncio.run, work(cluster.bootstrap, over))
                start = time.time()
                while time.time() < start + loaded_s and not working.done():
                    time.sleep(BETWEEN_S)
                wrong = unready(prometheus)
                wrong += [each for board in BOARDS for each in draw(board, prometheus, (start, time.time()))]
                over.set()
                working.result()
    for each in wrong:
        print(each, file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
