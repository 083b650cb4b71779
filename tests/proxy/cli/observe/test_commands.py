"""The commands that ask a running Shoal, with a fake broker, and clients that choose hostile names."""

from __future__ import annotations

import json
import os
import pty
import signal
import socket
import sys
import termios
import threading
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING

import pytest
import trio

from shoal.cli import main
from shoal.command_line import printable
from shoal.proxy.admin.listener import AdminPort
from shoal.proxy.admin.pages import serve_admin
from shoal.proxy.cli.observe.question import NoAnswer, ask
from shoal.proxy.cli.observe.top import _line, _looks, _screen
from shoal.proxy.config.settings import Address
from tests.proxy.admin.test_pages import metadata_of_nobody
from tests.proxy.net.test_web import OK, drips
from tests.proxy.net.test_web import server as web_server
from tests.support.rig import Rig, request, rig, silent, until
from tests.support.shallow.rig import ShallowRig, shallow_rig

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from shoal.proxy.connection.clients import Clients

HOSTILE = "\x1b[2J\x1b]0;owned\x07\r\n\x9b31m\u202eevil"


@asynccontextmanager
async def admin(r: Rig | ShallowRig) -> AsyncIterator[Address]:
    port = AdminPort(Address("127.0.0.1", 0))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve_admin, port, r.server)
        yield port.address
        nursery.cancel_scope.cancel()


async def run(*arguments: str) -> int:
    return await trio.to_thread.run_sync(main, arguments)


async def met(r: Rig, *frames: bytes) -> None:
    client = await r.client()
    for frame in frames:
        await client.send(frame)
    await until(lambda: len(r.broker.received) >= len(frames))


async def test_clients_that_block_kafka_4_are_first(capsys: pytest.CaptureFixture[str]) -> None:
    async with rig(silent) as r, admin(r) as address:
        await met(r, request(1, 11, 1, client_id=b"modern"))
        await met(r, request(1, 2, 1, client_id=b"old"), request(3, 0, 1, client_id=b"old"))
        assert await run("clients", "--admin", f"{address}", "--apis") == 0
        text = capsys.readouterr().out
        rows = [line.split() for line in text.splitlines()]
        assert [row[0] for row in rows[1:3]] == ["old", "modern"]
        assert "yes: Fetch v2" in text
        assert "2 clients (2 connected now), 1 block Kafka 4" in text
        assert "  Metadata v0" in text
        assert await run("clients", "--admin", f"{address}", "--json", "--blocking") == 0
        (client,) = json.loads(capsys.readouterr().out)["clients"]
        assert (client["client_id"], client["blocking"]) == ("old", ["Fetch v2"])
        assert client["apis"][0] == {"api": "Fetch", "oldest": 2, "newest": 2}


async def test_hostile_names_do_not_reach_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    async with rig(silent) as r, admin(r) as address:
        await met(r, request(1, 2, 1, client_id=(HOSTILE + "x" * 30_000).encode()))
        for command in (("clients",), ("clients", "--apis"), ("clients", "--json"), ("status",), ("top", "--count=1")):
            await run(*command, "--admin", f"{address}")
            text = capsys.readouterr().out
            assert all(one == "\n" or one.isprintable() for one in text)
            assert command != ("clients",) or "\\x1b[2J" in text
            assert len(text) < 10_000


async def test_forgotten_clients_are_one_sum(capsys: pytest.CaptureFixture[str]) -> None:
    async with rig(silent) as r, admin(r) as address:
        clients = r.server.clients
        clients._most = 1
        for name in (b"a", b"b"):
            client = await r.client()
            await client.send(request(1, 2, 1, client_id=name))
            await until(lambda name=name: any(one.name.client_id == name.decode() for one in clients))  # type: ignore[misc]
            await client.leave()
            await until(lambda: not r.listener.connections)
        await run("clients", "--admin", f"{address}")
        text = capsys.readouterr().out
        assert "and 1 forgotten" in text
        assert "some block Kafka 4 (Fetch v2)" in text


async def test_ten_thousand_clients_are_answered_in_slices(capsys: pytest.CaptureFixture[str]) -> None:
    from tests.proxy.connection.test_clients import REQUEST, fake

    async with rig(silent) as r, admin(r) as address:
        clients: Clients = r.server.clients
        for number in range(10_000):
            connection = fake(f"client {number:05}")
            clients.first_use(connection, "test", REQUEST)
            clients.ended(connection)
        assert await run("clients", "--admin", f"{address}", "--json") == 0
        assert len(json.loads(capsys.readouterr().out)["clients"]) == 10_000


async def test_every_command_reads_the_status_of_a_mirror(capsys: pytest.CaptureFixture[str]) -> None:
    async with shallow_rig() as r, admin(r) as address:
        assert await run("status", "--admin", f"{address}", "--json") == 0
        (wrap, _) = json.loads(capsys.readouterr().out)["status"]["listeners"]
        assert wrap["clusters_differ"] is True
        for command in ("top", "--count", "1"), ("clients",):
            assert await run(*command, "--admin", f"{address}") == 0


async def test_a_full_disk_under_standard_output_is_an_error(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with rig(silent) as r, admin(r) as address:
        await met(r, *(request(3, 0, number, client_id=b"client-%d" % number) for number in range(20)))
        with open("/dev/full", "w", encoding="utf-8") as full:  # noqa: ASYNC230
            monkeypatch.setattr("sys.stdout", full)
            assert await run("clients", "--admin", f"{address}") == 2
        monkeypatch.undo()
    assert "standard output: cannot be written" in capsys.readouterr().err


async def test_status_says_that_all_is_well(capsys: pytest.CaptureFixture[str]) -> None:
    async with rig(metadata_of_nobody) as r, admin(r) as address:
        assert await run("status", "--admin", f"{address}") == 0
        assert "\nhealthy\n" in capsys.readouterr().out


async def test_status_says_what_is_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    async with rig(silent) as r, admin(r) as address:
        r.listener.cluster.contact.note(f"cannot reach the broker {HOSTILE}")
        r.listener.state_failed()
        assert await run("status", "--admin", f"{address}") == 1
        text = capsys.readouterr().out
        assert "NOT HEALTHY" in text
        assert "  - listener 'test': 1 state files could not be written: see the log\n" in text
        assert "cannot reach the broker \\x1b[2J" in text
        assert await run("status", "--admin", f"{address}", "--json") == 1
        found = json.loads(capsys.readouterr().out)
        assert found["healthy"] is False
        assert "listener 'test': 1 state files could not be written: see the log" in found["problems"]


async def test_status_does_not_say_that_a_silent_cluster_answers(capsys: pytest.CaptureFixture[str]) -> None:
    async with rig(silent) as r, admin(r) as address:
        assert await run("status", "--admin", f"{address}") == 1
        text = capsys.readouterr().out
        assert "  - cluster 'c': no answer yet\n" in text
        (row,) = (line for line in text.splitlines() if line.startswith("c  "))
        assert row.endswith("no answer yet")


async def test_top_says_when_shoal_stops_answering_and_goes_on() -> None:
    async with rig(silent) as r:
        async with admin(r) as address:
            looks = _looks(address)
            first = await trio.to_thread.run_sync(next, looks)
            await met(r, request(1, 11, 1), request(1, 11, 2))
            second = await trio.to_thread.run_sync(next, looks)
            assert first.rates[0].requests == 0 < second.rates[0].requests
            assert "serving, 1 client" in _line(second)
        gone = await trio.to_thread.run_sync(next, looks)
        assert "no answer: " in _line(gone)
        assert _screen(gone, "here")
        port = AdminPort(address)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(serve_admin, port, r.server)
            back = await trio.to_thread.run_sync(next, looks)
            assert not back.silent
            assert back.rates[0].requests == 0  # from here on
            nursery.cancel_scope.cancel()


async def test_top_gives_the_terminal_back_when_it_is_ended() -> None:
    terminal, end = pty.openpty()
    before = termios.tcgetattr(end)
    async with rig(silent) as r, admin(r) as address:
        command = [sys.executable, "-m", "shoal", "top", "--admin", f"{address}"]
        environment = {**os.environ, "TERM": "xterm"}
        process = await trio.lowlevel.open_process(command, stdin=end, stdout=end, stderr=end, env=environment)
        try:
            with trio.fail_after(60):
                await _until_written(terminal, b"q ends")  # on another screen
                process.send_signal(signal.SIGTERM)
                await _until_written(terminal, b"\x1b[?1049l")
                assert await process.wait() == 0
        finally:
            process.kill()
            with trio.CancelScope(shield=True):
                await process.wait()
    assert termios.tcgetattr(end) == before
    os.close(terminal)
    os.close(end)


async def _until_written(terminal: int, wanted: bytes) -> None:
    seen = b""
    while wanted not in seen:
        await trio.lowlevel.wait_readable(terminal)
        seen += os.read(terminal, 4096)


@contextmanager
def server(answer: bytes) -> Iterator[Address]:
    """Gives this answer to the first client, and closes."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            client, _ = listening.accept()
            with client:
                client.recv(4096)
                client.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        yield Address(*listening.getsockname()[:2])
        thread.join()


def http(body: bytes, status: str = "200 OK") -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (http(b"<html>"), "not as Shoal's admin listener"),
        (http(b"[" * 100_000), "not as Shoal's admin listener"),
        (http(b'{"clients": [{"client_id": 7}]}'), "not as Shoal's admin listener"),
        (http(b"{}"), "not as Shoal's admin listener"),
        (http(b"no", "404 Not Found"), "has no /clients"),
        (http(b"not in time\n", "503 Service Unavailable"), "has no answer to /clients: not in time"),
        (b"SSH-2.0-\x1b[2J\r\n", "not as Shoal's admin listener: BadStatusLine SSH-2.0-\\x1b[2J"),
        (b"", "not as Shoal's admin listener"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{", "not as Shoal's admin listener"),
    ],
)
def test_another_program_answers(answer: bytes, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    with server(answer) as address:
        assert main(["clients", "--admin", f"{address}"]) == 2
    text = capsys.readouterr().err
    assert words in text
    assert "Traceback" not in text
    assert text.strip("\n").isprintable()


@pytest.mark.parametrize("head", [b"", OK, OK + b"X: ", OK + b"Content-Length: 99999\r\n\r\n"])
def test_an_answer_that_drips_ends_in_time(head: bytes) -> None:
    stop = threading.Event()
    with web_server(drips(head, stop)) as url:
        port = int(url.removesuffix("/keys").rpartition(":")[2])
        with pytest.raises(NoAnswer, match=r"gives no whole answer within 0\.5 s"):
            ask(Address("127.0.0.1", port), "/status", seconds=0.5)
        stop.set()


def test_nothing_answers(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as one:
        address = Address(*one.getsockname()[:2])
    for command in ("clients", "status", "top"):
        assert main([command, "--admin", f"{address}"]) == 2
        assert "Switch it on: shoal run or mirror with --admin 127.0.0.1:9190" in capsys.readouterr().err
    with pytest.raises(NoAnswer):
        ask(address, "/status")


TOML = """
[[cluster]]
name = "c"
bootstrap = "127.0.0.1:19092"
[[listener]]
name = "plain"
cluster = "c"
listen = "127.0.0.1:29092"
ports = "29093-29099"
"""


async def test_the_address_is_taken_from_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "shoal.toml"
    file.write_text(TOML)
    assert main(["clients", "-c", f"{file}"]) == 2
    assert 'add [admin] listen = "127.0.0.1:9190"' in capsys.readouterr().err
    async with rig(silent) as r, admin(r) as address:
        file.write_text(f'{TOML}[admin]\nlisten = "0.0.0.0:{address.port}"\n')
        assert await run("clients", "-c", f"{file}") == 0
    assert "0 clients" in capsys.readouterr().out


def test_texts_of_clients_are_escaped_and_others_are_not() -> None:
    assert printable(HOSTILE) == "\\x1b[2J\\x1b]0;owned\\x07\\r\\n\\x9b31m\\u202eevil"
    assert printable("größe 配送 [bold]x[/bold]") == "größe 配送 [bold]x[/bold]"
