import io
from collections.abc import Callable

from shoal.scenarios.progress import Progress


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
