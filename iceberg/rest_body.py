"""JSON as requests bring it: what the parser takes, and nothing could keep or answer, is refused. Pure."""

from __future__ import annotations

import json
import re

_ESCAPED = re.compile(r"\\u[dD][89a-fA-F]")  # of a pair of surrogates, or half of one


def parsed(body: bytes) -> object:
    """The value of a JSON text. Raises ValueError, which says where it is none.

    Half a surrogate pair is no character (RFC 8259, 8.2): no text in UTF-8 can hold it, so neither could the
    log, a metadata file or an answer. Nor is NaN a number of JSON.
    """
    text = body.decode(json.detect_encoding(body))
    try:
        found = json.loads(text, parse_constant=_refuse)
        if _ESCAPED.search(text):
            json.dumps(found, ensure_ascii=False).encode()
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except UnicodeEncodeError:
        raise ValueError("half a surrogate pair (\\ud800 to \\udfff alone) is no character") from None
    return found


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is no number of JSON")
