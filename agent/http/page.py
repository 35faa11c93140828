"""The status page: plain HTML from the status's values, nothing fetched from elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape

from objectstore.turns import Turns, at_once

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #1c2733 }
body { margin: 2rem auto; max-width: 62rem; padding: 0 1rem }
h1 { font-size: 1.5rem } h2 { font-size: 1.1rem; margin-top: 2rem }
table { border-collapse: collapse; width: 100% }
th, td { text-align: left; vertical-align: top }
th, td { padding: .3rem .8rem .3rem 0; border-bottom: 1px solid #dde4ea }
th { font-weight: 600; color: #56677a } code { font-size: .9em; overflow-wrap: anywhere }
.ok { color: #0a7d4b } .bad { color: #b3261e; font-weight: 600 }
@media (prefers-color-scheme: dark) {
  body { background: #12181f; color: #dbe4ec } th, td { border-color: #2b3743 } th { color: #93a4b5 }
  .ok { color: #4cc38a } .bad { color: #ff8b80 }
}
"""

FACTS = (
    *("version", "native", "cluster", "agent", "node_id", "incarnation", "revision", "state_hash"),
    "feature_level",
)
COUNTS = ("topics", "partitions", "schemas")
ROWS_PER_TURN = 100  # before others may go on

TABLE_COLUMNS = (
    *("table", "topic", "records_behind", "seconds_behind", "committed_by", "last_error", "failing_since"),
    "problems",
)
SUBJECT_COLUMNS = (
    *("subject", "type", "version", "id", "versions", "deleted", "compatibility", "topics", "refused"),
)

OBSERVED_COLUMNS = ("at", "topic", "partition", "records", "message", "client_id", "host")


def render(status: Mapping[str, object]) -> Turns[str]:
    """The whole page of one status (see agent/http/status.py for its values)."""
    tables = {}
    for name in ("tables", "tables_not_made"):
        tables[name] = yield from _table_in_turns(_rows(status[name]), TABLE_COLUMNS)
    return _page(status, tables)


def _page(status: Mapping[str, object], tables: Mapping[str, str]) -> str:
    ready = bool(status["ready"])
    verdict = '<span class="ok">ready</span>' if ready else '<span class="bad">not ready</span>'
    replica, registry = (_mapping(status[name]) for name in ("replica", "registry"))
    sections = [
        f"<h1>Floe agent {escape(str(status['agent']))}: {verdict}</h1>",
        "".join(f'<p class="bad">{escape(str(reason))}</p>' for reason in _rows(status["reasons"])),
        _pairs((name, status[name]) for name in (*FACTS, *COUNTS)),
        "<h2>Dependencies</h2>",
        _table(_rows(status["dependencies"]), ("name", "ok", "latency_ms", "message")),
        "<h2>Jobs that fail</h2>",
        _table(_rows(status["failing_jobs"]), ("job", "since", "failures", "error")),
        "<h2>Brokers</h2>",
        _table(
            _rows(status["brokers"]), ("node_id", "name", "listeners", "http", "zone", "version", "unwell")
        ),
        "<h2>Tables</h2>",
        tables["tables"],
        "<h2>Tables that are not there yet</h2>",
        tables["tables_not_made"],
        "<h2>Schema registry</h2>",
        _pairs(registry.items()),
        _table(_rows(status["subjects"]), SUBJECT_COLUMNS),
        "<h2>Damaged records</h2>",
        _table(_rows(status["damaged"]), ("topic", "partition", "from_offset", "to_offset", "met", "reason")),
        "<h2>Refused records, the newest</h2>",
        _table(
            _rows(status["refused"]), ("at", "topic", "partition", "code", "message", "client_id", "host")
        ),
        *_ruled(status),
        *_amounts(status),
        "<h2>Replica</h2>",
        _pairs(replica.items()),
        "<h2>Recent state hashes</h2>",
        _table(list(reversed(_rows(status["recent"]))), ("revision", "state_hash")),
    ]
    head = f"<meta charset=utf-8><title>Floe {escape(str(status['agent']))}</title><style>{STYLE}</style>"
    return f"<!doctype html><html lang=en><head>{head}</head><body>{''.join(sections)}</body></html>"


def _amounts(status: Mapping[str, object]) -> Sequence[str]:
    """How far the log in the bucket is, where this agent may write it, and queues."""
    return (
        "<h2>Log in the bucket</h2>",
        _pairs(_mapping(status.get("log_archive") or {}).items()),
        "<h2>Queues</h2>",
        _pairs(_mapping(status["queues"]).items()),
    )


def _ruled(status: Mapping[str, object]) -> Sequence[str]:
    """What became of records that broke rules."""
    return (
        "<h2>Records that broke rules and were kept, the newest</h2>",
        _table(_rows(status["observed"]), OBSERVED_COLUMNS),
        "<h2>Records in quarantine since this agent started, by topic</h2>",
        _table(_rows(status["quarantined"]), ("topic", "records", "at")),
    )


def _mapping(value: object) -> Mapping[str, object]:
    assert isinstance(value, Mapping)
    return value


def _rows(value: object) -> Sequence[Mapping[str, object]]:
    assert isinstance(value, list)
    return value


def _pairs(pairs: Iterable[tuple[str, object]]) -> str:
    rows = "".join(f"<tr><th>{escape(n.replace('_', ' '))}</th><td>{_cell(v)}</td></tr>" for n, v in pairs)
    return f"<table>{rows}</table>" if rows else "<p>none</p>"


def _table(rows: Sequence[Mapping[str, object]], columns: Sequence[str]) -> str:
    return at_once(_table_in_turns(rows, columns))


def _table_in_turns(rows: Sequence[Mapping[str, object]], columns: Sequence[str]) -> Turns[str]:
    if not rows:
        return "<p>none</p>"
    head = "".join(f"<th>{escape(column.replace('_', ' '))}</th>" for column in columns)
    body: list[str] = []
    for row in rows:
        body.append("<tr>" + "".join(f"<td>{_cell(row[c])}</td>" for c in columns) + "</tr>")
        if len(body) % ROWS_PER_TURN == 0:
            yield
    return f"<table><tr>{head}</tr>{''.join(body)}</table>"


def _cell(value: object) -> str:
    if isinstance(value, bool):
        return '<span class="ok">yes</span>' if value else '<span class="bad">no</span>'
    if isinstance(value, list):
        return "<br>".join(escape(str(item)) for item in value)
    return f"<code>{escape(str(value))}</code>" if value not in ("", None) else "none"
