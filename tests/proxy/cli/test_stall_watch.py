"""The stall watch of the event loop: alone, check by check, and in processes that hang, are stopped, or are
debugged."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest
import trio

from shoal.proxy.cli.exit_codes import STALLED
from shoal.proxy.cli.serving.stall_watch import StallWatch

if TYPE_CHECKING:
    from collections.abc import Iterator

DEADLINE = 60.0


@pytest.fixture
def exits() -> list[int]:
    return []


@pytest.fixture
def watch(exits: list[int]) -> StallWatch:
    """Checks every half second."""
    return StallWatch(report=2.0, end=5.0, exit=exits.append)


def look(watch: StallWatch, times: int) -> None:
    for _ in range(times):
        watch.check()


def test_a_loop_that_turns_is_left_alone(watch: StallWatch, exits: list[int], caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(100):
        watch.beats += 1
        look(watch, 4)
    assert not exits
    assert not caplog.records


def ids(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.event for record in caplog.records]  # type: ignore[attr-defined]


def test_it_says_so_once_and_ends_once_the_time_has_come(
    watch: StallWatch, exits: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    look(watch, 1)
    look(watch, 3)
    assert not caplog.records
    look(watch, 6)
    assert ids(caplog)[:2] == ["loop-blocked", "stack"]
    assert caplog.messages[0].startswith("the event loop is blocked: no client is served")
    assert not exits
    watch.check()
    assert exits == [STALLED]
    assert [record.levelname for record in caplog.records].count("CRITICAL") == 1


def test_a_loop_that_goes_on_is_forgiven(watch: StallWatch, exits: list[int], caplog: pytest.LogCaptureFixture) -> None:
    look(watch, 10)
    watch.beats += 1
    look(watch, 10)
    assert not exits
    assert (ids(caplog).count("loop-runs-again"), ids(caplog).count("loop-blocked")) == (1, 2)


@pytest.mark.parametrize(("report", "end"), [(0.0, 5.0), (2.0, 0.0)])
def test_0_turns_either_off(report: float, end: float, exits: list[int], caplog: pytest.LogCaptureFixture) -> None:
    look(StallWatch(report=report, end=end, exit=exits.append), 9)
    assert bool(caplog.records) is bool(report)
    look(StallWatch(report=report, end=end, exit=exits.append), 11)
    assert bool(exits) is bool(end)


def test_a_debugger_is_no_stall(watch: StallWatch, exits: list[int]) -> None:
    before = sys.gettrace()
    sys.settrace(lambda *_: None)
    frame = sys._getframe()
    frame.f_trace = lambda *_: None
    try:
        look(watch, 20)
    finally:
        frame.f_trace = None
        sys.settrace(before)
    assert not exits


async def test_tasks_can_be_read_while_the_loop_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    """A thread reads hundreds of tasks that start and end."""
    watch = StallWatch(report=2.0, end=0.0)

    async def short(number: int) -> None:
        for _ in range(number % 7):
            await trio.lowlevel.checkpoint()

    def read() -> None:
        for _ in range(30):
            watch._blocked(2.0)

    watch._root = trio.lowlevel.current_root_task()
    async with trio.open_nursery() as nursery:
        over = trio.Event()

        async def reading() -> None:
            await trio.to_thread.run_sync(read)
            over.set()

        nursery.start_soon(reading)
        while not over.is_set():
            for number in range(50):
                nursery.start_soon(short, number)
            await trio.lowlevel.checkpoint()
    assert {*ids(caplog)} == {"loop-blocked", "stack"}


HANGING = """
import logging, sys, trio
from shoal.proxy.events.logs import set_up_logs
from shoal.proxy.config.settings import LogSettings
from shoal.proxy.cli.serving.stall_watch import StallWatch

async def waits_for_ever():
    await trio.sleep_forever()

async def goes_round():
    await trio.sleep(0)
    while True:
        pass

async def logs_to_nobody():
    await trio.sleep(0)
    while True:
        logging.getLogger("shoal").error("x" * 100_000)

async def listens():
    print("ready", flush=True)
    await trio.to_thread.run_sync(sys.stdin.read)
    nursery.cancel_scope.cancel()

async def main():
    global nursery
    async with trio.open_nursery() as nursery:
        nursery.start_soon(StallWatch(report={report}, end={end}, last_words={words}).run)
        for _ in range(3):
            nursery.start_soon(waits_for_ever)
        nursery.start_soon({task})

set_up_logs(LogSettings())
trio.run(main)
"""


@pytest.fixture
def processes() -> Iterator[list[subprocess.Popen[str]]]:
    started: list[subprocess.Popen[str]] = []
    yield started
    for process in started:
        process.kill()
        process.communicate()


def start(
    processes: list[subprocess.Popen[str]], task: str, *, report: float, end: float, words: float = 2.0
) -> subprocess.Popen[str]:
    code = HANGING.format(task=task, report=report, end=end, words=words)
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process = subprocess.Popen([sys.executable, "-c", code], text=True, **pipes)  # type: ignore[call-overload]
    processes.append(process)
    return process  # type: ignore[no-any-return]


def test_a_process_that_hangs_says_where_and_ends(processes: list[subprocess.Popen[str]]) -> None:
    process = start(processes, "goes_round", report=0.4, end=1.0)
    _, said = process.communicate(timeout=DEADLINE)
    assert process.returncode == STALLED
    (running,) = (line for line in said.splitlines() if "task=running" in line)
    assert running.rstrip('"').endswith(" goes_round")
    (waiting,) = (line for line in said.splitlines() if "waits_for_ever" in line)
    assert "tasks=3" in waiting
    assert "_timeouts.py" in waiting, "where it waits"
    assert said.splitlines()[-1].endswith("exit_code=4")


def test_a_process_whose_log_nobody_reads_ends_too(processes: list[subprocess.Popen[str]]) -> None:
    process = start(processes, "logs_to_nobody", report=0.4, end=0.8, words=0.2)
    assert process.wait(DEADLINE) == STALLED


def test_a_process_that_was_stopped_has_not_stalled(processes: list[subprocess.Popen[str]]) -> None:
    process = start(processes, "listens", report=0.4, end=0.8)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    for _ in range(2):
        process.send_signal(signal.SIGSTOP)
        os.waitpid(process.pid, os.WUNTRACED)
        time.sleep(1.5)  # time must pass: there is no event to wait for
        process.send_signal(signal.SIGCONT)
    _, said = process.communicate("", timeout=DEADLINE)
    assert (process.returncode, said) == (0, "")
