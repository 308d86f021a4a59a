"""`python -m emel` is the `emel` command."""

from emel.cli.main import main

if __name__ == "__main__":
    raise SystemExit(main())
