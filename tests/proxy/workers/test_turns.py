"""Who accepts a client at a port that several workers accept at."""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING, Any

import pytest
import trio

from shoal.proxy.cluster.bound_port import BoundPort
from shoal.proxy.config.settings import Mode
from shoal.proxy.listener.sockets import ListeningSockets
from shoal.proxy.net.turns import TurnTable

if TYPE_CHECKING:
    from collections.abc import Iterator

PORT = 9092


@pytest.fixture
def table() -> Iterator[TurnTable]:
    made = TurnTable.create(3)
    for worker in (1, 2, 3):
        made.note(worker, serves=True, ports=[])
    made.open()
    yield made
    del made.numbers  # what tests hold ends with them


def test_the_worker_with_the_fewest_clients_is_next(table: TurnTable) -> None:
    one, two, three = (table.of(PORT, worker) for worker in (1, 2, 3))
    assert all(turns.is_ours() for turns in (one, two, three))
    one.entered()
    one.entered()
    two.entered()
    assert [turns.is_ours() for turns in (one, two, three)] == [False, False, True]
    three.entered()
    assert [turns.is_ours() for turns in (one, two, three)] == [False, True, True]
    one.left()
    assert [turns.is_ours() for turns in (one, two, three)] == [True, True, True]


def test_ports_are_counted_each_for_itself(table: TurnTable) -> None:
    table.of(PORT, 1).entered()
    assert not table.of(PORT, 1).is_ours()
    assert table.of(PORT + 1, 1).is_ours()


def test_a_worker_that_does_not_serve_is_passed_over_and_begins_without_clients(table: TurnTable) -> None:
    one, two = table.of(PORT, 1), table.of(PORT, 2)
    table.note(3, serves=False, ports=[])
    one.entered()
    two.entered()
    assert one.is_ours()
    table.note(1, serves=False, ports=[PORT])
    table.note(1, serves=True, ports=[])
    assert one.is_ours()
    assert not two.is_ours()


def test_another_process_sees_the_same_numbers(table: TurnTable) -> None:
    other = TurnTable(os.dup(table.descriptor), 3)
    table.of(PORT, 1).entered()
    assert not other.of(PORT, 1).is_ours()


def test_clients_wait_until_all_workers_have_begun() -> None:
    made = TurnTable.create(2)
    one, two = made.of(PORT, 1), made.of(PORT, 2)
    before = two.have_begun
    made.open()
    assert (before, two.have_begun, one.have_begun) == (False, True, True)
    del one, two, made.numbers


def test_another_worker_that_accepts_or_loses_a_client_is_seen(table: TurnTable) -> None:
    one, two = table.of(PORT, 1), table.of(PORT, 2)
    seen = one.others()
    one.entered()
    assert one.others() == seen
    two.entered()
    assert one.others() != seen
    two.left()
    assert one.others() == seen


@pytest.fixture
async def port(table: TurnTable) -> Any:
    sock = ListeningSockets().open(socket.AF_INET, ("127.0.0.1", 0), Mode.PLAIN)
    turns = table.of(PORT, 1)
    made = BoundPort(None, sock, sock.getsockname()[1], None, ask_for_brokers=None, complain=None, turns=turns)  # type: ignore[arg-type]
    yield made
    made.close()


async def test_a_client_that_nobody_else_accepts_is_accepted_after_a_moment(
    port: BoundPort, table: TurnTable, autojump_clock: trio.testing.MockClock
) -> None:
    accepted: list[float] = []
    is_accepted = trio.Event()

    def welcome(_: BoundPort, descriptor: int, host: str) -> None:
        os.close(descriptor)
        accepted.append(trio.current_time())
        is_accepted.set()

    table.of(PORT, 1).entered()  # the others have none
    began = trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(port.accept, welcome)
        with socket.create_connection(("127.0.0.1", port.port)):
            await is_accepted.wait()
        nursery.cancel_scope.cancel()
    assert len(accepted) == 1
    assert accepted[0] - began >= 0.05
