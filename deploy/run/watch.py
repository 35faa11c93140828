"""Watches the tables grow, through Floe's REST catalog, while the load goes on."""

from __future__ import annotations

import json
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from typing import Self

from deploy.services.patience import Patience

INTERVAL_S = 0.3
ANSWER_SECONDS_MAX = 5


class TablesBehind(Exception):
    """The tables do not reach what was acknowledged."""


class TableWatch:
    """A thread that samples rows per table. `samples` are (Unix seconds, rows of all tables)."""

    def __init__(
        self, catalogs: Sequence[str], tables: Mapping[str, str], on_rows: Callable[[int], None] | None = None
    ) -> None:
        self._catalogs = list(catalogs)
        self._tables = tables
        self._on_rows = on_rows
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="table-watch", daemon=True)
        self.rows: dict[str, int] = dict.fromkeys(tables, 0)
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
                found = self._rows_of(table)
                if found is not None:
                    self.rows[topic] = found
            total = sum(self.rows.values())
            self.samples.append((time.time(), total))
            if self._on_rows is not None:
                self._on_rows(total)
            self._ended.wait(INTERVAL_S)

    def _rows_of(self, table: str) -> int | None:
        """Rows by the newest snapshot's summary; None when no catalog answers just now."""
        namespace, _, name = table.rpartition(".")
        for catalog in self._catalogs:
            url = f"{catalog}/v1/namespaces/{namespace}/tables/{name}?snapshots=refs"
            try:
                with urllib.request.urlopen(url, timeout=ANSWER_SECONDS_MAX) as answer:
                    metadata = json.load(answer)["metadata"]
            except urllib.error.HTTPError as error:
                error.close()
                if error.code == 404:
                    return 0
            except (urllib.error.URLError, OSError, ValueError):
                continue
            else:
                return _current_rows(metadata)
        return None


def _current_rows(metadata: Mapping[str, object]) -> int:
    current = metadata.get("current-snapshot-id")
    snapshots = metadata.get("snapshots") or ()
    assert isinstance(snapshots, Sequence)
    for snapshot in snapshots:
        if snapshot["snapshot-id"] == current:
            return int(snapshot["summary"].get("total-records", 0))
    return 0
