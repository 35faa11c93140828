"""Which zone a client is in: it says so itself, or the listener does that it came by."""

from __future__ import annotations

import re

_NAMED = re.compile(r"(?:^|[^A-Za-z0-9])floe_zone=([^,;&\s]{1,128})")


def zone_of(client_id: str | None, listener_zone: str = "") -> str:
    """The zone in `floe_zone=<zone>` of a client id, else that of the listener; empty: not known."""
    if client_id and "floe_zone=" in client_id:
        found = _NAMED.search(client_id)
        if found:
            return found[1]
    return listener_zone
