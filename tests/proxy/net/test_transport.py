"""A plain socket before its first byte."""

from __future__ import annotations

import socket

import pytest
import trio
from trio.testing import assert_no_checkpoints, wait_all_tasks_blocked

from shoal.proxy.net.transport import says_something
from tests.support.rig import DEADLINE


@pytest.mark.parametrize("sends", [True, False])
async def test_what_the_peer_has_done_is_seen_without_a_wait(sends: bool) -> None:
    ours, peer = socket.socketpair()
    with ours, peer:
        ours.setblocking(False)
        peer.send(b"x") if sends else peer.close()
        for _ in range(2):
            with assert_no_checkpoints():
                assert await says_something(ours) is sends


@pytest.mark.parametrize("sends", [True, False])
async def test_a_silent_peer_is_waited_for(sends: bool) -> None:
    ours, peer = socket.socketpair()
    found = []

    async def look() -> None:
        found.append(await says_something(ours))

    with ours, peer, trio.fail_after(DEADLINE):
        ours.setblocking(False)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(look)
            await wait_all_tasks_blocked()
            assert not found
            peer.send(b"x") if sends else peer.close()
    assert found == [sends]
