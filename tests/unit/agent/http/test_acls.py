"""What shadow mode saw, over HTTP."""

from __future__ import annotations

import httpx

from agent.telemetry.shadow import Seen, Shadow
from coordination.clock import SystemClock
from coordination.state.acl_types import Operation, ResourceType
from tests.unit.agent.http.conftest import Edge

PATH = "/admin/acls/unallowed"


async def test_what_was_seen_is_told_from_a_time_on(edge: Edge) -> None:
    shadow = Shadow(SystemClock(), 10)
    seen = Seen("User:alice", Operation.READ, ResourceType.TOPIC, "t")
    for _ in range(2):
        shadow.note(seen, "10.0.0.1")
    transport = httpx.ASGITransport(edge.rebuilt(shadow=shadow))
    async with httpx.AsyncClient(transport=transport, base_url="http://edge") as http:
        told = (await http.get(PATH)).json()
        later = (await http.get(f"{PATH}?after_ms={1 << 50}")).json()
        wrong = await http.get(f"{PATH}?after_ms=x")
    assert (told["agent"], told["mode"], told["forgotten"]) == ("edge", "off", 0)
    (row,) = told["unallowed"]
    assert row["first_ms"] <= row["last_ms"]
    assert (row["principal"], row["operation"], row["resource"], row["name"]) == ("User:alice", 3, 2, "t")
    assert (row["count"], row["host"]) == (2, "10.0.0.1")
    assert later["unallowed"] == []
    assert wrong.status_code == 400
