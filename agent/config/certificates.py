"""What a certificate is worth to a client, and when it ends."""

from __future__ import annotations

import ssl
from typing import Final

NO_CHECK_TIME: Final = 0x20_0000
"""X509_V_FLAG_NO_CHECK_TIME of OpenSSL, for which ssl has no name."""


def ends_s(context: ssl.SSLContext, cert_file: str, *, over_too: bool = False) -> float:
    """When the certificate that a server's context shows ends (Unix time, seconds).

    It shakes hands with a client that trusts just this certificate. Raises OSError or ValueError, what that
    client would. `over_too`: also for one that has ended.
    """
    trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trusting.check_hostname = False
    trusting.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    if over_too:
        trusting.verify_flags |= NO_CHECK_TIME
    trusting.load_verify_locations(cert_file)
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = trusting.wrap_bio(to_client, to_server)
    server = context.wrap_bio(to_server, to_client, server_side=True)
    waiting = [client, server]
    for side in (client, server) * 4:
        if side in waiting:
            try:
                side.do_handshake()
                waiting.remove(side)
            except ssl.SSLWantReadError:
                continue
    if waiting:
        raise ValueError("a handshake with itself does not end")
    found = client.getpeercert() or {}
    return float(ssl.cert_time_to_seconds(str(found["notAfter"])))
