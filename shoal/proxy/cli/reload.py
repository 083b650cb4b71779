"""`shoal reload`: a running Shoal uses its configuration as it is now.

The file is checked here first, so that a typo reaches no running process.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from shoal.command_line import JSON_FLAG, Parser, say
from shoal.proxy.cli.exit_codes import MUST_CHANGE, OK
from shoal.proxy.config.problems import OperatorError
from shoal.proxy.config.toml import load_config
from shoal.proxy.lifecycle.control import NAME, ask_for_reload

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["main", "parser"]

_END = """\
The Shoal that is asked is the one that uses the state-dir of the file. It
answers what is applied, what is for new connections only, and what needs a
restart (docs/configuration.md has it for each key). kill -HUP does the same,
and the answer is in the log.

exit codes: 0 reloaded, 1 refused: the former configuration stays in use,
2 wrong arguments or file, or no running Shoal answers
"""


def parser() -> Parser:
    made = Parser(
        prog="shoal reload", description="Let a running Shoal use its configuration as it is now.", epilog=_END
    )
    made.add_argument(
        "-c", "--config", required=True, type=Path, metavar="shoal.toml", help="the file of the running Shoal"
    )
    made.add_argument(JSON_FLAG, action="store_true", help="print JSON")
    return made


def main(arguments: Sequence[str]) -> int:
    """Raises OperatorError."""
    flags = parser().parse_args(arguments)
    directory = load_config(flags.config).state_dir
    if directory is None:
        what = "has no state-dir, where a running Shoal could be found: use kill -HUP and its process id, or set one"
        raise OperatorError.of(str(flags.config), what)
    try:
        answer = ask_for_reload(directory)
    except (FileNotFoundError, ConnectionRefusedError):
        what = f"no running Shoal uses {directory} (there is no {NAME} that answers): start it, or use kill -HUP"
        raise OperatorError.of("shoal reload", what) from None
    except (OSError, ValueError) as error:
        what = f"no answer from the Shoal that uses {directory}: {error}: its log has the result"
        raise OperatorError.of("shoal reload", what) from None
    say(json.dumps(answer, indent=1) if flags.json else str(answer.get("text", "")))
    return OK if answer.get("result") == "reloaded" else MUST_CHANGE
