"""`shoal capture`: inspect captured traffic. See docs/capture.md."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Final

from shoal.command_line import JSON_FLAG, Parser, a_path, did_you_mean, drop_output, listed, report_errors, typed, whole
from shoal.protocol.schema.api import API, ApiKey
from shoal.protocol.wire.errors import RemoteProtocolError
from shoal.scenarios.capture.files import INDEX, RAW, CaptureFile, ToolError, capture_files
from shoal.scenarios.capture.index import UnreadableFile, require_index, require_raw
from shoal.scenarios.capture.schema import COLUMNS
from shoal.scenarios.capture.survey import survey
from shoal.scenarios.capture.text import aligned, parse_time, show_time, widths
from shoal.scenarios.progress import Progress

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from shoal.protocol.capture.index.blocks import Damaged
    from shoal.scenarios.capture.selection import Selection

__all__ = ["main", "parser"]

OK, WRONG, MISTAKE = 0, 1, 2


def main(arguments: Sequence[str]) -> int:
    """-> exit code: 0, 1 for a problem in the files, 2 for one in the command."""
    options = parser().parse_args(arguments)
    run: Callable[[Namespace], int] = options.run
    try:
        _require_times(options)
        code = run(options)
        sys.stdout.flush()
    except BrokenPipeError:  # `| head` has ended
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return OK
    except (ToolError, OSError, ValueError, RemoteProtocolError) as error:
        _report(options, error)
        return MISTAKE
    return code


def _require_times(options: Namespace) -> None:
    """Raises ToolError."""
    first, last = getattr(options, "from_ns", None), getattr(options, "to_ns", None)
    if first is not None and last is not None and last <= first:
        raise ToolError("--to: is not after --from: no row is between them")


def _report(options: Namespace, error: Exception) -> None:
    report_errors([(f"shoal capture {options.command}", _message(error))], as_json=getattr(options, "json", False))


def _message(error: Exception) -> str:
    if not isinstance(error, OSError):
        return str(error)
    if error.filename:
        return f"{error.filename}: {error.strerror}"
    drop_output()  # its buffer would fail again when Python ends
    return f"standard output: cannot be written: {error.strerror}"


# -- arguments ---------------------------------------------------------------------------------------------------------


def parser() -> Parser:
    capture = Parser(prog="shoal capture", description="Inspect captured traffic (docs/capture.md).", epilog=_END)
    commands = capture.add_subparsers(title="commands", dest="command", required=True, metavar="COMMAND")

    def add(name: str, run: Callable[[Namespace], int], what: str) -> Parser:
        command: Parser = commands.add_parser(name, help=what, description=f"{what[0].upper()}{what[1:]}.")
        command.set_defaults(run=run)
        command.add_argument("paths", nargs="+", type=a_path, metavar="PATH", help="a file, or a directory of captures")
        return command

    add("ls", _ls, "list index files: writer, time, number of rows")
    _with_cat(add("cat", _cat, "print rows of index files, or of raw captures"))
    add("verify", _verify, "read index files completely and report faults; exit code 1 if there are any")
    compact = add("compact", _compact, "convert closed index files to Parquet (zstd), by date and hour")
    compact.add_argument("--out", type=a_path, required=True, metavar="DIR", help="directory of the Parquet files")
    compact.add_argument("--remove", action="store_true", help="remove index files that have been compacted")
    pcap = add("to-pcap", _to_pcap, "select from raw captures and merge them into one file for Wireshark")
    pcap.add_argument("--out", type=a_path, required=True, metavar="FILE", help="file to write (*.pcapng)")
    what = "only this API, for example Produce (repeatable)"
    pcap.add_argument("--api", action="append", type=typed(_api), default=[], metavar="NAME", help=what)
    _with_conditions(pcap)
    return capture


_END = """\
examples:
  shoal capture ls index/
  shoal capture cat index/ --topic orders --limit 20
  shoal capture cat index/ --json | jq .batch_bytes
  shoal capture verify index/
  shoal capture compact index/ --out parquet/
  shoal capture to-pcap raw/ --out orders.pcapng --topic orders

exit codes: 0 done, 1 a file is damaged (verify, cat), 2 wrong arguments, or a
            file that is no capture
"""


def _with_cat(command: Parser) -> None:
    command.add_argument(JSON_FLAG, action="store_true", help="one object per line, with all columns")
    what = "these columns, in this order"
    command.add_argument("--columns", type=typed(_columns), metavar="A,B,...", help=what)
    command.add_argument("--limit", type=whole(1), metavar="N", help="stop after N rows")
    _with_conditions(command)


def _with_conditions(command: Parser) -> None:
    command.add_argument("--topic", action="append", default=[], help="only this topic (repeatable)")
    command.add_argument("--client", action="append", default=[], metavar="ID", help="only this client id (repeatable)")
    times = "2026-11-22T04:00 (UTC) or seconds of Unix time, by the clock of the proxy"
    command.add_argument("--from", dest="from_ns", type=typed(_time), metavar="TIME", help=times)
    command.add_argument("--to", dest="to_ns", type=typed(_time), metavar="TIME", help="before this time")


def _columns(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names or [text]:
        if name not in COLUMNS:
            raise ValueError(f'unknown column "{name}"; {did_you_mean(name, COLUMNS)}columns: {listed(COLUMNS)}')
    return names


def _time(text: str) -> int:
    try:
        return parse_time(text)
    except (ValueError, OverflowError):
        raise ValueError(f'"{text}" is not a time: write it like 2026-11-22T04:00, or as seconds') from None


def _api(text: str) -> ApiKey:
    keys = {api.name: key for key, api in API.items()}
    if text not in keys:
        raise ValueError(f'unknown API "{text}"; {did_you_mean(text, keys)}there are {listed(keys)}')
    return ApiKey(keys[text])


def _files(options: Namespace, *suffixes: str) -> list[CaptureFile]:
    found = [file for path in options.paths for suffix in suffixes for file in capture_files(path, suffix)]
    if not found:
        kinds = " or ".join(f"*.{suffix}" for suffix in suffixes)
        raise ToolError(f"no captures (shoal-*{kinds[1:]}) in {', '.join(map(str, options.paths))}")
    wrong = [file.path for file in found if file.path.suffix == f".{RAW}" and RAW not in suffixes]
    if wrong:
        raise ToolError(f"{wrong[0]}: is a raw capture, which only cat and to-pcap read; give index files (*.{INDEX})")
    return list(dict.fromkeys(found))


def _indexes(options: Namespace, files: Iterable[CaptureFile]) -> tuple[list[CaptureFile], int]:
    """Without files that are no index, which are reported; and the exit code so far."""
    good, code = [], OK
    for file in files:
        try:
            (require_raw if file.path.suffix == f".{RAW}" else require_index)(file.path)
            good.append(file)
        except UnreadableFile as error:
            _report(options, error)
            code = MISTAKE
    return good, code


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

    from shoal.scenarios.capture.cat import DEFAULT_COLUMNS, as_json, as_table, rows

    columns = options.columns or (None if options.json else list(DEFAULT_COLUMNS))
    files, code = _indexes(options, _files(options, INDEX, RAW))

    def skipped(path: Path, part: Damaged) -> None:
        nonlocal code
        code = code or WRONG
        what = f"{part.end - part.start:,} bytes at {part.start} are damaged and skipped"
        if path.suffix != f".{RAW}":
            what += " (shoal capture verify)"
        report_errors([(str(path), what)], as_json=False)

    found = islice(rows(files, columns, _selection(options), skipped), options.limit)
    for line in as_json(found) if options.json else as_table(found, columns or ()):
        print(line)
    return code


def _selection(options: Namespace) -> Selection:
    from shoal.scenarios.capture.selection import Selection

    return Selection(
        topics=frozenset(options.topic) or None,
        clients=frozenset(options.client) or None,
        from_ns=options.from_ns,
        to_ns=options.to_ns,
    )


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
    print(f"{len(files)} file{'s'[: len(files) != 1]}, {rows:,} rows, {bad} with problems")
    return WRONG if bad else OK


def _compact(options: Namespace) -> int:
    from shoal.scenarios.capture.compact import compact, locked

    files, code = _indexes(options, _files(options, INDEX))
    progress, read = Progress(sys.stderr), 0
    sizes = {file: file.path.stat().st_size for file in files}

    def show(size: int) -> None:
        if progress.is_live:
            progress.update(file.path.name, read + size, sum(sizes.values()))

    with locked(options.out):
        for file in files:
            done, now = compact(file, options.out, show)
            progress.clear()
            read += sizes[file]
            if done is None:
                print(f"{file.path}: is still open for writing")
                continue
            what = f"{done.rows:,} rows, {done.size:,} bytes -> {', '.join(done.parts) or 'nothing'}"
            print(f"{file.path}: {what if now else 'was compacted before'}", flush=True)
            if options.remove and done.is_whole:
                file.path.unlink()
            elif options.remove:
                print(f"{file.path}: is kept: it is damaged or torn (shoal capture verify)")
    return code


def _to_pcap(options: Namespace) -> int:
    from shoal.protocol.capture.frames.frame_filter import FrameSelection
    from shoal.scenarios.capture.frames.to_pcap import to_pcap

    wanted = FrameSelection(
        topics=frozenset(options.topic),
        clients=frozenset(options.client),
        apis=frozenset(options.api),
    )
    files = _files(options, RAW)
    if options.out.exists() and any(file.path.samefile(options.out) for file in files):
        raise ToolError(f"--out: {options.out} is one of the captures, which it would replace")
    written = to_pcap(files, options.out, wanted, options.from_ns, options.to_ns)
    print(f"{options.out}: {written:,} frames")
    return OK
