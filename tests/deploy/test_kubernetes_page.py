"""docs/kubernetes.md says what the last whole run of `make kubernetes` saw."""

from __future__ import annotations

import json
from collections import Counter

from tests.kubernetes import page
from tests.kubernetes.load import Result, compared, unread


def test_the_page_of_the_real_cluster_is_what_its_results_say() -> None:
    assert page.PAGE.read_text() == page.text(json.loads(page.KEPT.read_text()))


def test_what_is_lost_doubled_or_unread_is_counted() -> None:
    """The zeros of the page say nothing else."""
    told, stored = [b"a", b"b", b"c"], Counter({b"a": 1, b"b": 2, b"z": 1})
    assert compared(told, stored) == (1, 1)
    assert compared(told, Counter(told)) == (0, 0)
    assert unread([b"a", b"b", b"b"], stored) == {b"z"}
    assert not unread([b"z", b"a", b"b"], stored)
    assert Result("x").clean
    for bad in (Result("x", lost=1), Result("x", doubled=1), Result("x", unread=1), Result("x", errors=1)):
        assert not bad.clean, bad
