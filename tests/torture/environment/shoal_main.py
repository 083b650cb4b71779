"""`python -m shoal`, with stacks on demand: SIGUSR1 prints those of all threads, SIGUSR2 those of all tasks."""

from __future__ import annotations

import faulthandler
import signal
import sys
import traceback
from typing import TYPE_CHECKING

import trio

if TYPE_CHECKING:
    from types import FrameType


def _tasks(number: int, frame: FrameType | None) -> None:
    waiting = [trio.lowlevel.current_root_task()] if _runs() else []
    while waiting:
        task = waiting.pop()
        if task is None:
            continue
        lines = [f"  {frame.filename}:{frame.lineno} {frame.name}" for frame in _frames(task)]
        print(f"task {task.name}", *lines, sep="\n", file=sys.stderr)
        waiting += [child for nursery in task.child_nurseries for child in nursery.child_tasks]
    sys.stderr.flush()


def _runs() -> bool:
    try:
        trio.lowlevel.current_root_task()
    except RuntimeError:
        return False
    return True


def _frames(task: trio.lowlevel.Task) -> list[traceback.FrameSummary]:
    return list(traceback.StackSummary.extract(task.iter_await_frames()))


if __name__ == "__main__":
    from shoal.__main__ import main

    faulthandler.register(signal.SIGUSR1)
    signal.signal(signal.SIGUSR2, _tasks)
    main()
