"""A run that a fault without effect ends leaves no client behind: those after it would have its load."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tests.proof import mixes
from tests.torture import run
from tests.torture.faults import schedule

STEP = next(schedule(1, 3))


class Client:
    """Counts."""

    def __init__(self) -> None:
        self.begun = self.stopped = 0

    def start(self) -> None:
        self.begun += 1

    def stop(self) -> None:
        self.stopped += 1


def no_effect(*_: object) -> None:
    raise AssertionError("the fault has had no effect")


def test_a_mix_that_is_ended_stops_its_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    clients = [Client(), Client()]
    made: Any = SimpleNamespace(clients=clients, happened=[])
    monkeypatch.setattr(mixes, "act", no_effect)
    cluster: Any = SimpleNamespace()
    with pytest.raises(AssertionError, match="no effect"):
        mixes.live(cluster, "t", made, [STEP], 0)
    assert [(each.begun, each.stopped) for each in clients] == [(1, 1), (1, 1)]


def test_torture_that_is_ended_heals_and_stops_its_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    clients: Any = [Client(), Client()]
    healed: list[None] = []
    cluster: Any = SimpleNamespace(heal=lambda: healed.append(None))
    monkeypatch.setattr(run, "act", no_effect)
    with pytest.raises(AssertionError, match="no effect"):
        run._through(cluster, [STEP], clients)
    assert healed
    assert all(each.stopped for each in clients)
