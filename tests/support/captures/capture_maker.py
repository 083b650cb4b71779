"""A process that fills an index as fast as it can, until it is killed: `python -m tests.support.captures.capture_maker
DIRECTORY`."""

import sys
from pathlib import Path

import trio

from shoal.protocol.capture.index.columns import CONTEXT, NO_RECORDS
from shoal.proxy.capture.index import Capture
from shoal.proxy.config.settings import CaptureSettings


def a_row(capture: Capture, number: int) -> bytes:
    """A row of request `number`, by one of ten clients."""
    client = capture.number(f"client-{number % 10}")
    context = CONTEXT.pack(number, -1, 1, number, client, *[0] * 6, -1, -1, -1, 0, -1, -1, 0, 0, -2, 0, 0, 2, 0, 0)
    return context + NO_RECORDS


async def main(directory: Path) -> None:
    capture, number = Capture(CaptureSettings(directory=directory), {}, lambda _, __: None), 0
    while True:
        for _ in range(100):
            number += 1
            capture.add(a_row(capture, number))
        await capture.flush()
        print(number, flush=True)


if __name__ == "__main__":
    trio.run(main, Path(sys.argv[1]))
