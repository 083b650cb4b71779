"""`shoal gaps`: the source records that mirrors have passed over, and what to do with partitions that are stopped.

It reads and writes files of the state directory, so it works whether Shoal runs or not.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from shoal.command_line import JSON_FLAG, Parser, listed, say
from shoal.proxy.cli.exit_codes import OK
from shoal.proxy.cli.flags.mirror import default_state_dir
from shoal.proxy.cluster.state_files import NotOurs
from shoal.proxy.config.problems import OperatorError
from shoal.proxy.config.toml import load_config
from shoal.proxy.shallow.files.gaps import ALL, SeenGap, acknowledge, read_gaps

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["main", "parser"]

_END = """\
With on-gap = "stop" (shoal mirror: --on-gap stop), a mirror that passes over
source records gets nothing more of that partition until the gap is
acknowledged. Shoal then gives it the records after the gap; those of the gap
are lost, unless you copy them in another way first.

examples:
  shoal gaps -c shoal.toml
  shoal gaps --state-dir /var/lib/shoal --acknowledge orders-3
  shoal gaps --acknowledge all        # of shoal mirror, without --state-dir
"""


def main(arguments: Sequence[str]) -> int:
    """Raises OperatorError."""
    flags = parser().parse_args(arguments)
    directory = _directory(flags.config, flags.state_dir)
    if not directory.is_dir():
        raise OperatorError.of(
            "--state-dir", f"{directory} is no directory: give that of the Shoal that runs the mirror"
        )
    found = {path: _read(path) for path in sorted(directory.glob("*.gaps"))}
    if flags.acknowledge:
        _acknowledge(found, flags.acknowledge)
        return OK
    rows = [(path.stem, gap) for path, gaps in found.items() for gap in gaps]
    if flags.json:
        say(json.dumps({"gaps": [{"listener": listener, **asdict(gap)} for listener, gap in rows]}))
        return OK
    for listener, gap in rows:
        say(_line(listener, gap))
    if not rows:
        say(f"no gap is known in {directory}")
    return OK


def parser() -> Parser:
    gaps = Parser(
        prog="shoal gaps",
        description="Source records that mirrors have passed over, and their acknowledgment.",
        epilog=_END,
    )
    where = gaps.add_mutually_exclusive_group()
    what = "the configuration of the Shoal that runs the mirror: its state-dir is used"
    where.add_argument("-c", "--config", type=Path, metavar="shoal.toml", help=what)
    what = "its state directory (default: that of shoal mirror)"
    where.add_argument("--state-dir", type=Path, metavar="DIR", help=what)
    what = "let a stopped partition go on, or all of them (repeatable)"
    gaps.add_argument("--acknowledge", action="append", default=[], metavar="TOPIC-PARTITION|all", help=what)
    gaps.add_argument(JSON_FLAG, action="store_true", help="print one JSON object")
    return gaps


def _directory(config: Path | None, state_dir: Path | None) -> Path:
    if config is None:
        return state_dir or default_state_dir()
    found = load_config(config).state_dir
    if found is None:
        raise OperatorError.of(str(config), "has no state-dir: gaps are only in the log")
    return found


def _read(path: Path) -> list[SeenGap]:
    try:
        return read_gaps(path)
    except (NotOurs, OSError, ValueError) as error:
        raise OperatorError.of(str(path), f"cannot be read: {error}") from None


def _acknowledge(found: dict[Path, list[SeenGap]], names: list[str]) -> None:
    waiting = {gap.name: path for path, gaps in found.items() for gap in gaps if gap.stops}
    for name in names:
        if name != ALL and name not in waiting:
            known = listed(sorted(waiting)) if waiting else "no partition is stopped"
            raise OperatorError.of("--acknowledge", f"{name} is not stopped; {known}")
    for path, gaps in found.items():
        ours = sorted({gap.name for gap in gaps if gap.stops and (gap.name in names or ALL in names)})
        if not ours:
            continue
        try:
            acknowledge(path, ours)
        except OSError as error:
            raise OperatorError.of(str(path), f"cannot be acknowledged: {error.strerror or error}") from None
        for name in ours:
            say(f"{name} of listener {path.stem} is acknowledged: a running Shoal lets it go on within seconds")


def _line(listener: str, gap: SeenGap) -> str:
    last = gap.to_offset - 1
    offsets = f"offsets {gap.from_offset}..{last}" if last >= gap.from_offset else "nothing lost"
    state = "STOPPED" if gap.stops else "reported"
    return f"{gap.at}  {state:<8}  {gap.name}  {gap.kind:<9}  {offsets}  {gap.mirror}  (listener {listener})"
