"""`shoal top`: a running Shoal, live. On a terminal one screen, else one line for each interval."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections import Counter
from contextlib import contextmanager
from itertools import count
from typing import TYPE_CHECKING, Final, NamedTuple

from shoal.command_line import printable, say, whole
from shoal.proxy.cli.exit_codes import OK
from shoal.proxy.cli.observe.documents import Ready, Status
from shoal.proxy.cli.observe.problems import problems, unwrapped
from shoal.proxy.cli.observe.question import NoAnswer, admin_address, admin_parser, ask
from shoal.proxy.cli.observe.rates import Rates, rates
from shoal.proxy.cli.observe.tables import bytes_text, table
from shoal.proxy.config.quantities import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from rich.console import RenderableType

    from shoal.command_line import Parser
    from shoal.proxy.config.settings import Address

__all__ = ["main", "parser"]

_MOST_ROWS: Final = 12  # of problems, and of topics that are not wrapped
_END = """\
keys: q ends (so does Ctrl-C).

If standard output is no terminal, each interval is one line. If Shoal stops
answering, top says so and asks again. It ends with code 2 only if there is no
answer at the start.

examples:
  shoal top
  shoal top --interval 10 >>shoal-top.log
  shoal top --count 1
"""


class Look(NamedTuple):
    """What one interval has found. `status`: the last one that was answered."""

    status: Status
    rates: list[Rates]
    problems: list[str]
    silent: str = ""  # why there was no answer


def main(arguments: Sequence[str]) -> int:
    """Raises OperatorError and OutputError."""
    flags = parser().parse_args(arguments)
    address = admin_address(flags)
    looks = _looks(address)
    first = next(looks)
    try:
        if sys.stdout.isatty():
            _live(first, looks, flags.interval, flags.count, f"{address}")
        else:
            _lines(first, looks, flags.interval, flags.count)
    except KeyboardInterrupt:
        pass
    return OK


def parser() -> Parser:
    found = admin_parser("top", "Watch a running Shoal.", _END)
    what = "seconds between two looks (default: 2)"
    found.add_argument("--interval", type=whole(1, 3600), default=2, metavar="SECONDS", help=what)
    what = "end after so many looks (default: none)"
    found.add_argument("--count", type=whole(1, 1_000_000_000), metavar="N", help=what)
    return found


def _looks(address: Address) -> Iterator[Look]:
    """Without end; the first one raises NoAnswer."""
    before, at = None, 0.0
    look: Look | None = None
    while True:
        try:
            status = ask(address, "/status").read(Status, address)
            ready = ask(address, "/readyz").read(Ready, address)
        except NoAnswer as error:
            if look is None:
                raise
            look, before = look._replace(rates=[], silent=str(error)), None
        else:
            now = time.monotonic()
            look = Look(status, rates(before, status, now - at), problems(status, ready, time.time()))
            before, at = status, now
        yield look


# -- lines -------------------------------------------------------------------------------------------------------------


def _lines(first: Look, looks: Iterator[Look], seconds: float, most: int | None) -> None:
    """The first look has no rates, so its line says so by its zeros."""
    look = first
    for number in count(1):
        say(_line(look))
        if number == most:
            return
        time.sleep(seconds)
        look = next(looks)


def _line(look: Look) -> str:
    at = time.strftime("%Y-%m-%d %H:%M:%S")
    if look.silent:
        return printable(f"{at} no answer: {look.silent}")
    every = look.rates
    parts = [
        f"{look.status.state}, {counted(sum(row.listener.connections for row in every), 'client')}",
        f"{sum(row.requests for row in every):.0f} requests/s",
        f"{bytes_text(sum(row.received for row in every))}/s received",
        f"{bytes_text(sum(row.sent for row in every))}/s sent",
    ]
    mirrors = [mirror for row in every for mirror in row.listener.mirrors]
    if mirrors:
        behind = max(mirror.lag_seconds for mirror in mirrors)
        parts.append(f"behind by {sum(mirror.lag_records for mirror in mirrors)} records ({behind:g} s)")
    parts += [f"raw: {text}" for text in [_counts(row.raw for row in every)] if text]
    parts += [f"failed: {text}" for text in [_counts(row.failed for row in every)] if text]
    parts += [f"{counted(len(look.problems), 'problem')}: {look.problems[0]}"] if look.problems else []
    return printable(f"{at} {', '.join(parts)}")


def _counts(every: Iterable[object]) -> str:
    total: Counter[str] = Counter()
    for row in every:
        total.update(row)  # type: ignore[call-overload]
    return ", ".join(f"{name} {number}" for name, number in total.most_common())


# -- a screen ----------------------------------------------------------------------------------------------------------

_ENDS = frozenset({signal.SIGINT, signal.SIGTERM})


def _live(first: Look, looks: Iterator[Look], seconds: float, most: int | None, where: str) -> None:
    from rich.live import Live

    look = first
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # the terminal gets its screen and its echo back
    signal.pthread_sigmask(signal.SIG_BLOCK, _ENDS)  # also if a signal comes before all of this is begun
    with _keys() as is_quit, Live(_screen(look, where), screen=True, auto_refresh=False) as live:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDS)
        for number in count(1):
            live.update(_screen(look, where), refresh=True)
            if number == most or is_quit(seconds):
                return
            look = next(looks)


@contextmanager
def _keys() -> Iterator[Callable[[float], bool]]:
    """-> wait for so many seconds, or until q is pressed (True). Without a terminal as input there are no keys."""
    if not sys.stdin.isatty():
        yield _slept
        return
    import select
    import termios
    import tty

    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    tty.setcbreak(descriptor)

    def wait(seconds: float) -> bool:
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if select.select([descriptor], [], [], left)[0] and os.read(descriptor, 1) in (b"q", b"Q", b""):
                return True
        return False

    try:
        yield wait
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def _slept(seconds: float) -> bool:
    time.sleep(seconds)
    return False


def _screen(look: Look, where: str) -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    status = look.status
    head = f"Shoal {status.version} at {where}: {status.state}, {time.strftime('%H:%M:%S')}, q ends"
    parts: list[RenderableType] = [Text(printable(head), style="bold")]
    if look.silent:
        parts.append(Text(printable(f"no answer: {look.silent}"), style="bold red"))
    columns = ("listener", "mode", ">clients", ">in flight", ">requests/s", ">received/s", ">sent/s", "raw, failed")
    parts += [Text(), table(columns, map(_row, look.rates))]
    mirrors = [(row.listener.name, mirror) for row in look.rates for mirror in row.listener.mirrors]
    if mirrors:
        rows = (
            (
                mirror.mirror,
                name,
                mirror.partitions,
                mirror.lag_records,
                bytes_text(mirror.lag_bytes),
                mirror.lag_seconds,
            )
            for name, mirror in mirrors
        )
        parts += [Text(), table(("mirror", "listener", ">partitions", ">behind, records", ">bytes", ">seconds"), rows)]
    raw = [topic for row in look.rates for topic in unwrapped(row.listener)]
    if raw:
        parts += [Text(), table(("mirror", "topic", "state", "why it is not wrapped"), raw[:_MOST_ROWS])]
    parts.append(Text())
    parts += [Text(printable(problem), style="red") for problem in look.problems[:_MOST_ROWS]]
    return Group(*parts, Text("" if look.problems or look.silent else "healthy", style="green"))


def _row(one: Rates) -> Iterator[object]:
    listener = one.listener
    yield from (listener.name, listener.mode, listener.connections, listener.in_flight, f"{one.requests:.0f}")
    yield from (bytes_text(one.received), bytes_text(one.sent))
    yield ", ".join(text for text in (_counts([one.raw]), _counts([one.failed])) if text)
