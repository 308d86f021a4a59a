"""`python -m emel` is the `emel` command."""

from emel.cli.entry import main

if __name__ == "__main__":
    raise SystemExit(main())
