"""`shoal capture`: inspect captured traffic. See docs/capture.md."""

from __future__ import annotations

import os
import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from shoal.protocol.wire.errors import RemoteProtocolError
from shoal.scenarios.capture.files import INDEX, RAW, CaptureFile, ToolError, capture_files
from shoal.scenarios.capture.survey import survey
from shoal.scenarios.capture.text import aligned, parse_time, show_time, widths

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from shoal.scenarios.capture.selection import Selection

__all__ = ["main"]

OK, WRONG, MISTAKE = 0, 1, 2


def main(arguments: Sequence[str]) -> int:
    """-> exit code: 0, 1 for a problem in the files, 2 for one in the command."""
    options = _parser().parse_args(arguments)
    run: Callable[[Namespace], int] = options.run
    try:
        code = run(options)
        sys.stdout.flush()
    except BrokenPipeError:  # `| head` has ended
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return OK
    except (ToolError, OSError, ValueError, RemoteProtocolError) as error:
        print(f"shoal: error: shoal capture {options.command}: {_message(error)}", file=sys.stderr)
        return MISTAKE
    return code


def _message(error: Exception) -> str:
    return f"{error.filename}: {error.strerror}" if isinstance(error, OSError) and error.filename else str(error)


# -- arguments ---------------------------------------------------------------------------------------------------------


def _parser() -> ArgumentParser:
    parser = ArgumentParser(prog="shoal capture", description="Inspect captured traffic (docs/capture.md).")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def add(name: str, run: Callable[[Namespace], int], what: str) -> ArgumentParser:
        command = commands.add_parser(name, help=what, description=f"{what[0].upper()}{what[1:]}.")
        command.set_defaults(run=run)
        command.add_argument("paths", nargs="+", type=Path, metavar="PATH", help="a file, or a directory of captures")
        return command

    add("ls", _ls, "list index files: writer, time, number of rows")
    _with_cat(add("cat", _cat, "print rows of index files, or of raw captures"))
    add("verify", _verify, "read index files completely and report faults; exit code 1 if there are any")
    compact = add("compact", _compact, "convert closed index files to Parquet (zstd), by date and hour")
    compact.add_argument("--out", type=Path, required=True, metavar="DIR", help="directory of the Parquet files")
    compact.add_argument("--remove", action="store_true", help="remove index files that have been compacted")
    pcap = add("to-pcap", _to_pcap, "select from raw captures and merge them into one file for Wireshark")
    pcap.add_argument("--out", type=Path, required=True, metavar="FILE", help="file to write (*.pcapng)")
    pcap.add_argument(
        "--api", action="append", default=[], metavar="NAME", help="only this API, for example Produce (repeatable)"
    )
    _with_conditions(pcap)
    return parser


def _with_cat(command: ArgumentParser) -> None:
    command.add_argument("--json", action="store_true", help="one object per line, with all columns")
    command.add_argument("--columns", type=_names, metavar="A,B,...", help="these columns, in this order")
    command.add_argument("--limit", type=int, metavar="N", help="stop after N rows")
    _with_conditions(command)


def _with_conditions(command: ArgumentParser) -> None:
    command.add_argument("--topic", action="append", default=[], help="only this topic (repeatable)")
    command.add_argument("--client", action="append", default=[], metavar="ID", help="only this client id (repeatable)")
    times = "2026-11-22T04:00 (UTC) or seconds of Unix time, by the clock of the proxy"
    command.add_argument("--from", dest="from_ns", type=_time, metavar="TIME", help=times)
    command.add_argument("--to", dest="to_ns", type=_time, metavar="TIME", help="before this time")


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",")]


def _time(text: str) -> int:
    try:
        return parse_time(text)
    except ValueError as error:
        raise ArgumentTypeError(f"{text!r} is not a time: write it like 2026-11-22T04:00, or as seconds") from error


def _files(options: Namespace, *suffixes: str) -> list[CaptureFile]:
    found = [file for path in options.paths for suffix in suffixes for file in capture_files(path, suffix)]
    if not found:
        kinds = " or ".join(f"*.{suffix}" for suffix in suffixes)
        raise ToolError(f"no captures (shoal-*{kinds[1:]}) in {', '.join(map(str, options.paths))}")
    return list(dict.fromkeys(found))


# -- commands ----------------------------------------------------------------------------------------------------------

_TITLES: Final = ("PROXY", "NUMBER", "FROM", "TO", "ROWS", "BATCHES", "BYTES", "STATE", "FILE")
_LEFT: Final = (True, False, True, True, False, False, False, True, True)


def _ls(options: Namespace) -> int:
    rows: list[tuple[str, ...]] = [_TITLES]
    for file in _files(options, INDEX):
        found = survey(file)
        times = show_time(found.first_ns), show_time(found.last_ns)
        counts = (f"{count:,}" for count in (found.rows, found.batches, found.size))
        rows.append((found.proxy, str(file.number), *times, *counts, found.state, file.path.name))
    sizes = widths(rows)
    for row in rows:
        print(aligned(row, sizes, _LEFT))
    return OK


def _cat(options: Namespace) -> int:
    from itertools import islice

    try:
        from shoal.scenarios.capture.cat import DEFAULT_COLUMNS, as_json, as_table, rows
    except ModuleNotFoundError as error:
        raise _missing(error) from None
    columns = options.columns or (None if options.json else list(DEFAULT_COLUMNS))
    found = islice(rows(_files(options, INDEX, RAW), columns, _selection(options)), options.limit)
    for line in as_json(found) if options.json else as_table(found, columns or ()):
        print(line)
    return OK


def _selection(options: Namespace) -> Selection:
    from shoal.scenarios.capture.selection import Selection

    return Selection(
        topics=frozenset(options.topic) or None,
        clients=frozenset(options.client) or None,
        from_ns=options.from_ns,
        to_ns=options.to_ns,
    )


def _missing(error: ModuleNotFoundError) -> ToolError:
    return ToolError(f"needs {error.name}, which is not installed: pip install 'shoal[capture]'")


def _verify(options: Namespace) -> int:
    bad = rows = 0
    files = _files(options, INDEX)
    for file in files:
        found = survey(file, names=True)
        rows += found.rows
        for problem in found.problems:
            print(f"{file.path}: {problem}")
        bad += bool(found.problems)
        counts = f"{found.blocks:,} blocks, {found.rows:,} rows, {found.batches:,} batches, {found.size:,} bytes"
        print(f"{file.path}: {counts}, {found.state}")
    print(f"{len(files)} files, {rows:,} rows, {bad} with problems")
    return WRONG if bad else OK


def _compact(options: Namespace) -> int:
    try:
        from shoal.scenarios.capture.compact import compact, locked
    except ModuleNotFoundError as error:
        raise _missing(error) from None
    with locked(options.out):
        for file in _files(options, INDEX):
            done, now = compact(file, options.out)
            if done is None:
                print(f"{file.path}: is still open for writing")
                continue
            what = f"{done.rows:,} rows, {done.size:,} bytes -> {', '.join(done.parts) or 'nothing'}"
            print(f"{file.path}: {what if now else 'was compacted before'}")
            if options.remove and done.is_whole:
                file.path.unlink()
            elif options.remove:
                print(f"{file.path}: is kept: it is damaged or torn (shoal capture verify)")
    return OK


def _to_pcap(options: Namespace) -> int:
    from shoal.protocol.capture.frames.frame_filter import FrameSelection
    from shoal.protocol.schema.api import API
    from shoal.scenarios.capture.frames.to_pcap import to_pcap

    keys = {api.name: key for key, api in API.items()}
    if unknown := [name for name in options.api if name not in keys]:
        raise ToolError(f"no such API: {', '.join(unknown)} (there are {', '.join(keys)})")
    wanted = FrameSelection(
        topics=frozenset(options.topic),
        clients=frozenset(options.client),
        apis=frozenset(keys[name] for name in options.api),
    )
    written = to_pcap(_files(options, RAW), options.out, wanted, options.from_ns, options.to_ns)
    print(f"{options.out}: {written:,} frames")
    return OK
