"""Keys of a role while the machine has no thread to renew them with; more in the contract tests."""

from __future__ import annotations

import threading

import pytest

from objectstore.assumed import AssumedRole
from objectstore.credentials import Lent, Role
from objectstore.sts import Sts

ROLE = Role("arn:aws:iam:::role/floe", "http://127.0.0.1:9", "r", lambda: None, duration_s=900, timeout_s=1.0)


def test_a_renewal_that_cannot_begin_does_not_end_those_that_come(monkeypatch: pytest.MonkeyPatch) -> None:
    now, given = [0], iter("abc")
    monkeypatch.setattr(Sts, "assume", lambda *_: Lent(next(given), "s", "t", now[0] + 900_000))
    assumed = AssumedRole(ROLE, "floe", lambda: now[0])
    assert assumed.keys().access == "a"
    now[0] = 500_000

    def refused(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as without:
        without.setattr(threading.Thread, "start", refused)
        assert assumed.keys().access == "a"
    assert not assumed._asking.locked()
    now[0] = 900_000
    assert assumed.keys().access == "b"
