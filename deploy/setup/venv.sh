#!/usr/bin/env bash
# Makes .venv exactly what requirements.lock says, with this project installed in place. Idempotent.
set -euo pipefail
cd "$(dirname "$0")/../.."
python="${PYTHON:-python3}"
"$python" - <<'PY' || { echo "floe needs Python 3.11 or newer as python3; set PYTHON=/path/to/python3.11" >&2; exit 1; }
import sys
sys.exit(sys.version_info < (3, 11))
PY
stamp=.venv/.floe-stamp
want="$(cat requirements.lock pyproject.toml objectstore/_frames.c coordination/state/_appending.c deploy/setup/requirements-bootstrap.txt | sha256sum)"
[ -f "$stamp" ] && [ "$(cat "$stamp")" = "$want" ] && exit 0
echo "setting up .venv (2 GB, pinned by requirements.lock; takes some minutes) …"
[ -x .venv/bin/python ] || "$python" -m venv .venv
.venv/bin/python -m pip install -q --disable-pip-version-check --require-hashes -r deploy/setup/requirements-bootstrap.txt
.venv/bin/uv pip sync -q --require-hashes requirements.lock deploy/setup/requirements-bootstrap.txt
.venv/bin/uv pip install -q --no-deps --no-build-isolation --offline -e .
echo "$want" > "$stamp"
