import os
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from shoal.scenarios.kafka.errors import HarnessError, NotReady, SetupError
from shoal.scenarios.kafka.java.jars import require
from shoal.scenarios.kafka.process import Process, Usage, together, until, usage

DEAF = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready', flush=True); signal.pause()"
OBEDIENT = "import signal; print('ready', flush=True); signal.pause()"


@pytest.fixture
def started(tmp_path: Path) -> Iterator["Starter"]:
    starter = Starter(tmp_path)
    yield starter
    for process in starter.processes:
        if process.running:
            process.kill()


class Starter:
    def __init__(self, work: Path) -> None:
        self.work = work
        self.processes: list[Process] = []

    async def python(self, code: str, *, ready: bool = True) -> Process:
        process = Process([sys.executable, "-c", code], log=self.work / "log", name="python")
        self.processes.append(process)
        if ready:
            await process.until_printed("ready", within=20)
        return process


async def test_stop_ends_a_process_that_obeys(started: Starter) -> None:
    process = await started.python(OBEDIENT)

    assert await process.stop(within=20)
    assert not process.running


async def test_stop_kills_a_process_that_does_not_obey(started: Starter) -> None:
    process = await started.python(DEAF)

    assert not await process.stop(within=0.1)
    assert process.exit_code == -9


async def test_a_wait_for_a_process_that_ended_fails_at_once_with_its_last_words(started: Starter) -> None:
    process = await started.python("print('the reason'); raise SystemExit(7)", ready=False)

    with pytest.raises(NotReady, match=r"(?s)ended with 7\n.*the reason"):
        await process.until_printed("ready", within=60)


async def test_a_wait_ends_at_its_deadline() -> None:
    with pytest.raises(NotReady, match=r"waited 0\.05 s for the impossible"):
        await until(lambda: False, within=0.05, what="the impossible")


async def test_a_restart_appends_to_the_log_and_hears_only_itself(started: Starter) -> None:
    first = await started.python("print('ready, first', flush=True); import signal; signal.pause()")
    first.kill()
    second = await started.python(OBEDIENT)

    assert second.output() == "ready\n"
    assert second.log.read_text() == "ready, first\nready\n"


async def test_usage_counts_cpu_seconds_and_peak_memory(started: Starter) -> None:
    burn = "import os; b = b'x' * 50_000_000; del b\nwhile sum(os.times()[:2]) < 0.3: pass\n"
    process = await started.python(burn + OBEDIENT)
    used = process.usage()
    process.kill()

    assert 0.25 <= used.cpu_s < 5
    assert 50 < used.peak_mib < 150
    with pytest.raises(ProcessLookupError):
        usage(process.pid)


def test_usage_since_an_earlier_one_keeps_the_peak() -> None:
    earlier, later = Usage(cpu_s=1.0, peak_mib=10.0), Usage(cpu_s=3.5, peak_mib=20.0)

    assert later.since(earlier) == Usage(cpu_s=2.5, peak_mib=20.0)


async def test_children_do_not_outlive_a_parent_that_is_killed(tmp_path: Path) -> None:
    parent = textwrap.dedent(
        f"""
        import os, signal, sys
        from pathlib import Path
        from shoal.scenarios.kafka.process import Process
        child = Process([sys.executable, "-c", {OBEDIENT!r}], log=Path({str(tmp_path / "log")!r}), name="child")
        while "ready" not in child.output(): pass
        print(child.pid, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
        """
    )
    done = await trio.run_process([sys.executable, "-c", parent], capture_stdout=True, check=False)
    child = int(done.stdout)

    await until(lambda: not _alive(child), within=20, what="the child to end")


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except (ProcessLookupError, FileNotFoundError):
        return False


async def test_of_several_that_fail_together_the_first_error_comes_out() -> None:
    async def fails() -> None:
        raise HarnessError("this one")

    with pytest.raises(HarnessError, match="this one"):
        await together(fails, fails)


def test_a_missing_program_is_named_with_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")

    with pytest.raises(
        SetupError, match=r"java, mvn not found\. On Debian: apt-get install default-jre-headless maven"
    ):
        require("java", "mvn")
