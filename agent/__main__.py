"""`python -m agent` is `floe`."""

from agent.cli import main

if __name__ == "__main__":
    main()
