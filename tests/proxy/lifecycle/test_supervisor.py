"""A supervisor's socket gets what sd_notify(3) defines, from the real process."""

from __future__ import annotations

import os
import signal
import socket
import time
from typing import TYPE_CHECKING

import pytest
import trio

from shoal.proxy.lifecycle.supervisor import keep_alive, notify
from shoal.scenarios.kafka.process import until
from tests.support.shoal_process import ShoalProcess, free_port_block, running_shoal

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TOML = """\
[[cluster]]
name = "c"
bootstrap = "127.0.0.1:1"
[[listener]]
name = "l"
cluster = "c"
listen = "127.0.0.1:{port}"
ports = "{first}-{last}"
"""


@pytest.fixture
def supervisor(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(str(tmp_path / "notify"))
        listening.settimeout(20)
        yield listening


async def next_of(supervisor: socket.socket) -> dict[str, str]:
    """The next message that is no sign of life."""
    while True:
        message = (await trio.to_thread.run_sync(supervisor.recv, 1000)).decode()
        if message != "WATCHDOG=1":
            return dict(line.split("=", 1) for line in message.splitlines())


async def test_the_life_of_a_process(supervisor: socket.socket, tmp_path: Path) -> None:
    port = free_port_block(4)
    config = tmp_path / "shoal.toml"
    config.write_text(TOML.format(port=port, first=port + 1, last=port + 3))
    env = {"NOTIFY_SOCKET": supervisor.getsockname(), "WATCHDOG_USEC": "600000"}
    began = time.monotonic_ns() // 1000
    async with running_shoal(ShoalProcess(["run", "-c", str(config)], work=tmp_path, ports=[port], env=env)) as shoal:
        assert await next_of(supervisor) == {"READY": "1", "STATUS": "serving 1 listeners"}
        for _ in range(3):
            alive = await trio.to_thread.run_sync(supervisor.recv, 1000)
            assert alive == b"WATCHDOG=1"
        os.kill(shoal.pid, signal.SIGHUP)
        reload = await next_of(supervisor)
        assert reload.pop("RELOADING") == "1"
        assert began < int(reload.pop("MONOTONIC_USEC")) <= time.monotonic_ns() // 1000
        assert not reload
        assert (await next_of(supervisor))["READY"] == "1"
        os.kill(shoal.pid, signal.SIGTERM)
        assert await next_of(supervisor) == {"STOPPING": "1"}
        await until(lambda: not shoal.running, within=20, what="shoal to end")  # a second signal would kill it


async def test_the_watchdog_is_another_process(
    monkeypatch: pytest.MonkeyPatch, supervisor: socket.socket, autojump_clock: trio.testing.MockClock
) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", supervisor.getsockname())
    supervisor.setblocking(False)
    for usec, pid in (("30000000", "1"), ("0", None), ("x", None), ("", None)):
        monkeypatch.setenv("WATCHDOG_USEC", usec)
        if pid is not None:
            monkeypatch.setenv("WATCHDOG_PID", pid)
        await keep_alive()
        monkeypatch.delenv("WATCHDOG_PID", raising=False)
        with pytest.raises(BlockingIOError):
            supervisor.recv(1)
    monkeypatch.setenv("WATCHDOG_USEC", "30000000")
    with trio.move_on_after(61):
        await keep_alive()
    assert [supervisor.recv(100) for _ in range(7)] == [b"WATCHDOG=1"] * 7  # three in each of its intervals


@pytest.mark.parametrize("address", ["", "/nowhere/notify", "@shoal-no-such-socket", "vsock:2:1", "/" + "x" * 200])
def test_a_supervisor_that_does_not_listen_changes_nothing(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", address)
    notify("READY=1")


def test_an_abstract_socket(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    name = f"shoal-test{tmp_path}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(f"\0{name}")
        monkeypatch.setenv("NOTIFY_SOCKET", f"@{name}")
        notify("READY=1", "STATUS=x")
        assert listening.recv(100) == b"READY=1\nSTATUS=x"
