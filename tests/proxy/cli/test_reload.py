"""Reloads of a whole process: SIGHUP at any time, `shoal reload`, and a file that changes."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
import trio

from shoal.proxy.lifecycle.control import NAME, ask_for_reload
from shoal.proxy.lifecycle.reloads import watch_file
from shoal.scenarios.kafka.process import until
from tests.support.admin import get_json, scrape
from tests.support.processes import without_descriptors
from tests.support.rig import fake_broker
from tests.support.shoal_process import ShoalProcess, free_port_block, running_shoal, write_toml

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from trio.testing import MockClock


def document(port: int, work: Path, **more: Any) -> dict[str, object]:
    return {
        "state-dir": str(work / "state"),
        "cluster": [{"name": "c", "bootstrap": "127.0.0.1:1"}],
        **more,
        "listener": [
            {"name": "l", "cluster": "c", "listen": f"127.0.0.1:{port}", "ports": f"{port + 1}-{port + 5}"},
            *more.get("listener", []),
        ],
    }


def shoal_of(port: int, work: Path, *flags: str, **more: Any) -> ShoalProcess:
    config = write_toml(work / "shoal.toml", document(port, work, **more))
    argv = ["run", "-c", str(config), "--log-format", "json", *flags]
    return ShoalProcess(argv, work=work, ports=[port])


def logged(shoal: ShoalProcess, event: str) -> list[Mapping[str, Any]]:
    return [line for line in shoal.json_lines() if line["event"] == event]


async def reload(work: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "shoal", "reload", "-c", str(work / "shoal.toml"), *flags]
    return await trio.to_thread.run_sync(lambda: subprocess.run(argv, capture_output=True, text=True, check=False))


async def test_shoal_reload_says_what_came_of_it(tmp_path: Path) -> None:
    port = free_port_block(20)
    absent = tmp_path / "absent"
    absent.mkdir()
    write_toml(absent / "shoal.toml", document(port, absent))
    async with running_shoal(shoal_of(port, tmp_path, "--log-level", "info")) as shoal:
        await until(lambda: (tmp_path / "state" / NAME).exists(), within=10, what="the socket")
        guest = {"name": "g", "cluster": "c", "listen": f"127.0.0.1:{port + 10}", "ports": f"{port + 11}-{port + 12}"}
        more = {"log": {"level": "error"}, "limits": {"drain-seconds": 3}, "listener": [guest]}
        write_toml(tmp_path / "shoal.toml", document(port, tmp_path, **more))
        done = await reload(tmp_path)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout == (
            "reloaded: applied: limits.drain-seconds, listener 'g' added; unchanged: cluster 'c', listener 'l'\n"
        )
        assert len(logged(shoal, "reloaded")) == 1, "the flag for the log's level is stronger than the file"

        with socket.create_server(("127.0.0.1", port + 15)):
            guest["listen"] = f"127.0.0.1:{port + 15}"
            write_toml(tmp_path / "shoal.toml", document(port, tmp_path, **more))
            refused = await reload(tmp_path, "--json")
        assert refused.returncode == 1
        assert json.loads(refused.stdout)["result"] == "refused"
        assert "Address already in use" in logged(shoal, "reload-refused")[0]["message"]

        (tmp_path / "shoal.toml").write_text("[[listner]]\n")
        wrong = await reload(tmp_path)
        assert wrong.returncode == 2
        assert 'did you mean "listener"' in wrong.stderr
        assert len(logged(shoal, "reload-refused")) == 1
        os.kill(shoal.pid, signal.SIGHUP)
        await until(lambda: len(logged(shoal, "reload-refused")) == 2, within=10, what="a refusal")

        nobody = await reload(absent)
        assert nobody.returncode == 2
        assert "no running Shoal uses" in nobody.stderr
    assert not (tmp_path / "state" / NAME).exists()


async def test_at_the_limit_of_open_files_a_reload_waits(tmp_path: Path) -> None:
    async with running_shoal(shoal_of(free_port_block(6), tmp_path)) as shoal, trio.open_nursery() as nursery:
        await until(lambda: (tmp_path / "state" / NAME).exists(), within=10, what="the socket")
        done: list[subprocess.CompletedProcess[str]] = []

        async def ask() -> None:
            done.append(await reload(tmp_path))

        with without_descriptors(shoal.pid):
            nursery.start_soon(ask)
            await until(lambda: bool(logged(shoal, "control-accept-failed")), within=60, what="the error")
        await until(lambda: bool(done), within=60, what="the answer")
        assert (done[0].returncode, done[0].stderr) == (0, "")


async def test_an_admin_listener_that_takes_the_last_descriptor_ends_nothing(tmp_path: Path) -> None:
    port = free_port_block(20)
    async with fake_broker() as made:
        more = {"cluster": [{"name": "c", "bootstrap": str(made.address)}]}
        async with running_shoal(shoal_of(port, tmp_path, **more)) as shoal:
            await until(lambda: bool(logged(shoal, "brokers-not-learned")), within=60, what="the broker")
            write_toml(
                tmp_path / "shoal.toml", document(port, tmp_path, admin={"listen": f"127.0.0.1:{port + 10}"}, **more)
            )
            with without_descriptors(shoal.pid, spare=1):
                os.kill(shoal.pid, signal.SIGHUP)
                await until(
                    lambda: bool(logged(shoal, "files-reread")), within=60, what="the reload", process=shoal.process
                )
            assert logged(shoal, "reloaded")
            assert (await get_json(port + 10, "/status"))["state"] == "serving"


async def test_the_admin_listener_opens_moves_and_closes(tmp_path: Path) -> None:
    port = free_port_block(20)
    first, second, taken = port + 10, port + 11, port + 12

    async def use(listen: int | None, *, drain: int = 1) -> str:
        admin = {} if listen is None else {"admin": {"listen": f"127.0.0.1:{listen}"}}
        write_toml(tmp_path / "shoal.toml", document(port, tmp_path, limits={"drain-seconds": drain}, **admin))
        return (await reload(tmp_path)).stdout

    async with running_shoal(shoal_of(port, tmp_path, limits={"drain-seconds": 1})) as shoal:
        await until(lambda: (tmp_path / "state" / NAME).exists(), within=10, what="the socket")
        assert "reloaded: applied: admin.listen;" in await use(first)
        assert (await get_json(first, "/status"))["listeners"][0]["name"] == "l"
        async with await trio.open_tcp_stream("127.0.0.1", first) as idle:
            assert "applied: admin.listen;" in await use(second)
            with trio.fail_after(20):
                assert await idle.receive_some() == b"", "a client of the port that is gone"
        assert b"shoal_build_info" in await scrape(second)
        with pytest.raises(OSError, match="all attempts to connect"):
            await scrape(first)
        with socket.create_server(("127.0.0.1", taken)):
            await use(taken, drain=2)
        assert "admin.listen: cannot listen on" in logged(shoal, "reload-refused")[0]["message"]
        assert (await get_json(second, "/config"))["limits"]["drain-seconds"] == 1, "all or nothing"
        assert "applied: limits.drain-seconds, admin.listen;" in await use(None, drain=2)
        with pytest.raises(OSError, match="all attempts to connect"):
            await scrape(second)
        socket.create_server(("127.0.0.1", second)).close()  # the port is free


async def test_sighup_while_shoal_starts_is_obeyed_when_it_serves(tmp_path: Path) -> None:
    port = free_port_block(6)
    shoal = shoal_of(port, tmp_path)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(shoal.start)
        await until(
            lambda: shoal._process is not None and "starting" in shoal.output(), within=60, what="its first line"
        )
        for _ in range(20):
            os.kill(shoal.pid, signal.SIGHUP)
            await trio.sleep(0.02)
    await until(lambda: bool(logged(shoal, "reloaded")), within=60, what="a reload")
    os.kill(shoal.pid, signal.SIGHUP)
    await shoal.stop()  # by SIGTERM, at the same time


async def test_a_configuration_map_of_kubernetes_is_watched(tmp_path: Path) -> None:
    port = free_port_block(6)
    for name, seconds in (("one", 1), ("two", 2)):
        write_toml(tmp_path / name / "shoal.toml", document(port, tmp_path, limits={"drain-seconds": seconds}))
    (tmp_path / "..data").symlink_to("one")
    (tmp_path / "shoal.toml").symlink_to("..data/shoal.toml")
    argv = ["run", "-c", str(tmp_path / "shoal.toml"), "--watch", "--log-format", "json"]
    async with running_shoal(ShoalProcess(argv, work=tmp_path, ports=[port])) as shoal:
        (tmp_path / "next").symlink_to("two")
        os.replace(tmp_path / "next", tmp_path / "..data")
        await until(lambda: bool(logged(shoal, "reloaded")), within=60, what="a reload")
        assert logged(shoal, "reloaded")[0]["applied"] == ["limits.drain-seconds"]
        assert not logged(shoal, "files-reread")


async def test_a_file_is_read_when_it_has_settled(
    tmp_path: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def at_once(call: Callable[[Path], object], path: Path) -> object:
        return call(path)

    monkeypatch.setattr(trio.to_thread, "run_sync", at_once)  # the clock does not see what threads do
    file = tmp_path / "file"
    file.write_text("one")
    changes = []
    looks = iter(["two, half", "two, whole", None, None, "three", None, None])

    async with trio.open_nursery() as nursery:
        autojump_clock.autojump_threshold = 0.05
        nursery.start_soon(watch_file, file, None, lambda: changes.append(file.read_text()))
        for text in looks:
            if text is not None:
                file.write_text(text)
            await trio.sleep(2.0)
        nursery.cancel_scope.cancel()
    assert changes == ["two, whole", "three"]


async def test_no_shoal_answers_at_a_socket_that_is_left(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(tmp_path / NAME))
    with pytest.raises(ConnectionRefusedError):
        await trio.to_thread.run_sync(ask_for_reload, tmp_path)


async def test_a_mirror_has_no_file(tmp_path: Path) -> None:
    ports = free_port_block(20)
    sides = [("source", ports), ("target", ports + 10)]
    argv = ["mirror", "--log-format", "json", "--state-dir", str(tmp_path / "state")]
    for host, (side, port) in enumerate(sides, 1):
        argv += [f"--{side}", f"127.0.0.{host}:1", f"--{side}-listen", f"127.0.0.1:{port}"]
        argv += [f"--{side}-ports", f"{port + 1}-{port + 5}"]
    async with running_shoal(ShoalProcess(argv, work=tmp_path, ports=[port for _, port in sides])) as shoal:
        os.kill(shoal.pid, signal.SIGHUP)
        await until(lambda: bool(logged(shoal, "files-reread")), within=10, what="the files")
        assert "are flags" in logged(shoal, "reload-ignored")[0]["message"]
