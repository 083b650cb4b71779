"""`python -m shoal`, and the `shoal` command."""

import os
import signal
import sys

__all__ = ["main"]

_SERVE = (["run"], ["mirror"])


def main() -> None:
    _open_closed_files()
    if sys.argv[1:2] in _SERVE:  # the configuration and all files are read later
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
    from shoal.cli import main as cli_main  # takes up to a second

    sys.exit(cli_main())


def _open_closed_files() -> None:
    """A parent may have closed 0, 1 or 2 (`2>&-`). Otherwise a socket would get this number, and what is printed."""
    while (opened := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(opened, True)
    os.close(opened)
    sys.stdin = sys.stdin or open(0)  # noqa: SIM115
    sys.stdout = sys.stdout or open(1, "w")  # noqa: SIM115
    sys.stderr = sys.stderr or open(2, "w")  # noqa: SIM115


if __name__ == "__main__":
    main()
