"""Two workers, as processes, in front of a scripted broker: who gets which client, and what the end of one costs."""

from __future__ import annotations

import fcntl
import json
import os
import signal
from contextlib import AsyncExitStack, suppress
from typing import TYPE_CHECKING, Any

import pytest
import trio

from shoal.proxy.lifecycle.control import ask_for_reload
from shoal.scenarios.kafka.ports import free_port_block
from shoal.scenarios.kafka.process import until
from tests.support.admin import ask as get
from tests.support.admin import get_json, scrape, values
from tests.support.processes import without_descriptors
from tests.support.rig import BrokerSide, FakeBroker, Peer, api_key, correlation_id, echo, fake_broker, request
from tests.support.shoal_process import ShoalProcess, listening_ports, running_shoal, write_toml

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_WITHIN = 60.0
_PAGE = 5.0  # each waits for a silent worker for less than a second


class Workers:
    """`first` is the listener's port; its brokers' follow, then those of `other`, and the admin port."""

    def __init__(self, work: Path, made: FakeBroker, workers: int = 2, **document: object) -> None:
        self.first = free_port_block(12)
        self.other, self.admin = self.first + 8, self.first + 11
        self.state = work / "state"
        self._work, self._broker, self._document = work, made, {"workers": workers, **document}
        self.toml = self.write()
        argv = ["run", "-c", str(self.toml), "--log-format", "json"]
        self.shoal = ShoalProcess(argv, work=work, ports=[self.first, self.admin])

    def write(self, *more: Mapping[str, object], **first: object) -> Path:
        listener: dict[str, object] = {
            "name": "l",
            "cluster": "c",
            "listen": f"127.0.0.1:{self.first}",
            "ports": f"{self.first + 1}-{self.first + 5}",
        }
        document = {
            "state-dir": str(self.state),
            "cluster": [{"name": "c", "bootstrap": str(self._broker.address)}],
            "listener": [{**listener, **first}, *more],
            "admin": {"listen": f"127.0.0.1:{self.admin}"},
            **self._document,
        }
        return write_toml(self._work / "shoal.toml", document)

    async def rows(self) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = (await get_json(self.admin, "/status"))["workers"]
        return rows

    async def until_serving(self, other_than: int = 0) -> list[dict[str, Any]]:
        with trio.fail_after(_WITHIN):
            while True:
                rows = await self.rows()
                if all(row["state"] == "serving" and row["answers"] and row["pid"] != other_than for row in rows):
                    return rows
                await trio.sleep(0.05)

    async def until_connected(self, count: int) -> list[int]:
        """-> the connections of each worker. What a worker has answered late is of an earlier time."""
        with trio.fail_after(_WITHIN):
            while True:
                found: list[int] = [row["connections"] for row in await self.rows()]
                if sum(found) == count:
                    return found
                await trio.sleep(0.05)

    async def until_counted(self, requests: int) -> dict[tuple[str, ...], float]:
        """-> the metrics, as soon as they have so many requests."""
        with trio.fail_after(_WITHIN):
            while True:
                found = values(await scrape(self.admin))
                if found["shoal_client_requests_total", "l"] == requests:
                    return found
                await trio.sleep(0.05)

    async def until_ready(self, workers: Mapping[str, str | None]) -> int:
        """-> the status of /readyz, as soon as it says this of the workers."""
        with trio.fail_after(_WITHIN):
            while True:
                with trio.fail_after(_PAGE):
                    status, body = await get(self.admin, "/readyz")
                if json.loads(body)["workers"] == workers:
                    return status
                await trio.sleep(0.05)

    def lines(self, event: str) -> list[dict[str, Any]]:
        return [line for line in self.shoal.json_lines() if line["event"] == event]


async def answered(client: Peer, number: int = 1) -> bool:
    """Whether the client's connection is still there."""
    try:
        await client.send(request(300, 0, number, b"%d" % number))
        return (await client.frame()).endswith(b"%d" % number)
    except (trio.BrokenResourceError, AssertionError):
        return False


async def connected(stack: AsyncExitStack, port: int, count: int) -> list[Peer]:
    """One after the other, each with an answered request: a worker has it."""
    clients = []
    for _ in range(count):
        clients.append(Peer(await stack.enter_async_context(await trio.open_tcp_stream("127.0.0.1", port))))
        assert await answered(clients[-1])
    return clients


def is_free(lock: Path) -> bool:
    with lock.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


async def test_the_end_of_a_worker_costs_its_connections_only(tmp_path: Path) -> None:
    async with fake_broker() as made, AsyncExitStack() as stack:
        two = Workers(tmp_path, made)
        await stack.enter_async_context(running_shoal(two.shoal))
        before = await two.until_serving()
        clients = await connected(stack, two.first, 8)
        kept, lost = await two.until_connected(8)
        assert min(kept, lost) >= 2  # 4 and 4, if both have time
        assert all({two.first} <= listening_ports(row["pid"]) for row in before)

        os.kill(before[1]["pid"], signal.SIGKILL)
        after = await two.until_serving(other_than=before[1]["pid"])
        assert after[0]["pid"] == before[0]["pid"]
        assert sum([await answered(client, 2) for client in clients]) == kept
        await connected(stack, two.first, lost)  # the new worker has none so far
        assert (await two.until_connected(kept + lost))[1] >= 1

        (line,) = two.lines("worker-ended")
        assert (line["worker"], line["ended_by"], line["connections"]) == (2, "SIGKILL", lost)
        found = await two.until_counted(8 + kept + lost)
        assert found["shoal_connections_opened_total", "l"] == 8 + lost
        assert found["shoal_connections_closed_total", "internal", "l"] == lost
        assert found["shoal_worker_ends_total",] == 1
        assert await two.until_ready({"1": None, "2": None}) == 200


async def test_a_hang_up_for_all_processes_is_a_reload_and_ends_no_worker(tmp_path: Path) -> None:
    async with fake_broker() as made, AsyncExitStack() as stack:
        two = Workers(tmp_path, made)
        await stack.enter_async_context(running_shoal(two.shoal))
        rows = await two.until_serving()
        clients = await connected(stack, two.first, 2)
        for pid in (two.shoal.pid, *(row["pid"] for row in rows)):
            os.kill(pid, signal.SIGHUP)
        await until(lambda: bool(two.lines("files-reread")), within=_WITHIN, what="the reload")
        assert all([await answered(client, 2) for client in clients])
        assert [row["pid"] for row in await two.until_serving()] == [row["pid"] for row in rows]


async def test_a_worker_that_cannot_be_started_is_tried_again(tmp_path: Path) -> None:
    async with fake_broker() as made, AsyncExitStack() as stack:
        two = Workers(tmp_path, made)
        await stack.enter_async_context(running_shoal(two.shoal))
        before = await two.until_serving()
        clients = await connected(stack, two.first, 4)
        with without_descriptors(two.shoal.pid):
            os.kill(before[1]["pid"], signal.SIGKILL)
            await until(lambda: bool(two.lines("worker-failed")), within=_WITHIN, what="the error")
        assert any([await answered(client, 2) for client in clients])
        await two.until_serving(other_than=before[1]["pid"])
        line = two.lines("worker-failed")[0]
        assert (line["worker"], line["findings"]) == (2, ["no process can be started: Too many open files"])


@pytest.mark.slow
async def test_no_worker_is_started_again_while_the_others_wait_for_their_clients_to_go(tmp_path: Path) -> None:
    """Nothing would ask it to end. Its pause is over before their time is."""

    async def answer(broker: BrokerSide, frame: bytes) -> None:
        if correlation_id(frame) != 3:
            await echo(broker, frame)

    limits = {"drain": "until-clients-gone", "drain-wait-seconds": 8, "drain-seconds": 1}
    async with fake_broker() as made, AsyncExitStack() as stack:
        made.answer = answer
        two = Workers(tmp_path, made, limits=limits)
        await stack.enter_async_context(running_shoal(two.shoal))
        before = await two.until_serving()
        clients = await connected(stack, two.first, 4)
        with without_descriptors(two.shoal.pid):
            os.kill(before[1]["pid"], signal.SIGKILL)
            await until(lambda: len(two.lines("worker-failed")) == 4, within=_WITHIN, what="a longer pause")
        for client in [client for client in clients if await answered(client, 2)]:
            await client.send(request(300, 0, 3))
        await two.shoal.stop()
        assert len(two.lines("worker-serves")) == 2


async def test_a_silent_worker_is_named_and_nothing_waits_for_it(tmp_path: Path) -> None:
    async with fake_broker() as made, AsyncExitStack() as stack:
        two = Workers(tmp_path, made)
        await stack.enter_async_context(running_shoal(two.shoal))
        rows = await two.until_serving()
        await connected(stack, two.first, 2)
        await two.until_counted(2)
        os.kill(rows[1]["pid"], signal.SIGSTOP)
        try:
            # An answer from before may come first, once for each page.
            assert await two.until_ready({"1": None, "2": "it does not answer"}) == 503
            for _ in range(2):
                with trio.fail_after(_PAGE):
                    found = values(await scrape(two.admin))
                with trio.fail_after(_PAGE):
                    silent = (await two.rows())[1]
            with trio.fail_after(_PAGE):
                await connected(stack, two.first, 3)
        finally:
            os.kill(rows[1]["pid"], signal.SIGCONT)
        assert found["shoal_workers", "silent"] == 1
        assert found["shoal_connections_opened_total", "l"] == 2
        assert not silent["answers"]


async def test_a_reload_is_for_all_workers_or_none(tmp_path: Path) -> None:
    async with fake_broker() as made, AsyncExitStack() as stack:
        two = Workers(tmp_path, made)
        await stack.enter_async_context(running_shoal(two.shoal))
        rows = await two.until_serving()
        clients = await connected(stack, two.first, 4)

        two.write(cluster="none")
        os.kill(two.shoal.pid, signal.SIGHUP)
        await until(lambda: bool(two.lines("reload-refused")), within=_WITHIN, what="the refusal")
        assert len(two.lines("reload-refused")) == 1

        more: dict[str, object] = {
            "name": "m",
            "cluster": "c",
            "listen": f"127.0.0.1:{two.other}",
            "ports": {"7": two.other + 1},
        }
        two.write(more, **{"max-connections": 8})
        os.kill(two.shoal.pid, signal.SIGHUP)
        await until(lambda: bool(two.lines("reloaded")), within=_WITHIN, what="the reload")
        assert len(two.lines("reloaded")) == 1
        assert all({two.other, two.other + 1} <= listening_ports(row["pid"]) for row in rows)
        await connected(stack, two.other, 2)
        await two.until_connected(6)

        served = 4  # each worker has half of the limit
        async with AsyncExitStack() as more_clients:
            for _ in range(9):
                with suppress(OSError):  # it was reset before it had connected
                    stream = await more_clients.enter_async_context(await trio.open_tcp_stream("127.0.0.1", two.first))
                    served += await answered(Peer(stream))
        assert 6 <= served <= 8
        assert all([await answered(client, 3) for client in clients])
        assert [row["pid"] for row in await two.rows()] == [row["pid"] for row in rows]


async def test_workers_without_their_supervisor_drain(tmp_path: Path) -> None:
    async with fake_broker() as made, AsyncExitStack() as stack:
        two = Workers(tmp_path, made)
        await two.shoal.start()
        rows = await two.until_serving()
        (client,) = await connected(stack, two.first, 1)
        two.shoal.kill()
        await until(
            lambda: not any(listening_ports(row["pid"]) for row in rows), within=_WITHIN, what="the workers to drain"
        )
        assert not await answered(client, 2)
        await client.leave()
        lock = tmp_path / "state" / "shoal.lock"
        await until(lambda: is_free(lock), within=_WITHIN, what="the last worker to end")
        async with running_shoal(two.shoal):
            await two.until_serving()


async def test_a_fault_that_only_workers_find_ends_shoal(tmp_path: Path) -> None:
    async with fake_broker() as made:
        two = Workers(tmp_path, made, capture={"directory": str(tmp_path / "none")})
        output = await two.shoal.refuse_to_start()
    lines = [line for line in output.splitlines() if "is not a directory: create it" in line]
    assert len(lines) == 2  # one of the log, and the text for people


@pytest.mark.slow
async def test_one_shoal_hands_over_to_two_workers_and_back(tmp_path: Path) -> None:
    async with fake_broker() as made, AsyncExitStack() as stack:
        shoals = Workers(tmp_path, made, workers=1)
        await stack.enter_async_context(running_shoal(shoals.shoal))
        for workers in (2, 1):
            (client,) = await connected(stack, shoals.first, 1)
            shoals._document["workers"] = workers
            shoals.write()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(shoals.shoal.take_over)
                assert await client.at_end()
                await client.leave()
            assert len((await get_json(shoals.admin, "/status")).get("workers", [])) == (workers if workers > 1 else 0)
            await connected(stack, shoals.first, 2)


def with_mirror(
    work: Path, source: FakeBroker, target: FakeBroker, **document: Mapping[str, object]
) -> tuple[Workers, dict[int, str]]:
    """-> also the names of the mirror's two listeners, by their bootstrap ports."""
    two = Workers(work, source, 2, **document)
    two._document["cluster"] = [
        {"name": "c", "bootstrap": str(source.address)},
        {"name": "d", "bootstrap": str(target.address)},
    ]
    ports = {two.other: "source", two.other + 1: "target"}
    listeners: list[dict[str, object]] = [
        {"name": "source", "cluster": "c", "mode": "wrap", "pair": "target"},
        {"name": "target", "cluster": "d", "mode": "unwrap"},
    ]
    for number, (port, listener) in enumerate(zip(ports, listeners, strict=True)):
        listener["listen"] = f"127.0.0.1:{port}"
        listener["ports"] = {"1": two.first + 6 + number}
    two.write(*listeners)
    return two, ports


async def test_mirrors_are_in_the_first_worker_only_also_after_its_end(tmp_path: Path) -> None:
    async with fake_broker() as source, fake_broker() as target:
        two, ports = with_mirror(tmp_path, source, target)
        async with running_shoal(two.shoal):
            one, other = await two.until_serving()
            assert ports.keys() <= listening_ports(one["pid"])
            assert not ports.keys() & listening_ports(other["pid"])
            os.kill(one["pid"], signal.SIGKILL)
            again, other = await two.until_serving(other_than=one["pid"])
            assert ports.keys() <= listening_ports(again["pid"])
            assert not ports.keys() & listening_ports(other["pid"])
            assert (await get_json(two.admin, "/status"))["listeners"][1]["flows"] == []
        assert (tmp_path / "state" / "target.producers").exists()


async def reloaded(state: Path) -> None:
    """`shoal reload` asks the Shoal that has the directory now, and waits until that one serves."""
    assert (await trio.to_thread.run_sync(ask_for_reload, state))["result"] == "reloaded"


@pytest.mark.slow
@pytest.mark.parametrize("killed", [False, True])
async def test_a_takeover_waits_for_the_mirrors_of_the_first_worker_alone(tmp_path: Path, *, killed: bool) -> None:
    """Also when the other worker has ended, or the supervisor is killed."""
    go_on = trio.Event()

    async def late(side: BrokerSide, frame: bytes) -> None:
        if api_key(frame) == 300:
            await go_on.wait()
        await echo(side, frame)

    async with fake_broker() as source, fake_broker() as target, AsyncExitStack() as stack:
        target.answer = late
        two, _ = with_mirror(tmp_path, source, target, limits={"drain-seconds": _WITHIN})
        await stack.enter_async_context(running_shoal(two.shoal))
        await two.until_serving()
        mirror = Peer(await stack.enter_async_context(await trio.open_tcp_stream("127.0.0.1", two.other + 1)))
        await mirror.send(request(300, 0, 1, b"in flight"))
        await until(lambda: any(api_key(frame) == 300 for frame in target.received), within=_WITHIN, what="the request")
        before = two.shoal.begin_takeover()
        await until(lambda: bool(two.lines("worker-serves")), within=_WITHIN, what="the new worker 2")
        if killed:
            before.kill()
        await until(
            lambda: bool(two.lines("takeover-waits")), within=_WITHIN, what="the warning", process=two.shoal.process
        )
        async with trio.open_nursery() as nursery:
            nursery.start_soon(reloaded, two.state)
            go_on.set()
            assert (await mirror.frame()).endswith(b"in flight")
            await mirror.leave()
        await until(
            lambda: not before.running, within=_WITHIN, what="the Shoal before to end", process=two.shoal.process
        )
        await two.until_serving()
        assert two.lines("worker-serves")[-1]["worker"] == 1
