"""What is kept of a run beside its results: logs, of pods that are gone too, and where its time went."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from deploy.kubernetes.namespaces import CGROUPS, GROUP

LOOK_SECONDS = 0.3
USED = CGROUPS / "cpuacct" / GROUP


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


def used() -> dict[str, float]:
    """Core-seconds so far of all in the namespaces, by who took them: pods (which are gone, too), the clients
    of the load with what this process asks the apiserver, kubectl and helm, and Kubernetes' programs."""
    every, pods = (
        int((folder / "cpuacct.usage").read_text()) / 1e9 if folder.is_dir() else 0.0
        for folder in (USED, USED / "kubepods")
    )
    own = os.times()
    tools = own.children_user + own.children_system
    clients = own.user + own.system
    return {"pods": pods, "clients": clients, "tools": tools, "Kubernetes": every - pods - clients - tools}


class Steps:
    """Where the time of a run goes: what its main thread did, one after another, and the core-seconds of all
    in the namespaces meanwhile."""

    def __init__(self, used: Callable[[], Mapping[str, float]] = used) -> None:
        """`used`: core-seconds so far, by who took them."""
        self._used = used
        self._since, self._before = time.monotonic(), dict(used())
        self.told: list[dict[str, object]] = []

    def done(self, step: str) -> float:
        """All since the last one was this. Seconds of it."""
        now, used = time.monotonic(), dict(self._used())
        took, self._since = now - self._since, now
        cores = {who: round(seconds - self._before.get(who, 0.0), 1) for who, seconds in used.items()}
        self._before = used
        self.told.append({"step": step, "seconds": round(took, 1), "core_seconds": cores})
        return took

    def beside(self, step: str, seconds: float) -> None:
        """What another thread did; its core-seconds are in those of the steps that it was beside."""
        self.told.append({"step": step, "seconds": round(seconds, 1), "beside": True})
