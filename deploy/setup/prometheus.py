"""`python -m deploy.setup.prometheus` brings Prometheus without root, prints its command; see debian.py."""

from __future__ import annotations

import sys

from deploy.setup.debian import Program, main_of

PROMETHEUS = Program("prometheus", "Prometheus 2.42 or newer")


def prometheus_command() -> list[str]:
    """The command that runs Prometheus, brought first when it is missing. Raises NotToBeHad."""
    return PROMETHEUS.command()


if __name__ == "__main__":
    sys.exit(main_of(PROMETHEUS))
