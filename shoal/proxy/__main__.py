"""`python -m shoal.proxy`, and the `shoal` command."""

import sys

from shoal.proxy.cli.main import main as cli_main

__all__ = ["main"]


def main() -> None:
    sys.exit(cli_main())


if __name__ == "__main__":
    main()
