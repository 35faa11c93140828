"""`python -m deploy.services build etcd minio versitygw`: build tools ahead of their first use."""

from __future__ import annotations

import argparse
import sys

from deploy.services.build import BuildError, tool_path


def main() -> int:
    """Build what is named; exit status 1 and one message when that fails."""
    parser = argparse.ArgumentParser(prog="python -m deploy.services", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    build = commands.add_parser("build", help="build tools of deploy/tools into build/tools/bin")
    build.add_argument("tool", nargs="+", help="a folder name under deploy/tools")
    for name in parser.parse_args().tool:
        try:
            print(f"{name}: {tool_path(name)}")
        except BuildError as error:
            print(error, file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
