"""Watches the tables grow, through Floe's REST catalog, while the load goes on."""

from __future__ import annotations

import json
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from typing import Self

from deploy.run.access import Access
from deploy.services.patience import Patience
from iceberg.spark.watermark import Watermark

INTERVAL_S = 0.3
ANSWER_SECONDS_MAX = 5


class TablesBehind(Exception):
    """The tables do not reach what was acknowledged."""


class TableWatch:
    """A thread that samples rows per table. `samples` are (Unix seconds, rows of all tables); `ends` by topic
    the end of its table, as iceberg.spark.Watermark writes it.
    """

    def __init__(
        self,
        catalogs: Sequence[str],
        tables: Mapping[str, str],
        on_look: Callable[[TableWatch], None] | None = None,
        access: Access | None = None,
    ) -> None:
        self._access = access or Access()
        self._context = self._access.context()
        self._catalogs = list(catalogs)
        self._tables = tables
        self._on_look = on_look
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="table-watch", daemon=True)
        self.rows: dict[str, int] = dict.fromkeys(tables, 0)
        self.ends: dict[str, str] = {}
        self.samples: list[tuple[float, int]] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def wait(self, wanted: Mapping[str, int], patience_s: float, meanwhile: Callable[[], None]) -> None:
        """Until each table has the wanted rows. Raises TablesBehind when none has grown for `patience_s`, and
        what `meanwhile` raises."""
        patience = Patience(patience_s)
        while any(self.rows[topic] < rows for topic, rows in wanted.items()):
            if patience.over(tuple(self.rows.values())):
                behind = {t: f"{self.rows[t]:,} of {n:,}" for t, n in wanted.items() if self.rows[t] < n}
                raise TablesBehind(f"the tables have not grown for {patience_s:.0f} s and hold {behind}")
            meanwhile()
            time.sleep(INTERVAL_S / 3)

    def _watch(self) -> None:
        while not self._ended.is_set():
            for topic, table in self._tables.items():
                summary = self._summary_of(table)
                if summary is not None:
                    self.rows[topic] = int(summary.get("total-records", 0))
                if summary:
                    self.ends[topic] = f"{summary['floe.topic-id']}:{summary['floe.next-offsets']}"
            total = sum(self.rows.values())
            self.samples.append((time.time(), total))
            if self._on_look is not None:
                self._on_look(self)
            self._ended.wait(INTERVAL_S)

    def _summary_of(self, table: str) -> Mapping[str, str] | None:
        """The newest snapshot's summary, empty without one; None when no catalog answers just now."""
        namespace, _, name = table.rpartition(".")
        for catalog in self._catalogs:
            url = f"{catalog}/v1/namespaces/{namespace}/tables/{name}?snapshots=refs"
            try:
                asking = self._access.request(url)
                with urllib.request.urlopen(
                    asking, timeout=ANSWER_SECONDS_MAX, context=self._context
                ) as answer:
                    metadata = json.load(answer)["metadata"]
            except urllib.error.HTTPError as error:
                error.close()
                if error.code == 404:
                    return {}
            except (urllib.error.URLError, OSError, ValueError):
                continue
            else:
                return _current_summary(metadata)
        return None


def share(end: str, of: float) -> Watermark:
    """The watermark with this share of each partition's offsets."""
    whole = Watermark.parse(end)
    return Watermark(whole.topic_id, tuple(int(offset * of) for offset in whole.offsets))


def _current_summary(metadata: Mapping[str, object]) -> Mapping[str, str]:
    current = metadata.get("current-snapshot-id")
    snapshots = metadata.get("snapshots") or ()
    assert isinstance(snapshots, Sequence)
    for snapshot in snapshots:
        if snapshot["snapshot-id"] == current:
            summary: Mapping[str, str] = snapshot["summary"]
            return summary
    return {}
