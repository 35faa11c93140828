"""Whether native code may be used where it was compiled: everything that it does is there in Python too.

`FLOE_NATIVE=0` in the environment has a process do without: to look at a difference, to test the other way.
"""

from __future__ import annotations

import os

VARIABLE = "FLOE_NATIVE"


def allowed() -> bool:
    """Whether the environment lets native code be used."""
    return os.environ.get(VARIABLE) != "0"


def ask() -> None:
    """Raises ImportError where it does not."""
    if not allowed():
        raise ImportError(f"{VARIABLE} is 0: native code is not used")
