"""`python -m deploy.setup.chromium` brings Chromium without a window and without root; see debian.py."""

from __future__ import annotations

import sys

from deploy.setup.debian import Program, main_of

CHROMIUM = Program("chromium-headless-shell", "Chromium's headless shell", "usr/lib/chromium")


def chromium_command() -> list[str]:
    """The command that runs it, brought first when it is missing. Raises NotToBeHad."""
    return CHROMIUM.command()


if __name__ == "__main__":
    sys.exit(main_of(CHROMIUM))
