"""What is kept of a run beside its results: logs, of pods that are gone too, and where its time went."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Self

LOOK_SECONDS = 0.3


class PodLogs:
    """`with PodLogs(…)`: a second name for each file below `source` that ends in .log, for the kubelet takes
    the first away with its pod. Named after pod, container and how often that was started before."""

    def __init__(self, source: Path, target: Path) -> None:
        self._source, self._target = source, target
        self._halt = threading.Event()
        self._thread = threading.Thread(target=self._run, name="logs of pods", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self._halt.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._halt.wait(LOOK_SECONDS):
            self.look()

    def look(self) -> None:
        """Name what is new."""
        with contextlib.suppress(
            OSError
        ):  # what goes while it is looked through; the next look sees the rest
            for path in self._source.glob("*/*/*.log"):  # namespace_pod_uid/container/starts.log
                self._keep(path)

    def _keep(self, path: Path) -> None:
        _, pod, uid = path.parts[-3].split("_")
        name = f"{pod}-{uid[:8]}-{path.parts[-2]}-{path.name}"
        self._target.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(OSError):  # it has a second name, or has gone
            os.link(path, self._target / name)


class Steps:
    """Where the time of a run goes: what its main thread did, one after another."""

    def __init__(self) -> None:
        self._since = time.monotonic()
        self.told: list[dict[str, object]] = []

    def done(self, step: str) -> float:
        """All since the last one was this. Seconds of it."""
        now = time.monotonic()
        took, self._since = now - self._since, now
        self.told.append({"step": step, "seconds": round(took, 1)})
        return took
