from __future__ import annotations

from typing import TYPE_CHECKING

import trio
import trio.testing

from shoal.proxy.admin.lag import LoopLag
from shoal.proxy.admin.status import Status
from shoal.proxy.config.problems import Problem
from shoal.proxy.config.settings import Address, ClusterSettings, ListenerSettings, Mode, Settings
from shoal.proxy.lifecycle.state import ServerState
from shoal.proxy.lifecycle.tenure import Tenure
from shoal.proxy.listener.sockets import ListeningSockets
from shoal.proxy.workers.links import Message, Word
from shoal.proxy.workers.process import WorkerState
from shoal.proxy.workers.supervisor import Supervisor, pause_after
from tests.support.rig import free_range

if TYPE_CHECKING:
    import pytest
    from trio.testing import MockClock


def test_a_worker_that_ends_again_and_again_is_started_ever_later() -> None:
    assert [pause_after(ends) for ends in range(1, 9)] == [0, 1, 2, 4, 8, 16, 30, 30]


async def test_a_fault_that_all_workers_find_is_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    held = Tenure(directory=None, taking=None, sockets=ListeningSockets())
    supervisor = Supervisor(Settings(clusters=(), listeners=(), workers=2), None, held)
    for worker in supervisor.workers.values():
        supervisor._hear(worker, Message(Word.FAILED, [Problem("capture.directory", "/none is not a directory")]))
    supervisor._table.close()
    assert supervisor.state is ServerState.ENDING
    assert not caplog.records


def of_mirror() -> Supervisor:
    """Not started, with the listener `l`."""
    held = Tenure(directory=None, taking=None, sockets=ListeningSockets())
    mirror = ListenerSettings(name="l", cluster="c", mode=Mode.UNWRAP, port=0, nodes=free_range())
    cluster = ClusterSettings(name="c", bootstrap=(Address("127.0.0.1", 1),))
    return Supervisor(Settings(clusters=(cluster,), listeners=(mirror,), workers=2), None, held)


async def test_a_listener_that_no_worker_has_counted_yet_is_known() -> None:
    """As that of a mirror, while a takeover waits for its files."""
    supervisor = of_mirror()
    assert Status(supervisor, LoopLag()).document()["listeners"]
    supervisor.close()
    supervisor._table.close()


async def test_only_the_worker_of_mirrors_can_say_that_their_files_are_closed() -> None:
    """And not before the drain: one that ends alone is started again, and opens them."""
    supervisor = of_mirror()
    one, other = supervisor.workers.values()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(supervisor.until_released)
        supervisor._hear(one, Message(Word.RELEASED))
        supervisor.drain()
        supervisor._hear(other, Message(Word.RELEASED))
        await trio.testing.wait_all_tasks_blocked()
        assert nursery.child_tasks
        supervisor._hear(one, Message(Word.RELEASED))
    supervisor.close()
    supervisor._table.close()


async def test_nothing_waits_for_the_files_of_a_worker_that_has_ended(autojump_clock: MockClock) -> None:
    supervisor = of_mirror()
    supervisor.workers[1].state = WorkerState.ENDED
    supervisor.drain()
    with trio.fail_after(1):
        await supervisor.until_released()
    supervisor.close()
    supervisor._table.close()
