"""`shoal` as real processes."""

from __future__ import annotations

import os
import resource
import socket
import subprocess
import sys
import threading
from contextlib import contextmanager, suppress
from itertools import count, islice
from pathlib import Path
from typing import TYPE_CHECKING

from shoal.scenarios.kafka.ports import free_ports

if TYPE_CHECKING:
    from collections.abc import Iterator

DEADLINE = 60.0  # on a machine that many tests share
CLUSTERS = ("--source", "a1:9092", "--target", "b1:9092")


def shoal(*arguments: str, stdin: str = "", cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "shoal", *arguments]
    environment = {**os.environ, "COLUMNS": "124", "PYTHONPATH": str(Path(__file__).parents[2])}
    return subprocess.run(
        command, input=stdin, capture_output=True, text=True, timeout=DEADLINE, check=False, env=environment, cwd=cwd
    )


@contextmanager
def running(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "shoal", *arguments],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, bufsize=1,
    )  # fmt: skip
    limit = threading.Timer(DEADLINE, process.kill)  # ends a wait for a missing line
    limit.start()
    try:
        yield process
    finally:
        limit.cancel()
        process.kill()
        process.communicate()


def mirror_flags(tmp_path: Path) -> tuple[list[str], list[int]]:
    """Clusters without a listening broker, and free ports for everything else."""
    source, target, first, second, dead = ports = free_ports(5)
    flags = [
        "--source", f"127.0.0.1:{dead}", "--target", f"127.0.0.2:{dead}",
        "--source-listen", f"127.0.0.1:{source}", "--target-listen", f"127.0.0.1:{target}",
        "--source-ports", f"{first}-{first}", "--target-ports", f"{second}-{second}",
        "--state-dir", str(tmp_path),
    ]  # fmt: skip
    return flags, ports


def read_until(process: subprocess.Popen[str], words: str) -> str:
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line)
        if words in line:
            return "".join(lines)
    raise AssertionError("".join(lines) + (process.stderr.read() if process.stderr else ""))


@contextmanager
def without_descriptors(pid: int, *, spare: int = 0) -> Iterator[None]:
    """The process (0: this one) can open nothing more, as at its limit of open files. `spare`: another one has so many
    left."""
    former, limit = resource.prlimit(pid, resource.RLIMIT_NOFILE), 3
    if spare:
        used = {int(name) for name in os.listdir(f"/proc/{pid}/fd")}
        limit = next(islice((number for number in count() if number not in used), spare, None))
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (limit, former[1]))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, former)


def knock(port: int) -> None:
    """Ask for ApiVersions (v0) at a listener whose broker cannot be reached, and see the connection end."""
    with socket.create_connection(("127.0.0.1", port), timeout=DEADLINE) as client, suppress(ConnectionResetError):
        client.sendall(b"\0\0\0\x0b\0\x12\0\0\0\0\0\1\0\1x")
        assert client.recv(1) == b""
