"""The socket of `shoal reload`, where one Shoal takes over from another."""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING

import trio
import trio.testing

from shoal.proxy.lifecycle.control import NAME, ask_for_reload, serve_control

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


async def reload(who: str) -> Mapping[str, object]:
    return {"result": who}


async def start(nursery: trio.Nursery, directory: Path, who: str, ours: set[str]) -> trio.CancelScope:
    """-> what ends it."""
    scope = trio.CancelScope()

    async def run() -> None:
        with scope:
            await serve_control(directory, partial(reload, who), lambda: who in ours)

    nursery.start_soon(run)
    await trio.testing.wait_all_tasks_blocked()
    return scope


async def asked(directory: Path) -> object:
    return (await trio.to_thread.run_sync(ask_for_reload, directory))["result"]


async def test_a_shoal_that_has_handed_over_leaves_the_socket_to_the_next(tmp_path: Path) -> None:
    """It cannot see in one step whose file it is and remove it."""
    async with trio.open_nursery() as nursery:
        ours = {"first"}
        first = await start(nursery, tmp_path, "first", ours)
        assert await asked(tmp_path) == "first"
        ours.clear()
        inode = os.stat(tmp_path / NAME).st_ino
        first.cancel()
        await trio.testing.wait_all_tasks_blocked()
        assert os.stat(tmp_path / NAME).st_ino == inode
        ours.add("second")
        second = await start(nursery, tmp_path, "second", ours)
        assert await asked(tmp_path) == "second"
        second.cancel()
        await trio.testing.wait_all_tasks_blocked()
        assert os.listdir(tmp_path) == []


async def test_a_shoal_without_a_socket_s_file_goes_on(tmp_path: Path) -> None:
    async with trio.open_nursery() as nursery:
        only = await start(nursery, tmp_path, "only", {"only"})
        os.unlink(tmp_path / NAME)
        only.cancel()
    assert os.listdir(tmp_path) == []
