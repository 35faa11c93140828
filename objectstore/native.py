"""Whether native code may be used where it was compiled: everything that it does is there in Python too.

`FLOE_NATIVE=0` in the environment has a process do without: for a look at a difference, and for tests.
"""

from __future__ import annotations

import os

VARIABLE = "FLOE_NATIVE"


def allow() -> None:
    """Raises ImportError where the environment says that no native code is to be used."""
    if os.environ.get(VARIABLE) == "0":
        raise ImportError(f"{VARIABLE} is 0: native code is not used")
