"""What an agent tells of the log in the bucket, in /status and in its metrics."""

from __future__ import annotations

from objectstore.naming import LOG
from tests.unit.agent.test_app import World, http, topic, until


async def test_status_and_metrics_tell_of_the_archive() -> None:
    world = World()
    app = await world.start("a")
    archive = app.background.archive
    assert archive is not None
    await topic(app)
    await until(lambda: archive.counts.pieces > 0)
    archive.counts.failures += 2
    told = (await http(app, "/status.json")).json()["log_archive"]
    metrics = (await http(app, "/metrics")).text
    again = (await http(app, "/metrics")).text
    assert "Log in the bucket" in (await http(app, "/status.html")).text
    pages = [page async for page in world.store.list(LOG)]
    await app.stop()
    assert told["writes"] is True
    assert told["pieces"] == sum(map(len, pages)) == archive.counts.pieces
    assert told["through"] > 0
    assert told["missing"] == []
    for text in (metrics, again):
        assert f"floe_log_archive_pieces_total {float(told['pieces'])}\n" in text
        assert "floe_log_archive_failures_total 2.0\n" in text
        assert "floe_log_archive_missing_revisions 0.0\n" in text
