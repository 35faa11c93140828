"""What a client says it is (KIP-511)."""

from __future__ import annotations

from typing import Final

from agent.net.listening import ConnectionInfo
from agent.net.wire.generated import api_versions

NAMED_SINCE: Final = 3  # ApiVersions from this version on says it


def learn(info: ConnectionInfo, version: int, body: memoryview) -> None:
    """Note it of a connection, from its ApiVersions request. Raises WireError."""
    if version >= NAMED_SINCE:
        request = api_versions.decode_request(body, version)
        info.software_name = request.client_software_name
        info.software_version = request.client_software_version
