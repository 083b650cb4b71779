import io
from collections.abc import Callable

import trio

from shoal.scenarios.progress import Progress
from shoal.scenarios.replay.clock import showing_time


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def clock_of(now: list[float]) -> Callable[[], float]:
    return lambda: now[0]


def test_plain_progress_says_something_every_five_seconds() -> None:
    out, now = io.StringIO(), [0.0]
    progress = Progress(out, clock_of(now))
    for now[0] in (1.0, 4.9, 5.0, 5.1, 9.9, 10.0):
        progress.update(f"at {now[0]}")
    assert out.getvalue() == "at 5.0\nat 10.0\n"


def test_a_terminal_line_is_written_over_a_few_times_a_second() -> None:
    out, now = Terminal(), [0.0]
    progress = Progress(out, clock_of(now), columns=lambda: 80)
    for now[0], text in ((0.0, "one"), (0.1, "too soon"), (0.3, "two")):
        progress.update(text)
    progress.say("done")
    progress.update("three")
    assert out.getvalue() == "one\r\x1b[2Ktwo\r\x1b[2Kdone\nthree"


def test_a_line_longer_than_the_terminal_is_cut_so_that_it_can_be_written_over() -> None:
    out = Terminal()
    progress = Progress(out, columns=lambda: 10)
    progress.update("0123456789abc")
    assert out.getvalue() == "012345678"


def test_said_lines_postpone_the_next_plain_update() -> None:
    out, now = io.StringIO(), [0.0]
    progress = Progress(out, clock_of(now))
    now[0] = 4.0
    progress.say("said")
    now[0] = 6.0
    progress.update("too early")
    now[0] = 9.0
    progress.update("in time")
    assert out.getvalue() == "said\nin time\n"


def test_a_terminal_has_a_bar_and_the_time_that_is_left() -> None:
    out, now = Terminal(), [0.0]
    progress = Progress(out, clock_of(now), columns=lambda: 80)
    for now[0], done in ((0.0, 0), (30.0, 25), (60.0, 200)):
        progress.update("file", done, 100)
    lines = out.getvalue().split("\r\x1b[2K")
    assert lines[0] == "file  " + "─" * 24 + "   0%"
    assert lines[1] == "file  " + "━" * 6 + "─" * 18 + "  25%  1:30 left"
    assert lines[2] == "file  " + "━" * 24 + " 100%  0:00 left"


def test_elsewhere_a_percentage_is_enough() -> None:
    out, now = io.StringIO(), [0.0]
    progress = Progress(out, clock_of(now))
    progress.update("file", 0, 100)
    now[0] = 10.0
    progress.update("file", 50, 100)
    assert out.getvalue() == "file   50%  0:10 left\n"


def test_the_time_that_is_left_counts_from_the_first_update_of_a_step() -> None:
    out, now = io.StringIO(), [0.0]
    progress = Progress(out, clock_of(now))
    for now[0] in (0.0, 10.0, 20.0):
        progress.update("file", now[0], 40)
    progress.say("done")
    for now[0] in (20.0, 30.0):
        progress.update("next", now[0] - 20.0, 20)
    assert out.getvalue() == "file   25%  0:30 left\nfile   50%  0:20 left\ndone\nnext   50%  0:10 left\n"


async def test_the_time_of_a_block_is_shown_on_a_terminal(autojump_clock: object) -> None:
    out = Terminal()
    progress = Progress(out, trio.current_time, columns=lambda: 80)
    async with showing_time(progress, "replaying", 10.0):
        await trio.sleep(5.1)
    progress.say("done")
    shown = out.getvalue()
    assert "replaying: 5 s  " + "━" * 12 + "─" * 12 + "  50%  0:05 left" in shown
    assert shown.endswith("\r\x1b[2Kdone\n")
