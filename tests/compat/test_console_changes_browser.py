"""Changes in Chromium: one from its link to its outcome, on etcd; and what a page of another site gets."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import httpx
import pytest

from deploy.services import Etcd
from deploy.services.floe import FloeAgent
from tests.compat.driving import browser

pytestmark = pytest.mark.services

HOSTILE = """<title>hostile</title><form method=post action="{0}/console/change/topic-create">
<input name=topic value=taken><input name=partitions value=1><button>x</button></form>"""


@pytest.fixture
def agent(own_etcd: Etcd, tmp_path: Path) -> Iterator[FloeAgent]:
    """One on etcd whose console changes things."""
    settings = {
        "log": {"url": f"etcd://{own_etcd.endpoint}/floe"},
        "store": {"url": f"file://{tmp_path}/store"},
        "tables": {"enabled": False},
        "console": {"changes": True},
    }
    with FloeAgent("one", settings, tmp_path) as started:
        yield started


def test_a_topic_is_made_and_altered_in_a_browser_and_no_other_site_does(
    agent: FloeAgent, own_etcd: Etcd
) -> None:
    with browser() as page:
        page.go(f"{agent.http}/console/topics")
        page.until("Topics")
        page.click('a[href="/console/change/topic-create"]')
        page.until("Create a topic")
        page.fill(**{"field-topic": "orders", "field-partitions": "2", "field-configs": "no.such=1"})
        page.click("form.change button")
        page.until("Create a topic", "no.such")  # what is wrong stands beside its field
        page.fill(**{"field-configs": "retention.ms=60000"})
        page.click("form.change button")
        assert "Nothing has changed yet" in page.until("Preview")
        assert httpx.get(f"{agent.http}/console/topics/orders").status_code == 404
        page.click("form.change button")
        page.until("Done")
        page.click('a[href="/console/topics/orders"]')
        assert "retention.ms" in page.until("Topic orders")
        page.click('a[href="/console/change/topic-configs?topic=orders"]')
        page.until("Configs of orders")
        page.fill(**{"field-value:retention.ms": "120000"})
        page.click("form.change button")
        assert "60000 (the topic)" in page.until("Preview")
        page.click("form.change button")
        assert "120000 (the topic)" in page.until("Done")
        page.go("data:text/html," + quote(HOSTILE.format(agent.http)))
        page.until("hostile")
        page.click("button")
        assert "a page of another site asks for a change" in page.until("Nothing was done")
        page.go(f"{agent.http}/console/change/topic-partitions?topic=orders")
        page.until("Partitions of orders")
        own_etcd.kill()
        page.click("form.change button")
        assert "the log" in page.until("Nothing was done")
    assert httpx.get(f"{agent.http}/console/topics/taken").status_code == 404
