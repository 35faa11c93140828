"""`python -m deploy.setup.kcat` brings kcat without root and prints its command; see debian.py."""

from __future__ import annotations

import sys

from deploy.setup.debian import Program, main_of

KCAT = Program("kcat", "kcat 1.7 or newer")


def kcat_command() -> list[str]:
    """The command that runs kcat, brought first when it is missing. Raises NotToBeHad."""
    return KCAT.command()


if __name__ == "__main__":
    sys.exit(main_of(KCAT))
