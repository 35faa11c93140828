#!/usr/bin/env bash
# Makes .venv exactly what requirements.lock says, with this project installed in place. Idempotent.
set -euo pipefail
cd "$(dirname "$0")/../.."
# Debian's 3.11 is what the image has, and is built with profile-guided optimisation: a quarter faster than one that is not
fits() { # whether it is new enough, can make an environment and has the headers that native modules are built with
  "$1" - 2>/dev/null <<'PY'
import ensurepip, sys, sysconfig
from pathlib import Path
sys.exit(sys.version_info < (3, 11) or not Path(sysconfig.get_path("include"), "Python.h").exists())
PY
}
python="${PYTHON:-}"
[ -n "$python" ] || { fits /usr/bin/python3.11 && python=/usr/bin/python3.11 || python=python3; }
"$python" - <<'PY' || { echo "floe needs Python 3.11 or newer as python3; set PYTHON=/path/to/python3.11" >&2; exit 1; }
import sys
sys.exit(sys.version_info < (3, 11))
PY
stamp=.venv/.floe-stamp
want="$(cat requirements.lock pyproject.toml objectstore/_frames.c coordination/state/_appending.c deploy/setup/requirements-bootstrap.txt | sha256sum)"
[ -f "$stamp" ] && [ "$(cat "$stamp")" = "$want" ] && exit 0
echo "setting up .venv (2 GB, pinned by requirements.lock; takes some minutes) …"
# Where pip could not be put into it (Debian without python3-venv) a half-made one is left, which is made anew
.venv/bin/python -m pip --version >/dev/null 2>&1 || "$python" -m venv --clear .venv ||
  { echo "floe: $python cannot make a virtual environment; on Debian and Ubuntu install python3-venv" >&2; exit 1; }
.venv/bin/python -m pip install -q --disable-pip-version-check --require-hashes -r deploy/setup/requirements-bootstrap.txt
.venv/bin/uv pip sync -q --require-hashes requirements.lock deploy/setup/requirements-bootstrap.txt
.venv/bin/uv pip install -q --no-deps --no-build-isolation --offline -e .
echo "$want" > "$stamp"
