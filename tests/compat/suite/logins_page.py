"""The part of docs/clients.md about logins: each client by each mechanism, from the results that are kept."""

from __future__ import annotations

from collections.abc import Iterable

from tests.compat.suite.doors import SCRAM_512, WAYS
from tests.compat.suite.results import PASSED, Result

STEM = "test_logins"
HAS_NOT = "test_logins_that_kcat_has_not"
KNOWS_NOT, REFUSED = "—", "refused by both"
HEAD = """
## Logins

By TLS, with ACLs enforced (`tests/compat/suite/test_logins.py`, `test_logins_tools.py`). *both*: with Apache
Kafka {kafka} and with Floe it is let in as the principal that it shows, writes and reads what ACLs allow (a
tool does its work), is refused with a wrong password or HMAC, a token for somebody else, or without a
certificate, and is told so where a topic is not its own. What it says of each refusal is the same with both,
but for rows of [deviations.md](deviations.md). Delegation tokens need SCRAM with `tokenauth`, which Java's
clients alone have; a token makes no further tokens. Debian's kcat has librdkafka 2.0.2, which ends SCRAM with
another nonce than the broker gave it (newer ones do not), and makes only tokens without a signature. Streams
and Connect log in as principals of their own, by one mechanism; the others were not tried with them.

"""


def section(kafka: dict[str, Result], floe: dict[str, Result], version: str) -> str:
    """The table, with what is above it."""
    cells: dict[str, dict[str, str]] = {}
    for test in sorted(name for name in {*kafka, *floe} if name.startswith(STEM)):
        rows = [found[test] for found in (kafka, floe) if test in found]
        way = next((each for each in WAYS if rows[0].case.endswith(each)), SCRAM_512)
        cells.setdefault(rows[0].client, {})[way] = _outcome(rows)
    head = f"| client | {' | '.join(WAYS)} |\n|{'---|' * (len(WAYS) + 1)}\n"
    lines = (
        f"| {client} | {' | '.join(found.get(way, KNOWS_NOT) for way in WAYS)} |\n"
        for client, found in sorted(cells.items(), key=lambda each: each[0].lower())
    )
    return HEAD.format(kafka=version) + head + "".join(lines)


def others(rows: Iterable[Result]) -> list[Result]:
    """The results that are not about logins."""
    return [row for row in rows if not row.test.startswith(STEM)]


def _outcome(rows: list[Result]) -> str:
    """Of one test with both brokers."""
    if len(rows) < 2 or any(row.outcome != PASSED for row in rows):
        return "; ".join(row.outcome for row in rows) if len(rows) > 1 else "not run with both"
    return REFUSED if HAS_NOT in rows[0].test else "both"
