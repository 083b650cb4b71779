"""Two Shoals one after the other, as processes: no connection is refused, and a takeover that fails changes nothing."""

from __future__ import annotations

import os
import signal
import socket
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
import trio

from shoal.proxy.lifecycle.channel import Channel, Word
from shoal.proxy.lifecycle.state_directory import StateDirectory, short_path
from shoal.scenarios.kafka.ports import free_port_block
from shoal.scenarios.kafka.process import until
from tests.support.processes import without_descriptors
from tests.support.rig import BrokerSide, FakeBroker, Peer, fake_broker, request
from tests.support.shoal_process import ShoalProcess, listening_ports, running_shoal, write_toml

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from pathlib import Path


def configured(work: Path, made: FakeBroker, port: int, **listener: object) -> ShoalProcess:
    document: Mapping[str, object] = {
        "state-dir": str(work / "state"),
        "cluster": [{"name": "c", "bootstrap": str(made.address)}],
        "listener": [
            {"name": "l", "cluster": "c", "listen": f"127.0.0.1:{port}", "ports": f"{port + 1}-{port + 5}"} | listener
        ],
        "limits": {"drain-seconds": 60},
    }
    toml = write_toml(work / f"shoal-{port}-{len(listener)}.toml", document)
    return ShoalProcess(["run", "-c", str(toml)], work=work, ports=[port])


async def ask(port: int, number: int) -> None:
    """One brief client."""
    async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
        client = Peer(stream)
        await client.send(request(300, 0, number, b"%d" % number))
        assert (await client.frame()).endswith(b"%d" % number)


async def test_clients_connect_all_the_time_and_none_is_refused(tmp_path: Path) -> None:
    """Also the third and fourth Shoal: what one got, it passes on."""
    port, answered, over = free_port_block(6), 0, False
    async with fake_broker() as made, running_shoal(configured(tmp_path, made, port)) as shoal:

        async def connect_on() -> None:
            nonlocal answered
            while not over:
                try:
                    await ask(port, answered)
                except (AssertionError, trio.BrokenResourceError):  # its request was not read when the connection ended
                    continue
                answered += 1

        async with trio.open_nursery() as nursery:
            nursery.start_soon(connect_on)
            for _ in range(3):
                await shoal.take_over()
            over = True
        before = answered
        await ask(port, before)
        assert before > 0
        assert listening_ports(shoal.pid) >= {port}
        assert (tmp_path / "state" / "shoal.lock").read_text() == f"{shoal.pid}\n"
    assert not (tmp_path / "state" / "takeover.sock").exists()


@asynccontextmanager
async def in_flight(made: FakeBroker, port: int) -> AsyncIterator[tuple[Peer, trio.Event]]:
    """A client with a request that is answered when the event is set; others are answered at once."""
    go_on, echo = trio.Event(), made.answer

    async def answer(side: BrokerSide, frame: bytes) -> None:
        if frame.endswith(b"in flight"):
            await go_on.wait()
        await echo(side, frame)

    made.answer = answer
    async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
        client = Peer(stream)
        await client.send(request(300, 0, 1, b"in flight"))
        while not any(frame.endswith(b"in flight") for frame in made.received):  # noqa: ASYNC110 (of another process)
            await trio.sleep(0.01)
        yield client, go_on


async def test_a_request_in_flight_is_answered_by_the_shoal_that_read_it(tmp_path: Path) -> None:
    port = free_port_block(6)
    async with (
        fake_broker() as made,
        running_shoal(configured(tmp_path, made, port)) as shoal,
        in_flight(made, port) as (client, go_on),
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(shoal.take_over)
        await shoal_says(tmp_path, "took over from process")
        await ask(port, 2)
        go_on.set()
        assert (await client.frame()).endswith(b"in flight")
        assert await client.at_end()


async def shoal_says(work: Path, text: str) -> None:
    with trio.fail_after(60):
        while text not in (work / "shoal.log").read_text():  # noqa: ASYNC110 (of another process)
            await trio.sleep(0.05)


async def test_a_second_shoal_without_takeover_is_refused_and_a_killed_one_leaves_no_lock(tmp_path: Path) -> None:
    port = free_port_block(6)
    async with fake_broker() as made:
        first, second = configured(tmp_path, made, port), configured(tmp_path, made, port)
        await first.start()
        text = f"{tmp_path / 'state'} is in use by process {first.pid}, a Shoal that still runs: stop it, or replace it"
        assert text in await second.refuse_to_start()
        first.kill()
        async with running_shoal(second):
            await ask(port, 1)


@pytest.mark.parametrize(
    ("listener", "why"),
    [
        ({"tls": {"certificate": "none.pem", "key": "none.pem"}}, "none.pem"),
        ({"listen": "127.0.0.1:1", "max-connections": 5}, "cannot listen on 127.0.0.1:1"),
    ],
)
async def test_a_new_shoal_that_cannot_start_leaves_the_old_one_as_it_was(
    tmp_path: Path, listener: dict[str, object], why: str
) -> None:
    port = free_port_block(6)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        if "listen" in listener:
            listener = listener | {"listen": f"127.0.0.1:{taken.getsockname()[1]}"}
            why = f"cannot listen on {listener['listen']}"
        async with fake_broker() as made, running_shoal(configured(tmp_path, made, port)) as shoal:
            wrong = configured(tmp_path, made, port, **listener)
            wrong.argv.append("--takeover")
            async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
                client = Peer(stream)
                await client.send(request(300, 0, 1, b"before"))
                await client.frame()
                assert why in await wrong.refuse_to_start()
                await client.send(request(300, 0, 2, b"after"))
                assert (await client.frame()).endswith(b"after")
            await shoal_says(tmp_path, "This Shoal goes on")
            await ask(port, 3)
            await shoal.take_over()
            await ask(port, 4)


@pytest.mark.slow
async def test_a_shoal_that_does_not_answer_is_left_alone(tmp_path: Path) -> None:
    port = free_port_block(6)
    async with fake_broker() as made, running_shoal(configured(tmp_path, made, port)) as shoal:
        os.kill(shoal.pid, signal.SIGSTOP)
        try:
            second = configured(tmp_path, made, port)
            second.argv.append("--takeover")
            assert "no answer within 5 s. It goes on" in await second.refuse_to_start()
        finally:
            os.kill(shoal.pid, signal.SIGCONT)
        await ask(port, 1)


async def test_noise_and_a_second_takeover_change_nothing(tmp_path: Path) -> None:
    """A second one is refused while the first has not finished; one that leaves gives its turn back."""
    port = free_port_block(6)
    hello = b'{"word": "take", "version": 1}'
    async with fake_broker() as made, running_shoal(configured(tmp_path, made, port)) as shoal:
        for said in (b"no JSON", b"[]", b'{"word": "dance"}', b"{}", b'{"word": "take", "version": 99}'):
            with asking(tmp_path) as noise:
                noise.send(said)
                noise.recv(1000)  # refused, or closed
        with asking(tmp_path) as first, asking(tmp_path) as second:
            first.send(hello)
            assert b'"directory"' in first.recv(1000)
            second.send(hello)
            assert b"is taking over at this moment" in second.recv(1000)
        await shoal_says(tmp_path, "has not taken over: it has ended. This Shoal goes on")
        await ask(port, 1)
        await shoal.take_over()
        await ask(port, 2)


@pytest.mark.parametrize("last", [Word.TAKE, Word.DIRECTORY, Word.ALL, Word.READY, Word.GO])
async def test_a_shoal_that_is_killed_while_it_hands_over_is_replaced(tmp_path: Path, last: Word) -> None:
    """The test is the Shoal before. `last`: what it has heard or said when it ends."""
    port = free_port_block(6)
    (tmp_path / "state").mkdir()
    directory = StateDirectory.take(tmp_path / "state")
    assert directory.lock is not None
    assert directory.control is not None
    listening = socket.create_server(("127.0.0.1", port))
    passed: dict[Word, tuple[list[int], dict[str, object]]] = {
        Word.DIRECTORY: ([directory.lock, directory.control.fileno()], {"pid": os.getpid()}),
        Word.PORTS: ([listening.fileno()], {"uses": ["plain"]}),
    }

    async def hand_over_until_the_end(control: socket.socket) -> None:
        sock, _ = await trio.socket.from_stdlib_socket(control).accept()
        channel = Channel(sock)
        for word in (Word.TAKE, Word.DIRECTORY, Word.PORTS, Word.ALL, Word.READY, Word.GO):
            if word in (Word.TAKE, Word.READY):
                assert (await channel.receive(within=60))[0] is word
            else:
                descriptors, values = passed.get(word, ([], {}))
                await channel.send(word, descriptors, **values)
            if word is last:
                break
        listening.close()
        directory.give_up()
        directory.close()
        channel.close()

    async with fake_broker() as made, trio.open_nursery() as nursery:
        nursery.start_soon(hand_over_until_the_end, directory.control)
        new = configured(tmp_path, made, port)
        new.argv.append("--takeover")
        async with running_shoal(new):
            await ask(port, 1)
            await shoal_says(tmp_path, "which drains" if last is Word.GO else EXPECTED.get(last, "an ordinary start"))
            assert (tmp_path / "state" / "shoal.lock").read_text() == f"{new.pid}\n"
            await new.take_over()
            await ask(port, 2)


EXPECTED = {Word.ALL: "which has ended", Word.READY: "which has ended"}


async def test_a_shoal_that_drains_already_is_taken_over_from(tmp_path: Path) -> None:
    port = free_port_block(6)
    async with (
        fake_broker() as made,
        running_shoal(configured(tmp_path, made, port)) as shoal,
        in_flight(made, port) as (client, go_on),
        trio.open_nursery() as nursery,
    ):
        os.kill(shoal.pid, signal.SIGTERM)
        await shoal_says(tmp_path, "SIGTERM: draining for at most 60 s")
        nursery.start_soon(shoal.take_over)
        await shoal_says(tmp_path, "took over from process")
        await ask(port, 2)
        go_on.set()
        assert (await client.frame()).endswith(b"in flight")
        assert await client.at_end()


async def test_the_first_signal_after_a_takeover_does_not_end_at_once(tmp_path: Path) -> None:
    """As when the unit of the Shoal before is stopped: its requests in flight are still answered."""
    port = free_port_block(6)
    async with fake_broker() as made, running_shoal(configured(tmp_path, made, port)) as shoal:
        before = shoal.pid
        async with in_flight(made, port) as (client, go_on), trio.open_nursery() as nursery:
            nursery.start_soon(shoal.take_over)
            await shoal_says(tmp_path, "took over from process")
            os.kill(before, signal.SIGTERM)
            await shoal_says(tmp_path, "SIGTERM: draining already")
            go_on.set()
            assert (await client.frame()).endswith(b"in flight")


def asking(work: Path) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    sock.settimeout(60)
    with short_path(work / "state") as address:
        sock.connect(address)
    return sock


async def test_at_the_limit_of_open_files_a_takeover_waits(tmp_path: Path) -> None:
    port = free_port_block(6)
    async with fake_broker() as made, running_shoal(configured(tmp_path, made, port)) as shoal:
        await ask(port, 1)
        with without_descriptors(shoal.pid):
            before = shoal.begin_takeover()
            await shoal_says(tmp_path, "--takeover wait: Too many open files")
        await until(lambda: not before.running, within=60, what="the Shoal before to end")
        assert before.exit_code == 0
        await ask(port, 2)


async def test_other_ports_are_bound_and_those_no_longer_wanted_are_closed(tmp_path: Path) -> None:
    first, second = free_port_block(6), free_port_block(6)
    async with fake_broker() as made:
        old, new = configured(tmp_path, made, first), configured(tmp_path, made, second)
        await old.start()
        new.argv.append("--takeover")
        async with running_shoal(new):
            await ask(second, 1)
            await shoal_says(tmp_path, "has ended")
            with pytest.raises(OSError, match="connect"):
                await ask(first, 2)
        await until(lambda: not old.running, within=60, what="the Shoal before to end")


async def test_takeover_where_no_shoal_runs_is_an_ordinary_start(tmp_path: Path) -> None:
    port = free_port_block(6)
    async with fake_broker() as made:
        shoal = configured(tmp_path, made, port)
        shoal.argv.append("--takeover")
        async with running_shoal(shoal):
            assert "no Shoal runs in" in shoal.output()
            await ask(port, 1)


async def test_the_ports_of_mirrors_that_unwrap_do_not_become_others(tmp_path: Path) -> None:
    """A mirror would bring envelopes there, and they would be stored as records."""
    port = free_port_block(6)
    async with fake_broker() as made, running_shoal(configured(tmp_path, made, port, mode="unwrap")) as shoal:
        plain = configured(tmp_path, made, port)
        plain.argv.append("--takeover")
        assert 'a listener with mode = "unwrap" had it' in await plain.refuse_to_start()
        await shoal.take_over()
        await ask(port, 1)
