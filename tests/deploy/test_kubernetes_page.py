"""docs/kubernetes.md says what the last whole run of `make kubernetes` saw."""

from __future__ import annotations

import json

from tests.kubernetes import page


def test_the_page_of_the_real_cluster_is_what_its_results_say() -> None:
    assert page.PAGE.read_text() == page.text(json.loads(page.KEPT.read_text()))
